"""Services that show a certificate instead of a token: whose certificate may do what."""

import base64
import binascii
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from gnomon.core.jobs.fields import NAME, schedule_name
from gnomon.errors import FieldError, TokenRefused

_FIELD = "auth.certificates"
_ROLES = ("viewer", "operator", "admin")


class CertificateGrant(Struct, frozen=True):
    """What the bearer of a certificate may do, and to whose things."""

    role: str
    tenant: str = "default"


def read_certificates(entries: Sequence[str]) -> dict[str, CertificateGrant]:
    """What each name may do; FieldError for an entry that is none of `NAME=ROLE` and `NAME=ROLE/TENANT`."""
    found: dict[str, CertificateGrant] = {}
    for entry in entries:
        name, equals, rest = entry.rpartition("=")
        role, slash, tenant = rest.partition("/")
        if not equals or not name.strip() or role not in _ROLES:
            raise FieldError(
                _FIELD, entry, f"must be NAME=ROLE or NAME=ROLE/TENANT, with a role of {', '.join(_ROLES)}"
            )
        if name in found:
            raise FieldError(_FIELD, entry, "names a certificate a second time")
        found[name] = CertificateGrant(role, schedule_name(_FIELD, tenant) if slash else "default")
    return found


def certificate_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The names that a certificate proves: its other names, and without any its common name."""
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    yield from others
    if not others:
        for parts in certificate.get("subject", ()):
            yield from (value for kind, value in parts if kind == "commonName")


_PART = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_KID = 256
_LONGEST_SUBJECT = 255
#: What a header may call a token. Types of other things are for others to read.
_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
#: Header fields that change what is signed or how; without them a token means one thing.
_UNSUPPORTED_HEADERS = ("crit", "b64", "zip", "enc", "cty")
#: How issuers mark tokens that are not for showing to us.
_OTHER_KINDS = {"typ": ("ID", "Refresh", "Offline"), "token_use": ("id", "refresh")}
_ONLY_IN_ID_TOKENS = ("at_hash", "c_hash")
_LAST_SECOND = 253_402_300_799


class ParsedToken(Struct, frozen=True):
    """A token taken apart. Nothing of it is proven."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]
    #: What is signed, and the signature.
    signed: bytes
    signature: bytes


class ClaimRules(Struct, frozen=True, kw_only=True):
    """What the claims of a token must say."""

    #: To the letter; any if empty.
    issuer: str = ""
    audience: frozenset[str] = frozenset()
    skew_ms: int = 60_000
    roles_claim: str = "roles"
    tenant_claim: str = "tenant"
    require_tenant: bool = False
    #: Roles that mean something; others mean nothing.
    roles: frozenset[str] = frozenset()


class VerifiedClaims(Struct, frozen=True):
    """Who the claims say it is."""

    subject: str
    roles: frozenset[str]
    tenant: str


# ---- taking apart --------------------------------------------------------------------------------


def parse_token(token: str, *, algorithms: Collection[str], largest: int) -> ParsedToken:
    """The token taken apart; TokenRefused unless it is of one of these algorithms and says everything once."""
    if len(token) > largest:
        raise TokenRefused(f"it has {len(token)} characters; at most {largest} are taken")
    if not token:
        raise TokenRefused("there is none; send Authorization: Bearer TOKEN")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("it has not the three parts of a signed token")
    header_part, claims_part, signature_part = parts
    header = _mapping("header", _decoded("header", header_part))
    algorithm = _algorithm(header, algorithms)
    return ParsedToken(
        algorithm=algorithm,
        kid=_kid(header),
        claims=_mapping("claims", _decoded("claims", claims_part)),
        signed=f"{header_part}.{claims_part}".encode(),
        signature=_decoded("signature", signature_part),
    )


def _algorithm(header: Mapping[str, Any], algorithms: Collection[str]) -> str:
    named = header.get("alg")
    if not isinstance(named, str) or named not in algorithms:
        raise TokenRefused("its alg is none of those that are taken")
    for field in _UNSUPPORTED_HEADERS:
        if field in header:
            raise TokenRefused(f"its header says {field}, which nobody here understands")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefused("its typ is no token's")
    return named


