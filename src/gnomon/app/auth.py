"""Authentication: builds the verifier of tokens, and creates tokens of this installation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.auth.checkpoint_file import CheckpointFile
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
from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.http_client import configured_client
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.config.sections import ASYMMETRIC_ALGORITHMS, AuthSettings
from gnomon.config.settings import Settings
from gnomon.core.auth import ClaimRules, ParsedToken, parse_token, revocation_id, verify_claims
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.model import DAY_MS
from gnomon.core.pings import is_http_url
from gnomon.core.tokens import RevokedTokens, TokenRecord
from gnomon.errors import FieldError, FileError, Refused, TokenRefused, UsageError
from gnomon.ports.auth import Caller, Role, SessionToken, SessionTokens, TokenAuthenticator
from gnomon.ports.runtime import Clock, Events
from gnomon.services.maintenance.audit_sealer import CheckpointSigner

#: The path under which issuers publish their keys.
_WELL_KNOWN = "/.well-known/jwks.json"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_ADMIN = "local-admin"
_ADMIN_MS = 365 * DAY_MS
_LONGEST_SUBJECT = 255
_LARGEST_TOKEN = 65_536
#: How long a session in a browser lasts at most, and the longest cookie that every browser keeps.
_SESSION_MS = DAY_MS // 2
_LARGEST_COOKIE = 3_500


class TokenVerifier(TokenAuthenticator, Protocol):
    """An authenticator of tokens that has to be closed."""

    async def close(self) -> None:
        """Close every connection."""
        ...


class LocalAccess(Struct, frozen=True, kw_only=True):
    """A token of this installation for the owner of its files."""

    token_file: Path
    key_file: Path
    record: TokenRecord

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
        _require_audience(auth)
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


def _require_audience(auth: AuthSettings) -> None:
    if not any(auth.audience):
        reason = (
            "is empty: tokens that the issuer makes for other services would be accepted; name the audience that it"
            " puts into tokens for this one"
        )
        raise FieldError("auth.audience", "", reason)


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
        max_lifetime_ms=auth.max_lifetime_ms,
        roles_claim=auth.roles_claim,
        groups_claim=auth.groups_claim,
        tenant_claim=auth.tenant_claim,
        require_tenant=auth.require_tenant,
        roles=frozenset(Role),
    )


def _our_rules(auth: AuthSettings) -> ClaimRules:
    """The rules for tokens of this installation, by its own clock."""
    return ClaimRules(issuer=LOCAL_ISSUER, roles=frozenset(Role), skew_ms=0, max_lifetime_ms=auth.max_lifetime_ms)


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
    return RemoteKeySource(url, auth, clock, events, client=configured_client())


def _check_address(field: str, url: str, auth: AuthSettings) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise FieldError(field, "[hidden]", "is no address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise FieldError(field, "[hidden]", "is no address that begins with https://")
    if not is_http_url(url):
        raise FieldError(field, "[hidden]", "has credentials, port 0, or characters that do not belong in an address")
    if parts.scheme == "http" and host not in _THIS_MACHINE and not auth.allow_http:
        reason = (
            "has no TLS, so that anyone on the network could replace the keys; use https, or set auth.allow_http: true"
        )
        raise FieldError(field, "[hidden]", reason)


def _local_issuer(auth: AuthSettings, key: LocalKey) -> TrustedIssuer:
    """The issuer of local tokens. Names of claims that the settings define are for the external issuer only."""
    rules = replace(_our_rules(auth), skew_ms=auth.clock_skew_ms)
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


def checkpoint_key_path(settings: Settings) -> Path | None:
    """The file of the key that signs the audit trail; None on a database server for which no key is named."""
    named = settings.audit.key_file or settings.auth.key_file
    database = sqlite_path(settings.database.url)
    return Path(named) if named else None if database is None else Path(f"{database}.key")


def existing_checkpoint_key(settings: Settings) -> LocalKey | None:
    """The key that verifies the audit trail, if there is one that this user can read."""
    path = checkpoint_key_path(settings)
    return None if path is None else existing_key(path)


def checkpoint_file(settings: Settings) -> CheckpointFile | None:
    """The file that keeps the newest checkpoint outside the store; None if there is none."""
    named, database = settings.audit.checkpoint_file, sqlite_path(settings.database.url)
    if named:
        return CheckpointFile(Path(named))
    return None if database is None else CheckpointFile(Path(f"{database}.checkpoint"))


def checkpoint_signer(settings: Settings, events: Events) -> CheckpointSigner | None:
    """The service that signs the audit trail; None without a key, or with one that cannot be used."""
    path = checkpoint_key_path(settings)
    if path is None:
        return None
    try:
        return CheckpointSigner(local_key(path), checkpoint_file(settings), events)
    except FileError as error:
        events.emit("audit_unsigned", error=str(error))
        return None


def ensure_local_access(
    settings: Settings, *, clock: Clock | None = None, revoked: RevokedTokens | None = None
) -> LocalAccess | None:
    """A key and an admin token in files that only their owner can read, created if missing; None without local tokens.

    The token is renewed after half of its lifetime, so that the token of a running installation does not expire, and
    if it is among the `revoked` ones.
    """
    path = key_path(settings)
    if path is None:
        return None
    now = (clock or SystemClock()).now()
    key = local_key(path)
    file = _token_path(path)
    lasts_ms = min(_ADMIN_MS, settings.auth.max_lifetime_ms)
    cutoff = 0 if revoked is None else max(revoked.issued_before.values(), default=0)
    fresh = _issue(key, Role.ADMIN, subject=_ADMIN, tenant="default", lasts_ms=lasts_ms, now=max(now, cutoff))
    kept = read_or_create(file, lambda: f"{fresh.token}\n").strip()
    record = _valid_record(settings.auth, key, kept, at=now + lasts_ms // 2)
    if record is None or (revoked is not None and _is_revoked(revoked, record)):
        replace_file(file, f"{fresh.token}\n")
        record = fresh.record
    return LocalAccess(token_file=file, key_file=path, record=record)


def _is_revoked(revoked: RevokedTokens, record: TokenRecord) -> bool:
    return revoked.revokes(record.tenant, record.token_id, record.issued_at)


def _valid_record(auth: AuthSettings, key: LocalKey, token: str, *, at: int) -> TokenRecord | None:
    """The record of the admin token; None unless it is one, and valid at that time."""
    try:
        found = parse_token(token, algorithms=[LOCAL_ALGORITHM], largest=_LARGEST_TOKEN)
        claims = verify_claims(found.claims, _our_rules(auth), now=at)
    except TokenRefused:
        return None
    # Tokens of older programs have no id: they cannot be revoked one by one.
    if not _signed_by(key, found) or claims.subject != _ADMIN or claims.token_id is None:
        return None
    return TokenRecord(
        tenant=claims.tenant,
        token_id=claims.token_id,
        subject=claims.subject,
        role=Role.ADMIN.value,
        issued_at=claims.issued_at,
        issued_by=LOCAL_ISSUER,
        expires_at=claims.expires_at,
    )


def _signed_by(key: LocalKey, found: ParsedToken) -> bool:
    public = key.ring().find_key(found.kid, found.algorithm)
    return public is not None and verify_signature(public, found.algorithm, found.signed, found.signature)


class NewToken(Struct, frozen=True):
    """A signed token, and the record of its issue."""

    token: str
    record: TokenRecord


def _no_key_reason(settings: Settings) -> str:
    """Why no token can be made here, and the remedy."""
    how = "name a file with auth.key_file (GNOMON_AUTH__KEY_FILE), the same key on every server"
    auth = settings.auth
    if auth.iam_url or auth.jwks_url or auth.jwks_file:
        return f"tokens come from the configured issuer; to make some here, {how}"
    return f"a database server has no folder for the key that signs tokens: {how}; the file is made if it is missing"


def new_token(  # noqa: PLR0913 - all that a token says
    settings: Settings,
    role: Role,
    *,
    subject: str,
    tenant: str,
    lasts_ms: int,
    groups: Sequence[str] = (),
    issued_by: str = LOCAL_ISSUER,
    clock: Clock | None = None,
) -> NewToken:
    """A token for a subject, signed with the key of this installation, which is created if missing."""
    path = key_path(settings)
    if path is None:
        raise UsageError(_no_key_reason(settings))
    if not printable("subject", subject, longest=_LONGEST_SUBJECT).strip():
        raise FieldError("subject", subject, "is empty")
    schedule_name("tenant", tenant)
    for group in groups:
        if not printable("group", group, longest=_LONGEST_SUBJECT).strip():
            raise FieldError("group", group, "is empty")
    now = (clock or SystemClock()).now()
    made = _issue(local_key(path), role, subject=subject, tenant=tenant, groups=groups, lasts_ms=lasts_ms, now=now)
    return NewToken(made.token, replace(made.record, issued_by=issued_by))


def _issue(
    key: LocalKey, role: Role, *, subject: str, tenant: str, lasts_ms: int, now: int, groups: Sequence[str] = ()
) -> NewToken:
    record = TokenRecord(
        tenant=tenant,
        token_id=RandomIds().new("tok", now),
        subject=subject,
        role=role.value,
        issued_at=now,
        issued_by=LOCAL_ISSUER,
        expires_at=(now + lasts_ms) // 1000 * 1000,
    )
    claims: dict[str, Any] = {
        "iss": LOCAL_ISSUER,
        "sub": subject,
        "jti": record.token_id,
        "roles": [role.value],
        "tenant": tenant,
        # With milliseconds, so that a token made right after a revocation of all is told from those before.
        "iat": now / 1000,
        "exp": record.expires_at // 1000,
    }
    if groups:
        claims["groups"] = sorted(set(groups))
    return NewToken(key.signed(claims), record)


class LocalSessions(SessionTokens):
    """Signs the tokens of sessions with the key of this installation."""

    def __init__(self, key: LocalKey, *, skew_ms: int) -> None:
        """Every token is accepted for `skew_ms` after its end, by clocks that are late."""
        self._key = key
        self._skew_ms = skew_ms

    def session_token(self, token: str, caller: Caller, *, now: int) -> SessionToken:
        """See SessionTokens.session_token. It has the id of the token, so that both are revoked together."""
        del token
        ends = now + _SESSION_MS if caller.expires_at is None else min(now + _SESSION_MS, caller.expires_at)
        claims: dict[str, Any] = {
            "iss": LOCAL_ISSUER,
            "sub": caller.subject,
            "jti": caller.token_id,
            "roles": sorted(caller.roles),
            "groups": sorted(caller.groups),
            "tenant": caller.tenant,
            "iat": (now if caller.issued_at is None else caller.issued_at) / 1000,
            "exp": (ends - self._skew_ms) // 1000,
        }
        return SessionToken(self._key.signed(claims), ends)


class IssuerSessions(SessionTokens):
    """Keeps the token of the issuer in the session: all its rules stay in force."""

    def session_token(self, token: str, caller: Caller, *, now: int) -> SessionToken:
        """See SessionTokens.session_token."""
        if not token:
            raise Refused(
                "sessions of this installation are tokens of its issuer: sign in with yours, or set auth.key_file, so"
                " that this installation signs sessions itself"
            )
        if len(token) > _LARGEST_COOKIE:
            raise Refused(
                f"the token has {len(token)} characters, and a browser keeps {_LARGEST_COOKIE}: set auth.key_file, so"
                " that this installation signs sessions itself"
            )
        ends = now + _SESSION_MS if caller.expires_at is None else min(now + _SESSION_MS, caller.expires_at)
        return SessionToken(token, ends)


def session_tokens(settings: Settings) -> SessionTokens:
    """The maker of session tokens: with the key of this installation if it has one."""
    path = key_path(settings)
    return IssuerSessions() if path is None else LocalSessions(local_key(path), skew_ms=settings.auth.clock_skew_ms)


class TokenInspection(Struct, frozen=True, kw_only=True):
    """The content of a token without its signature."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]
    #: The id by which it can be revoked.
    token_id: str
    #: Whether the key of this installation has signed it; None if there is no key.
    ours: bool | None
    #: Why it would be refused, as far as that is known here; empty if it would not.
    refused: str


