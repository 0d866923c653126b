"""Who may try first: named permissions that end by themselves.

A lease saves work and waiting; it never makes anything correct. Whoever keeps them may lose all of them at any moment,
and then two may believe that they hold the same one. What must not be done twice is fenced by the store.
"""

from typing import Protocol


class Leases(Protocol):
    """Every method is one atomic step at whoever keeps them, and Unavailable if they do not answer.

    Keys and owners are printable texts of 1 to 200 characters, and a lease lasts from a second to a day: FieldError
    for anything else. It may last for up to a second longer than was asked for, never for less.
    """

    #: Whether a token is higher than all before it of the same key, as long as nothing was lost.
    ordered: bool

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """The token by which we alone hold the lease from now on; None if somebody has it, ourselves included.

        If the answer is lost, the lease ends by itself.
        """
        ...

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """The token by which it is held from now on, for so long again; None if it is held no longer, or by others."""
        ...

    async def release(self, key: str, token: int) -> bool:
        """It is free, if it was held by that token; otherwise nothing is changed, and the answer is False."""
        ...
