"""Who decides which schedules: terms for the virtual shards.

The store issues terms and judges by its own clock alone whether a lease is over. A node's own clock may only
end its trust sooner.
"""

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from gnomon.ports.ledger import Terms


class Attendance(Struct, frozen=True):
    """What a node learns when it shows that it is alive."""

    #: Everything it holds, the leases extended.
    terms: Terms
    #: How many nodes are alive, itself included.
    nodes: int
    #: The store's clock.
    now: int
    #: When the first lease of anybody else ends if it is not renewed; None if nobody else has one.
    others_end_at: int | None = None


class Shards(Protocol):
    """Every method is one transaction."""

    async def attend(self, holder: str, *, ttl_ms: int) -> Attendance:
        """Show that `holder` is alive, and extend the leases of everything it still holds.

        Also of what it claimed without hearing the answer: its name is nobody else's.
        """
        ...

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """Take up to `limit` shards that are free or whose lease is over, each under a term above all before.

        `by_force` takes others, too, and forgets every other node: for a caller who knows that nobody else is alive.
        """
        ...

    async def leave(self, holder: str) -> None:
        """Give every shard up and be no longer counted among the living."""
        ...

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """Give shards up early; does nothing to those held by another."""
        ...
