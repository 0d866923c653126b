"""Authentication: builds the verifier of tokens, and creates tokens of this installation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.auth.jwks import FileKeySource, KeySource, RemoteKeySource, StaticKeySource, verify_signature
from gnomon.adapters.auth.jwt import JwtAuthenticator, TrustedIssuer, UnverifiedJwtAuthenticator
from gnomon.adapters.auth.local_key import (
    LOCAL_ALGORITHM,
    LOCAL_ISSUER,
    LocalKey,
    existing_key,
    local_key,
    read_or_create,
    read_private_file,
    replace_file,
)
from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.config.sections import ASYMMETRIC_ALGORITHMS, AuthSettings
from gnomon.config.settings import Settings
from gnomon.core.auth import ClaimRules, ParsedToken, parse_token, verify_claims
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.model import DAY_MS
from gnomon.errors import FieldError, TokenRefused, UsageError
from gnomon.ports.auth import Role, TokenAuthenticator
from gnomon.ports.runtime import Clock, Events

#: The path under which issuers publish their keys.
_WELL_KNOWN = "/.well-known/jwks.json"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_ADMIN = "local-admin"
_ADMIN_MS = 365 * DAY_MS
_LONGEST_SUBJECT = 255
_LARGEST_TOKEN = 65_536
#: The rules for tokens of this installation.
_OUR_RULES = ClaimRules(issuer=LOCAL_ISSUER, roles=frozenset(Role), skew_ms=0)


class TokenVerifier(TokenAuthenticator, Protocol):
    """An authenticator of tokens that has to be closed."""

    async def close(self) -> None:
        """Close every connection."""
        ...


class LocalAccess(Struct, frozen=True, kw_only=True):
    """A token of this installation for the owner of its files."""

    token_file: Path
    key_file: Path
    subject: str = _ADMIN
    role: Role = Role.ADMIN

    def hint(self, address: str) -> str:
        """A command that uses the token."""
        return f'curl -H "Authorization: Bearer $(cat {self.token_file})" {address}/v1/jobs'


# ---- checking ------------------------------------------------------------------------------------


def open_token_verifier(
    settings: Settings, *, clock: Clock | None = None, events: Events | None = None
) -> TokenVerifier:
    """The verifier that the settings describe; FieldError if they contradict each other."""
    auth = settings.auth
    clock, events = clock or SystemClock(), events or LoggedEvents()
    algorithms = _algorithms(auth)
    if not auth.verify_tokens:
        if not auth.accept_unverified:
            reason = "accepts tokens that anyone can forge; if that is intended, also set accept_unverified: true"
            raise FieldError("auth.verify_tokens", False, reason)
        return UnverifiedJwtAuthenticator(_rules(auth, ""), clock, algorithms=algorithms, largest=auth.max_token_bytes)
    issuers = []
    external = _issuer_keys(auth, clock, events)
    if external is not None:
        rules = _rules(auth, auth.issuer or auth.iam_url)
        issuers.append(TrustedIssuer(keys=external, rules=rules, algorithms=algorithms))
    path = key_path(settings)
    if path is not None:
        issuers.append(_local_issuer(auth, local_key(path)))
    if not issuers:
        reason = (
            "is empty: without a database file beside which a key could be, say who issues tokens, or auth.key_file"
        )
        raise FieldError("auth.iam_url", "", reason)
    return JwtAuthenticator(issuers, clock, largest=auth.max_token_bytes)


def _algorithms(auth: AuthSettings) -> frozenset[str]:
    for name in auth.algorithms:
        if name not in ASYMMETRIC_ALGORITHMS:
            raise FieldError("auth.algorithms", name, f"is none of {', '.join(sorted(ASYMMETRIC_ALGORITHMS))}")
    if not auth.algorithms:
        raise FieldError("auth.algorithms", "", "is empty, so that no token could be taken")
    return frozenset(auth.algorithms)


def _rules(auth: AuthSettings, issuer: str) -> ClaimRules:
    return ClaimRules(
        issuer=issuer,
        audience=frozenset(auth.audience),
        skew_ms=auth.clock_skew_ms,
        roles_claim=auth.roles_claim,
        tenant_claim=auth.tenant_claim,
        require_tenant=auth.require_tenant,
        roles=frozenset(Role),
    )


def _issuer_keys(auth: AuthSettings, clock: Clock, events: Events) -> KeySource | None:
    """The keys of the external issuer; None if there is none."""
    if auth.jwks_file:
        if auth.jwks_url:
            raise FieldError("auth.jwks_file", auth.jwks_file, "is set together with jwks_url: use only one of them")
        return FileKeySource(Path(auth.jwks_file), auth, clock, events)
    url = auth.jwks_url or (auth.iam_url and auth.iam_url.rstrip("/") + _WELL_KNOWN)
    if not url:
        return None
    field = "auth.jwks_url" if auth.jwks_url else "auth.iam_url"
    if not (auth.issuer or auth.iam_url):
        raise FieldError("auth.issuer", "", "is missing: keys at an address prove nothing about any other issuer")
    _check_address(field, url, auth)
    return RemoteKeySource(url, auth, clock, events)


def _check_address(field: str, url: str, auth: AuthSettings) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise FieldError(field, "[hidden]", "is no address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise FieldError(field, "[hidden]", "is no address that begins with https://")
    if parts.scheme == "http" and host not in _THIS_MACHINE and not auth.allow_http:
        reason = (
            "has no TLS, so that anyone on the network could replace the keys; use https, or set auth.allow_http: true"
        )
        raise FieldError(field, "[hidden]", reason)


def _local_issuer(auth: AuthSettings, key: LocalKey) -> TrustedIssuer:
    """The issuer of local tokens. Names of claims that the settings define are for the external issuer only."""
    rules = replace(_OUR_RULES, skew_ms=auth.clock_skew_ms)
    return TrustedIssuer(keys=StaticKeySource(key.ring()), rules=rules, algorithms=frozenset([LOCAL_ALGORITHM]))


# ---- local tokens --------------------------------------------------------------------------------


def key_path(settings: Settings) -> Path | None:
    """The file of the key for local tokens. With an external issuer there is one only if the settings name it."""
    auth = settings.auth
    if auth.key_file:
        return Path(auth.key_file)
    database = sqlite_path(settings.database.url)
    if database is None or auth.iam_url or auth.jwks_url or auth.jwks_file:
        return None
    return Path(f"{database}.key")


def ensure_local_access(settings: Settings, *, clock: Clock | None = None) -> LocalAccess | None:
    """A key and an admin token in files that only their owner can read, created if missing; None without local tokens.

    The token is renewed after half of its lifetime, so that the token of a running installation does not expire.
    """
    path = key_path(settings)
    if path is None:
        return None
    now = (clock or SystemClock()).now()
    key = local_key(path)
    access = LocalAccess(token_file=_token_path(path), key_file=path)
    fresh = key.signed(_token_claims(_ADMIN, Role.ADMIN, "default", now=now, lasts_ms=_ADMIN_MS)) + "\n"
    if not _token_valid_at(key, read_or_create(access.token_file, lambda: fresh), at=now + _ADMIN_MS // 2):
        replace_file(access.token_file, fresh)
    return access


def _token_valid_at(key: LocalKey, token: str, *, at: int) -> bool:
    try:
        found = parse_token(token.strip(), algorithms=[LOCAL_ALGORITHM], largest=_LARGEST_TOKEN)
        return _signed_by(key, found) and verify_claims(found.claims, _OUR_RULES, now=at).subject == _ADMIN
    except TokenRefused:
        return False


def _signed_by(key: LocalKey, found: ParsedToken) -> bool:
    public = key.ring().find_key(found.kid, found.algorithm)
    return public is not None and verify_signature(public, found.algorithm, found.signed, found.signature)


def new_token(
    settings: Settings, role: Role, *, subject: str, tenant: str, lasts_ms: int, clock: Clock | None = None
) -> str:
    """A token for a subject, signed with the key of this installation, which is created if missing."""
    path = key_path(settings)
    if path is None:
        raise UsageError("tokens come from the configured issuer; to make some here, name a key with auth.key_file")
    if not printable("subject", subject, longest=_LONGEST_SUBJECT).strip():
        raise FieldError("subject", subject, "is empty")
    schedule_name("tenant", tenant)
    now = (clock or SystemClock()).now()
    return local_key(path).signed(_token_claims(subject, role, tenant, now=now, lasts_ms=lasts_ms))


def _token_claims(subject: str, role: Role, tenant: str, *, now: int, lasts_ms: int) -> Mapping[str, Any]:
    return {
        "iss": LOCAL_ISSUER,
        "sub": subject,
        "roles": [role.value],
        "tenant": tenant,
        "iat": now // 1000,
        "exp": (now + lasts_ms) // 1000,
    }


class TokenInspection(Struct, frozen=True, kw_only=True):
    """The content of a token without its signature."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]
    #: Whether the key of this installation has signed it; None if there is no key.
    ours: bool | None
    #: Why it would be refused, as far as that is known here; empty if it would not.
    refused: str


