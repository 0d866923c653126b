"""Where ticks are decided.

Every method is one transaction. Whether a tick is due is never read off the store's clock: time comes in.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

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
