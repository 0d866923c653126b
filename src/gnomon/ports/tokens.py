"""Issued tokens and their revocation. Every method is one transaction, which also writes the audit entries."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.tokens import RevokedTokens, TokenRecord


class Tokens(Protocol):
    """The tokens that were issued here, and those that are revoked."""

    async def add(self, record: TokenRecord, *, now: int) -> bool:
        """Record an issued token; return whether it is new."""
        ...

    async def page(self, tenant: str, *, before: str | None, limit: int, now: int) -> Sequence[TokenRecord]:
        """Records of a tenant, or of all for EVERY_TENANT, that have not expired: newest id first, before that id."""
        ...

    async def revoke(self, record: TokenRecord, *, now: int) -> bool:
        """Revoke a token by its id, as `revoked_by` says; return whether it was not revoked before.

        A record that is stored keeps what it says. One of EVERY_TENANT revokes the token in the tenant that it was
        issued for, or in all of them if it was not issued here.
        """
        ...

    async def revoke_all(self, tenant: str, *, issued_before: int, actor: str, now: int) -> None:
        """Revoke the tokens of a tenant, or of EVERY_TENANT, that were issued before that instant.

        An earlier call that revoked more still counts, unless it reached further than LARGEST_CLOCK_ERROR_MS after now.
        """
        ...

    async def count_revoked(self, tenant: str) -> int:
        """The number of tokens that are revoked one by one in this tenant."""
        ...

    async def stamp(self) -> tuple[int, ...]:
        """A value that changes with every revocation; cheap to read."""
        ...

    async def revoked(self) -> RevokedTokens:
        """All revocations."""
        ...