def inspect_token(settings: Settings, token: str, *, clock: Clock | None = None) -> TokenInspection:
    """The content of the token; TokenRefused if it cannot be decoded."""
    now = (clock or SystemClock()).now()
    found = parse_token(token, algorithms=ASYMMETRIC_ALGORITHMS, largest=settings.auth.max_token_bytes)
    path = key_path(settings)
    key = None if path is None else existing_key(path)
    ours = None if key is None else _signed_by(key, found)
    auth, local = settings.auth, found.claims.get("iss") == LOCAL_ISSUER
    external = not local and (auth.issuer or auth.iam_url or auth.jwks_file)
    rules = _rules(auth, auth.issuer or auth.iam_url) if external else _OUR_RULES
    try:
        verify_claims(found.claims, rules, now=now)
        refused = "its signature is not this installation's" if local and ours is False else ""
    except TokenRefused as error:
        refused = error.reason
    return TokenInspection(algorithm=found.algorithm, kid=found.kid, claims=found.claims, ours=ours, refused=refused)


def read_local_token(settings: Settings) -> str | None:
    """The admin token of this installation, if there is one that this user can read."""
    path = key_path(settings)
    found = None if path is None else read_private_file(_token_path(path))
    return None if found is None else found.strip()


def _token_path(key: Path) -> Path:
    return key.with_name(f"{key.name.removesuffix('.key')}.token")