def _kid(header: Mapping[str, Any]) -> str | None:
    kid = header.get("kid")
    if kid is None and "kid" not in header:
        return None
    if not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_KID or not kid.isprintable():
        raise TokenRefused("its kid is no name of a key")
    return kid


def _decoded(what: str, part: str) -> bytes:
    """The bytes of a part. Two spellings of the same bytes would be two tokens with one signature."""
    if not _PART.fullmatch(part):
        raise TokenRefused(f"its {what} is no base64")
    try:
        plain = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise TokenRefused(f"its {what} is no base64") from None
    if base64.urlsafe_b64encode(plain).rstrip(b"=").decode() != part:
        raise TokenRefused(f"its {what} is spelt in an unusual way")
    return plain


def _mapping(what: str, text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} cannot be read") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"its {what} is no mapping")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("says a name twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


# ---- judging -------------------------------------------------------------------------------------


def verify_claims(claims: Mapping[str, Any], rules: ClaimRules, *, now: int) -> VerifiedClaims:
    """Who the claims are about, if they are for us and count now; TokenRefused otherwise."""
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("its iss is not the issuer that is trusted")
    _check_audience(claims, rules)
    _check_kind(claims)
    _check_time(claims, rules.skew_ms, now)
    return VerifiedClaims(subject=_subject(claims), roles=_roles(claims, rules), tenant=_tenant(claims, rules))


def _check_audience(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    said = claims.get("aud")
    named = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    if rules.audience and not any(isinstance(one, str) and one in rules.audience for one in named):
        raise TokenRefused("its aud does not name us")


def _check_kind(claims: Mapping[str, Any]) -> None:
    for claim, others in _OTHER_KINDS.items():
        if claims.get(claim) in others:
            raise TokenRefused("it is a token of another kind, not one that gives access")
    if any(claim in claims for claim in _ONLY_IN_ID_TOKENS):
        raise TokenRefused("it is a token of another kind, not one that gives access")


def _check_time(claims: Mapping[str, Any], skew_ms: int, now: int) -> None:
    if "exp" not in claims:
        raise TokenRefused("its exp is missing")
    if _instant(claims, "exp") + skew_ms <= now:
        raise TokenRefused("it has expired")
    for claim in ("nbf", "iat"):
        if claim in claims and _instant(claims, claim) - skew_ms > now:
            raise TokenRefused(f"its {claim} lies in the future")


def _instant(claims: Mapping[str, Any], claim: str) -> int:
    said = claims[claim]
    number = isinstance(said, int | float) and not isinstance(said, bool)
    if not number or not math.isfinite(said) or not 0 <= said <= _LAST_SECOND:
        raise TokenRefused(f"its {claim} is no instant")
    return int(said * 1000)


def _subject(claims: Mapping[str, Any]) -> str:
    said = claims.get("sub")
    if not isinstance(said, str) or not said.strip() or len(said) > _LONGEST_SUBJECT or not said.isprintable():
        raise TokenRefused("its sub is no name of a caller")
    return said


def _roles(claims: Mapping[str, Any], rules: ClaimRules) -> frozenset[str]:
    said = _found(claims, rules.roles_claim)
    if said is None:
        return frozenset()
    named = said.split(" ") if isinstance(said, str) else said
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise TokenRefused(f"its {rules.roles_claim} is no list of roles")
    return frozenset(named) & rules.roles


def _tenant(claims: Mapping[str, Any], rules: ClaimRules) -> str:
    said = _found(claims, rules.tenant_claim)
    if said is None:
        if rules.require_tenant:
            raise TokenRefused(f"its {rules.tenant_claim} is missing")
        return "default"
    if not isinstance(said, str) or not NAME.fullmatch(said):
        raise TokenRefused(f"its {rules.tenant_claim} is no name of a tenant")
    return said


def _found(claims: Mapping[str, Any], name: str) -> object:
    """The claim of that name; or, as some issuers nest them, what stands at the end of that path."""
    if name in claims:
        return claims[name]
    found: object = claims
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
