"""Issued and revoked tokens."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gnomon.core.model import DAY_MS, MINUTE_MS

#: Stands for every tenant in a revocation by the owner of the installation.
EVERY_TENANT = "*"
#: How long the record of a token is kept after its end. Servers accept a token some minutes longer, as clocks differ;
#: and a clock that was ahead for days must not bring revoked tokens back.
KEPT_AFTER_END_MS = 30 * DAY_MS
#: A revocation of all tokens that reaches further ahead than this was made by a clock that was wrong. Another one
#: replaces it, since no token would be accepted until then.
LARGEST_CLOCK_ERROR_MS = 60 * MINUTE_MS
#: A stamp has the sum of the instants of revocations, modulo this for each: a sum of all bits could overflow.
STAMP_MODULUS = 1_000_000_007


class TokenRecord(Struct, frozen=True, kw_only=True):
    """A token that was issued here, or one of another issuer that was revoked here. The token itself is not stored."""

    #: The tenant that it is valid for; EVERY_TENANT if that is not known.
    tenant: str
    token_id: str
    #: Empty for a token of another issuer.
    subject: str = ""
    role: str = ""
    issued_at: int | None = None
    issued_by: str = ""
    #: When the record may be forgotten, because the token is refused anyway.
    expires_at: int
    revoked_at: int | None = None
    revoked_by: str = ""

    @property
    def is_issued_here(self) -> bool:
        """Whether it was issued here, so that its tenant is known."""
        return bool(self.issued_by)


def must_be_added(record: TokenRecord, known: Sequence[TokenRecord]) -> bool:
    """Whether a record to revoke has to be stored beside the known ones of the same id.

    A token that was not issued here may be valid in any tenant, also if one tenant has revoked that id for itself.
    """
    if record.tenant != EVERY_TENANT:
        return not known
    return not any(one.is_issued_here or one.tenant == EVERY_TENANT for one in known)


class RevokedTokens(Struct, frozen=True):
    """The tokens that are refused although their claims are valid."""

    #: Tenant and token id.
    ids: frozenset[tuple[str, str]] = frozenset()
    #: By tenant: tokens that were issued before this instant are revoked.
    issued_before: Mapping[str, int] = {}

    def revokes(self, tenant: str, token_id: str, issued_at: int | None) -> bool:
        """Whether the token is revoked. After a revocation of all, a token must say when it was issued."""
        for scope in (tenant, EVERY_TENANT):
            cutoff = self.issued_before.get(scope)
            if (scope, token_id) in self.ids or (cutoff is not None and (issued_at is None or issued_at < cutoff)):
                return True
        return False
