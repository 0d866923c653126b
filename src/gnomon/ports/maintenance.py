"""What is kept for how long: finding what may go, keeping it elsewhere, letting it go. And whose turn that is."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gnomon.core.invariants import OrphanedAttempt, OverdueSchedule, RunCountCheck, StuckReason
from gnomon.core.model import RunId, Schedule, ScheduleUid
from gnomon.core.retention import RetainedSchedule, RetentionHorizons

#: Where a walk through history goes on: an instant, and the name of the last one seen there.
RetentionPosition = tuple[int, str]
HISTORY_START: RetentionPosition = (-(1 << 62), "")


class RetentionKind(StrEnum):
    """What may go."""

    RUNS = "runs"
    TICKS = "ticks"
    EVENTS = "events"
    DEAD_LETTERS = "dead_letters"
    SCHEDULES = "schedules"


class ArchiveRecord(Struct, frozen=True):
    """One row as it stands in an archive."""

    #: The table that it stood in.
    table: str
    row: Mapping[str, Any]
    #: The instant by whose day it is archived.
    at: int


class RetentionBatch(Struct, frozen=True, kw_only=True):
    """Some of what may go, and where to look for more; None if that was all."""

    kind: RetentionKind
    #: What goes: names, or planned times of the ticks of one schedule.
    names: tuple[Any, ...] = ()
    uid: ScheduleUid | None = None
    records: Sequence[ArchiveRecord] = ()
    after: RetentionPosition | None = None


class RetentionStore(Protocol):
    """What the cleaner needs of a store. Every method is one transaction; a lot is at most about `limit` rows."""

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """Schedules by uid, also those that were deleted."""
        ...

    async def tenants(self) -> Sequence[str]:
        """Whose events and dead letters there are."""
        ...

    async def expired_runs(
        self, past: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Runs that may go, with all that belongs to them, and the runs that they waited for.

        Without a past, those of no schedule.
        """
        ...

    async def expired_ticks(
        self, past: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Ticks that may go."""
        ...

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Events that may go."""
        ...

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Dead letters that may go."""
        ...

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """A schedule of which nothing else is left, with its revisions and pauses."""
        ...

    async def remove(self, lot: RetentionBatch, *, limit: int) -> bool:
        """Let about `limit` rows of the lot go. False while there is more of it."""
        ...


class Archive(Protocol):
    """Where records are kept before they are removed."""

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """All of them can be read again, also after a power cut. Keeping the same ones twice is the same as once."""
        ...


class SingletonLeases(Protocol):
    """Which of several nodes does what one is enough for."""

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """Whether it is the holder's turn, for so long; nobody else's then. By the clock of whoever keeps them."""
        ...

    async def release_singletons(self, holder: str) -> None:
        """Every turn of the holder's is over."""
        ...


#: Where a walk through the runs that are not over goes on: a schedule, none first, and a planned time.
OpenRunPosition = tuple[str, int]
FIRST_OPEN_RUN: OpenRunPosition = ("", -(1 << 62))


class StuckRunsPage(Struct, frozen=True):
    """Runs that wait in vain, among some that are not over; and where to look for more, if there are any."""

    runs: Mapping[RunId, StuckReason]
    after: OpenRunPosition | None


class StuckRuns(Protocol):
    """What the mender needs."""

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """Look at about so many runs that are not over and were made before an instant."""
        ...

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """Let every one of them go on that still waits in vain; these come back."""
        ...


class JobStats(Struct, frozen=True, kw_only=True):
    """A job, as far as gauges show it."""

    job: str
    next_fire_at: int | None
    #: One of its runs excludes others.
    locked: bool


class StoreStats(Struct, frozen=True, kw_only=True):
    """How things stand."""

    #: The store's clock.
    store_at: int
    schema: int
    jobs: int
    #: Schedules whose fire is due and not decided, since when, and how many have been for too long.
    due: int
    oldest_due_at: int | None
    overdue: int
    #: Since when the oldest task has waited for a worker.
    ready_since_at: int | None
    workers: int
    #: Shards whose leases are not over, and how many hold them.
    shards: int
    holders: int
    unresolved: int
    #: The first jobs by name.
    cards: tuple[JobStats, ...] = ()


class StoreStatsReader(Protocol):
    """Reads only, and of each table no more than an index gives away."""

    async def survey(self, now: int, *, overdue_before: int, cards: int) -> StoreStats:
        """How things stand, with so many jobs in detail."""
        ...

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """The steps of runs that have several, each with its state. Items are not steps."""
        ...


class InvariantChecks(Protocol):
    """What the warden needs."""

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """Schedules by uid that have times to fire at, are not paused, and have no next fire."""
        ...

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """Let the schedule fire next at an instant, if it is still as it was read."""
        ...

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """Attempts whose leases ended longer ago than the grace. By the store's clock."""
        ...

    async def oldest_due(self) -> OverdueSchedule | None:
        """The schedule whose next fire is the earliest."""
        ...

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """Schedules by uid, with their runs."""
        ...

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """The runs of these schedules are counted as they are, and whose turn it is then goes on.

        Those that were counted wrongly come back.
        """
        ...
