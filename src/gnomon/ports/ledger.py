"""The ledger of ticks, and the shards that divide it among nodes.

Every method is one transaction. The caller passes the time by which it planned. The store compares it with its own
clock when it writes, so that a node whose clock is ahead decides nothing before its time.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Schedule, ScheduleUid, TickVerdict

#: Shard to the term under which its decisions are written.
Terms = Mapping[int, int]


class Ledger(Protocol):
    """Due schedules, and the decisions on their ticks."""

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """Schedules of these shards whose next fire is at or before `now`, earliest first, then by uid."""
        ...

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """The earliest next fire among the schedules of these shards."""
        ...

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """Carry out every verdict whose schedule is still as it was read; return the uids of those schedules.

        A verdict's ticks, runs and tasks, and the schedule's new mark, are written together or not at all.
        StaleTerm, and nothing is written, if the term of any schedule's shard is no longer the one in `terms`.
        ClockAhead, and nothing is written, if `now` is later than the time by the store's clock.
        """
        ...

    async def set_back_marks(self, *, terms: Terms, limit: int) -> Sequence[Schedule]:
        """Set back up to `limit` marks that are ahead of the store's clock; return the corrected schedules.

        Only in the shards of `terms`. The `mark_correction` of a schedule keeps its former mark, and the audit trail
        has an entry. StaleTerm as for `decide`.
        """
        ...


class ShardRenewal(Struct, frozen=True):
    """The answer to a node that renews its shards."""

    #: All shards that it holds, with their leases extended.
    terms: Terms
    #: The number of nodes that are alive, including itself.
    nodes: int
    #: The store's clock.
    now: int
    #: When the first lease of another node ends unless renewed; None if no other node has one.
    others_end_at: int | None = None


class Shards(Protocol):
    """The leases by which nodes divide the schedules."""

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """Record that `holder` is alive, and extend the leases of all shards that it still holds.

        That includes shards that it claimed without receiving the answer: no other node has its name.
        """
        ...

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """Take up to `limit` shards that are free or whose lease has expired, each under a higher term than before.

        `by_force` also takes held shards and forgets every other node: for a caller that knows it is the only node.
        """
        ...

    async def leave(self, holder: str) -> None:
        """Release every shard and stop being counted as alive."""
        ...

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """Release shards before their leases expire; shards of another node are unaffected."""
        ...
