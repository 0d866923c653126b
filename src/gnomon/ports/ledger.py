"""Where ticks are decided.

Every method is one transaction. Whether a tick is due is never read off the store's clock: time comes in.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Schedule, ScheduleUid, Verdict

#: Shard to the term under which its decisions are written.
Terms = Mapping[int, int]


class Ledger(Protocol):
    """What the ticker needs: what is due, and a place to write down what becomes of it."""

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """Schedules of these shards whose next fire is at or before `now`, earliest first, then by uid."""
        ...

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """The earliest next fire among the schedules of these shards."""
        ...

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """Carry out every verdict whose schedule is still as it was read; their uids come back.

        A verdict's ticks, runs and tasks, and the schedule's new mark, are written together or not at all.
        StaleTerm, and nothing is written, if the term of any schedule's shard is no longer the one in `terms`.
        """
        ...


class ShardRenewal(Struct, frozen=True):
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

    async def renew_shards(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
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
