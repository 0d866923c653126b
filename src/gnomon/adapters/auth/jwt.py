"""Bearer tokens: JSON Web Tokens, checked against the keys of their issuers."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from gnomon.adapters.auth.jwks import KeyRing, KeySource, verify_signature
from gnomon.core.auth import ClaimRules, ParsedToken, VerifiedClaims, parse_token, revocation_id, verify_claims
from gnomon.errors import RefusalReason, TokenRefused
from gnomon.ports.auth import Caller, Role
from gnomon.ports.runtime import Clock

#: How many tokens with a verified signature are cached.
_MOST_REMEMBERED = 4096


class TrustedIssuer(Struct, frozen=True, kw_only=True):
    """An issuer whose tokens are accepted."""

    keys: KeySource
    rules: ClaimRules
    algorithms: frozenset[str]


class JwtAuthenticator:
    """Accepts the tokens of several issuers, each checked with the keys of its own issuer only."""

    def __init__(self, issuers: Sequence[TrustedIssuer], clock: Clock, *, largest: int) -> None:
        self._issuers = tuple(issuers)
        self._clock = clock
        self._largest = largest
        self._algorithms = frozenset[str]().union(*(one.algorithms for one in issuers))
        #: By digest of a token, the keys that verified its signature; the entry is valid while these keys are.
        self._verified: dict[bytes, KeyRing] = {}

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller. IssuerUnavailable if the keys of its issuer cannot be fetched."""
        found = parse_token(token, algorithms=self._algorithms, largest=self._largest)
        issuer = self._issuer_of(found.claims)
        if found.algorithm not in issuer.algorithms:
            raise TokenRefused("its alg is not accepted", RefusalReason.ALGORITHM)
        ring = await issuer.keys.ring(found.kid, found.algorithm)
        self._check_signature(token, found, ring)
        return _caller(found, verify_claims(found.claims, issuer.rules, now=self._clock.now()))

    async def close(self) -> None:
        """Close the key sources."""
        for issuer in self._issuers:
            await issuer.keys.close()

    def _issuer_of(self, claims: Mapping[str, Any]) -> TrustedIssuer:
        """The issuer that the token names; an issuer that accepts any name comes last."""
        named = claims.get("iss")
        for issuer in sorted(self._issuers, key=lambda one: not one.rules.issuer):
            if issuer.rules.issuer in ("", named):
                return issuer
        raise TokenRefused("its iss is not the trusted issuer", RefusalReason.ISSUER)

    def _check_signature(self, token: str, found: ParsedToken, ring: KeyRing) -> None:
        digest = sha256(token.encode()).digest()
        if self._verified.get(digest) is ring:
            return
        key = ring.find_key(found.kid, found.algorithm)
        if key is None:
            raise TokenRefused("no key of its issuer fits it", RefusalReason.KEY)
        if not verify_signature(key, found.algorithm, found.signed, found.signature):
            raise TokenRefused("its signature is not its issuer's", RefusalReason.SIGNATURE)
        if len(self._verified) >= _MOST_REMEMBERED:
            self._verified.clear()
        self._verified[digest] = ring


class UnverifiedJwtAuthenticator:
    """Accepts every token without checking its signature. Only for trials on a private machine."""

    def __init__(self, rules: ClaimRules, clock: Clock, *, algorithms: frozenset[str], largest: int) -> None:
        self._rules = rules
        self._clock = clock
        self._algorithms = algorithms
        self._largest = largest

    async def caller(self, token: str) -> Caller:
        """See TokenAuthenticator.caller; the signature is not checked."""
        found = parse_token(token, algorithms=self._algorithms, largest=self._largest)
        return _caller(found, verify_claims(found.claims, self._rules, now=self._clock.now()))

    async def close(self) -> None:
        """Nothing to close."""


def _caller(found: ParsedToken, claims: VerifiedClaims) -> Caller:
    return Caller(
        subject=claims.subject,
        roles=frozenset(map(Role, claims.roles)),
        tenant=claims.tenant,
        expires_at=claims.expires_at,
        token_id=revocation_id(found),
        issued_at=claims.issued_at,
        groups=claims.groups,
    )
