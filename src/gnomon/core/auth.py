"""Tokens and client certificates: parsing and checking them, without keys, clock or network.

A token has three parts in base64: a header, claims and a signature. Everything in it is untrusted until the signature
has been verified, so parsing is strict: one spelling of every part, no name twice, and the header decides nothing but
the key to try.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NoReturn

from msgspec import Struct

from gnomon.core.jobs.fields import NAME, schedule_name
from gnomon.errors import FieldError, RefusalReason, TokenMissing, TokenRefused

_PART = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_KID = 256
_LONGEST_SUBJECT = 255
_LONGEST_ID = 255
#: The accepted types of a token header.
_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
#: Header fields that change what is signed or how; tokens with them are refused, so that a token is unambiguous.
_UNSUPPORTED_HEADERS = ("crit", "b64", "zip", "enc", "cty")
#: Claims by which issuers mark tokens that are not access tokens.
_OTHER_KINDS = {"typ": ("ID", "Refresh", "Offline"), "token_use": ("id", "refresh")}
_ONLY_IN_ID_TOKENS = ("at_hash", "c_hash")
_LAST_SECOND = 253_402_300_799


class ParsedToken(Struct, frozen=True):
    """A parsed token. Nothing in it is verified."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]
    #: The signed bytes, and the signature.
    signed: bytes
    signature: bytes


class ClaimRules(Struct, frozen=True, kw_only=True):
    """The requirements on the claims of a token."""

    #: The exact issuer; any if empty.
    issuer: str = ""
    audience: frozenset[str] = frozenset()
    skew_ms: int = 60_000
    #: The longest time from issue to end; 0 is no limit.
    max_lifetime_ms: int = 0
    roles_claim: str = "roles"
    groups_claim: str = "groups"
    tenant_claim: str = "tenant"
    require_tenant: bool = False
    #: The known roles; others are ignored.
    roles: frozenset[str] = frozenset()


class VerifiedClaims(Struct, frozen=True):
    """The identity that the claims state."""

    subject: str
    roles: frozenset[str]
    tenant: str
    #: When the token stops being accepted: its `exp` and the tolerance.
    expires_at: int
    #: The claim `jti` and the claim `iat`; None without them.
    token_id: str | None = None
    issued_at: int | None = None
    groups: frozenset[str] = frozenset()


# ---- parsing -------------------------------------------------------------------------------------


def parse_token(token: str, *, algorithms: Collection[str], largest: int) -> ParsedToken:
    """Parse a token; raise TokenRefused unless it has one of these algorithms and is unambiguous."""
    if len(token) > largest:
        raise TokenRefused(f"it has {len(token)} characters; at most {largest} are allowed", RefusalReason.MALFORMED)
    if not token:
        raise TokenMissing
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("it does not have the three parts of a signed token", RefusalReason.MALFORMED)
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


def revocation_id(found: ParsedToken) -> str:
    """The id by which a token is revoked, valid or not: its `jti`, or without one a digest of what is signed.

    The digest leaves out the signature, which can have several spellings.
    """
    return _token_id(found.claims) or f"sha256:{sha256(found.signed).hexdigest()}"


def _algorithm(header: Mapping[str, Any], algorithms: Collection[str]) -> str:
    named = header.get("alg")
    if not isinstance(named, str) or named not in algorithms:
        raise TokenRefused("its alg is not accepted", RefusalReason.ALGORITHM)
    for field in _UNSUPPORTED_HEADERS:
        if field in header:
            raise TokenRefused(f"its header has {field}, which is not supported", RefusalReason.MALFORMED)
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefused("its typ is not that of a token", RefusalReason.MALFORMED)
    return named


def _kid(header: Mapping[str, Any]) -> str | None:
    kid = header.get("kid")
    if kid is None and "kid" not in header:
        return None
    if not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_KID or not kid.isprintable():
        raise TokenRefused("its kid is no name of a key", RefusalReason.MALFORMED)
    return kid


def _decoded(what: str, part: str) -> bytes:
    """The bytes of a part. Only one spelling is accepted, as two would make two tokens with one signature."""
    if not _PART.fullmatch(part):
        raise TokenRefused(f"its {what} is no base64", RefusalReason.MALFORMED)
    try:
        plain = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise TokenRefused(f"its {what} is no base64", RefusalReason.MALFORMED) from None
    if base64.urlsafe_b64encode(plain).rstrip(b"=").decode() != part:
        raise TokenRefused(f"its {what} is not canonical base64", RefusalReason.MALFORMED)
    return plain


def _mapping(what: str, text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} cannot be read", RefusalReason.MALFORMED) from None
    if not isinstance(found, dict):
        raise TokenRefused(f"its {what} is no mapping", RefusalReason.MALFORMED)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a name twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


# ---- verifying the claims ------------------------------------------------------------------------


def verify_claims(claims: Mapping[str, Any], rules: ClaimRules, *, now: int) -> VerifiedClaims:
    """The identity in the claims; raise TokenRefused unless they are meant for this service and valid now."""
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("its iss is not the trusted issuer", RefusalReason.ISSUER)
    _check_audience(claims, rules)
    _check_kind(claims)
    _check_time(claims, rules.skew_ms, now)
    _check_lifetime(claims, rules.max_lifetime_ms, now)
    return VerifiedClaims(
        subject=_subject(claims),
        roles=_roles(claims, rules),
        tenant=_tenant(claims, rules),
        expires_at=_instant(claims, "exp") + rules.skew_ms,
        token_id=_token_id(claims),
        issued_at=_instant(claims, "iat") if "iat" in claims else None,
        groups=_groups(claims, rules),
    )


