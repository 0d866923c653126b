"""Looking whether what must hold does, and mending it where that is safe. Every method is one transaction."""

from collections.abc import Collection, Sequence
from typing import Protocol

from gnomon.core.invariants import Counted, Orphan, Overdue
from gnomon.core.model import Schedule, ScheduleUid


class Vitals(Protocol):
    """What the warden needs."""

    async def idle_schedules(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """Schedules by uid that have times to fire at, are not paused, and have no next fire."""
        ...

    async def give_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """Let the schedule fire next at an instant, if it is still as it was read."""
        ...

    async def orphans(self, *, grace_ms: int, limit: int) -> Sequence[Orphan]:
        """Attempts whose leases ended longer ago than the grace. By the store's clock."""
        ...

    async def oldest_due(self) -> Overdue | None:
        """The schedule whose next fire is the earliest."""
        ...

    async def counted(self, *, after: str, limit: int) -> Sequence[Counted]:
        """Schedules by uid, with their runs."""
        ...

    async def recount(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """The runs of these schedules are counted as they are, and whose turn it is then goes on.

        Those that were counted wrongly come back.
        """
        ...