def inspect_token(
    settings: Settings, token: str, *, clock: Clock | None = None, revoked: RevokedTokens | None = None
) -> TokenInspection:
    """The content of the token; TokenRefused if it cannot be decoded."""
    now = (clock or SystemClock()).now()
    found = parse_token(token, algorithms=ASYMMETRIC_ALGORITHMS, largest=settings.auth.max_token_bytes)
    path = key_path(settings)
    key = None if path is None else existing_key(path)
    ours = None if key is None else _signed_by(key, found)
    auth, local = settings.auth, found.claims.get("iss") == LOCAL_ISSUER
    external = not local and (auth.issuer or auth.iam_url or auth.jwks_file)
    rules = _rules(auth, auth.issuer or auth.iam_url) if external else _our_rules(auth)
    # A token that is refused here may be valid on a server with other settings: its id must be the one there.
    tenant, token_id, issued_at = "", revocation_id(found), None
    try:
        verified = verify_claims(found.claims, rules, now=now)
        tenant, issued_at = verified.tenant, verified.issued_at
        refused = "its signature is not this installation's" if local and ours is False else ""
    except TokenRefused as error:
        refused = error.reason
    if not refused and revoked is not None and revoked.revokes(tenant, token_id, issued_at):
        refused = "it was revoked"
    return TokenInspection(
        algorithm=found.algorithm,
        kid=found.kid,
        claims=found.claims,
        token_id=token_id,
        ours=ours,
        refused=refused,
    )


def read_local_token(settings: Settings) -> str | None:
    """The admin token of this installation, if there is one that this user can read."""
    path = key_path(settings)
    found = None if path is None else read_private_file(_token_path(path))
    return None if found is None else found.strip()


def _token_path(key: Path) -> Path:
    return key.with_name(f"{key.name.removesuffix('.key')}.token")
