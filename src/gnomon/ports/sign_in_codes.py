"""Codes that sign a browser in once. Every method is one transaction, which also writes the audit entries."""

from typing import Protocol

from msgspec import Struct

from gnomon.ports.auth import Caller


class SignInCode(Struct, frozen=True, kw_only=True):
    """A code that was issued to a caller: the store keeps a digest of it only."""

    digest: str
    #: The session of the browser is of this caller.
    caller: Caller
    expires_at: int


class SignInCodes(Protocol):
    """The codes that have been issued and not been used."""

    async def issue(self, code: SignInCode, *, actor: str, now: int) -> None:
        """Keep a code instead of the one that the caller had before. Expired codes of all callers are deleted."""
        ...

    async def take(self, digest: str, *, now: int) -> Caller | None:
        """Delete the code with that digest and return its caller; None if there is none, or if it has expired."""
        ...