def _check_audience(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if rules.audience and not any(isinstance(name, str) and name in rules.audience for name in named):
        raise TokenRefused("its aud does not name this service", RefusalReason.AUDIENCE)


def _check_kind(claims: Mapping[str, Any]) -> None:
    for claim, others in _OTHER_KINDS.items():
        if claims.get(claim) in others:
            raise TokenRefused("it is not an access token")
    if any(claim in claims for claim in _ONLY_IN_ID_TOKENS):
        raise TokenRefused("it is not an access token")


def _check_time(claims: Mapping[str, Any], skew_ms: int, now: int) -> None:
    if "exp" not in claims:
        raise TokenRefused("its exp is missing")
    if _instant(claims, "exp") + skew_ms <= now:
        raise TokenRefused("it has expired", RefusalReason.EXPIRED)
    for claim in ("nbf", "iat"):
        if claim in claims and _instant(claims, claim) - skew_ms > now:
            raise TokenRefused(f"its {claim} lies in the future", RefusalReason.NOT_YET_VALID)


def _check_lifetime(claims: Mapping[str, Any], longest_ms: int, now: int) -> None:
    """Refuse a token that is valid for too long, from its issue or, if it does not say when that was, from now on."""
    began = next((_instant(claims, claim) for claim in ("iat", "nbf") if claim in claims), now)
    if longest_ms and _instant(claims, "exp") - began > longest_ms:
        raise TokenRefused("it is valid for longer than auth.max_lifetime", RefusalReason.LIFETIME)


def _instant(claims: Mapping[str, Any], claim: str) -> int:
    value = claims[claim]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _LAST_SECOND:
        raise TokenRefused(f"its {claim} is no instant")
    return round(float(value) * 1000)


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if (
        not isinstance(subject, str)
        or not subject.strip()
        or len(subject) > _LONGEST_SUBJECT
        or not subject.isprintable()
    ):
        raise TokenRefused("its sub is no name of a caller")
    return subject


def _token_id(claims: Mapping[str, Any]) -> str | None:
    found = claims.get("jti")
    if found is not None and (
        not isinstance(found, str) or not 0 < len(found) <= _LONGEST_ID or not found.isprintable()
    ):
        raise TokenRefused("its jti is no id of a token")
    return found


def _roles(claims: Mapping[str, Any], rules: ClaimRules) -> frozenset[str]:
    value = _found(claims, rules.roles_claim)
    if value is None:
        return frozenset()
    named = value.split(" ") if isinstance(value, str) else value
    if not isinstance(named, list) or not all(isinstance(role, str) for role in named):
        raise TokenRefused(f"its {rules.roles_claim} is no list of roles")
    return frozenset(named) & rules.roles


def _groups(claims: Mapping[str, Any], rules: ClaimRules) -> frozenset[str]:
    value = _found(claims, rules.groups_claim)
    named = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not all(isinstance(group, str) for group in named):
        raise TokenRefused(f"its {rules.groups_claim} is no list of groups")
    return frozenset(filter(None, named))


def _tenant(claims: Mapping[str, Any], rules: ClaimRules) -> str:
    value = _found(claims, rules.tenant_claim)
    if value is None:
        if rules.require_tenant:
            raise TokenRefused(f"its {rules.tenant_claim} is missing")
        return "default"
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise TokenRefused(f"its {rules.tenant_claim} is no name of a tenant")
    return value


def _found(claims: Mapping[str, Any], name: str) -> object:
    """The claim of that name; or, as some issuers nest claims, the value at that path."""
    if name in claims:
        return claims[name]
    found: object = claims
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


# ---- client certificates -------------------------------------------------------------------------

_CERTIFICATES_SETTING = "auth.certificates"
_ROLES = ("viewer", "operator", "admin")


class CertificateGrant(Struct, frozen=True):
    """The role and tenant of a client certificate."""

    role: str
    tenant: str = "default"


def read_certificates(entries: Sequence[str]) -> dict[str, CertificateGrant]:
    """The grants by certificate name; raise FieldError unless each entry is `NAME=ROLE` or `NAME=ROLE/TENANT`."""
    found: dict[str, CertificateGrant] = {}
    for entry in entries:
        name, equals, rest = entry.rpartition("=")
        role, slash, tenant = rest.partition("/")
        if not equals or not name.strip() or role not in _ROLES:
            raise FieldError(
                _CERTIFICATES_SETTING,
                entry,
                f"must be NAME=ROLE or NAME=ROLE/TENANT, with a role of {', '.join(_ROLES)}",
            )
        if name in found:
            raise FieldError(_CERTIFICATES_SETTING, entry, "names a certificate a second time")
        found[name] = CertificateGrant(role, schedule_name(_CERTIFICATES_SETTING, tenant) if slash else "default")
    return found


def certificate_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The names that a certificate proves: its alternative names, or without any its common name."""
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    yield from others
    if not others:
        for parts in certificate.get("subject", ()):
            yield from (value for kind, value in parts if kind == "commonName")
