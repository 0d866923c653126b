"""Maintenance of a store: retention, singleton leases, repair of stuck runs, invariants and statistics.

Every method of a store's part is one transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gnomon.core.invariants import OrphanedAttempt, OverdueSchedule, RunCountCheck, StuckReason
from gnomon.core.model import RunId, Schedule, ScheduleUid
from gnomon.core.named_breakers import NO_TENANT, BreakerKey
from gnomon.core.retention import RetainedSchedule, RetentionHorizons
from gnomon.core.runs.states import TaskState

#: A position in a walk through history: an instant, and the name of the last record seen there.
RetentionPosition = tuple[int, str]
HISTORY_START: RetentionPosition = (-(1 << 62), "")


class RetentionKind(StrEnum):
    """The kinds of records that expire."""

    RUNS = "runs"
    TICKS = "ticks"
    EVENTS = "events"
    DEAD_LETTERS = "dead_letters"
    SCHEDULES = "schedules"
    BACKFILLS = "backfills"
    WORKFLOWS = "workflows"


class ArchiveRecord(Struct, frozen=True):
    """One row of an archive."""

    #: The table that it came from.
    table: str
    row: Mapping[str, Any]
    #: The instant whose day selects the archive file.
    at: int


class RetentionBatch(Struct, frozen=True, kw_only=True):
    """Expired records, and the position at which to look for more; None if that was all."""

    kind: RetentionKind
    #: The names of the records, or the planned times of the ticks of one schedule; of workflows tenant, id and version.
    names: tuple[Any, ...] = ()
    uid: ScheduleUid | None = None
    records: Sequence[ArchiveRecord] = ()
    after: RetentionPosition | None = None


class RetentionStore(Protocol):
    """Finding and removing expired records. A batch has about `limit` rows at most."""

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """Schedules by uid, including deleted ones."""
        ...

    async def tenants(self) -> Sequence[str]:
        """The tenants that have events or dead letters."""
        ...

    async def expired_runs(
        self, schedule: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Expired runs, with all their records and the runs that their steps waited for.

        With None as schedule, runs that have no schedule.
        """
        ...

    async def expired_ticks(
        self, schedule: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Expired ticks."""
        ...

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Expired events."""
        ...

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """Expired dead letters."""
        ...

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """A deleted schedule that has no other records left, with its revisions and pauses."""
        ...

    async def remove(self, batch: RetentionBatch, *, limit: int) -> bool:
        """Delete about `limit` rows of the batch. False while some are left."""
        ...


#: A version of a workflow: tenant, id and version.
WorkflowVersion = tuple[str, str, int]


class VersionsOfRuns(Struct, frozen=True):
    """The versions of workflows that a page of runs has, and the last run of the page; None if that was all."""

    versions: frozenset[WorkflowVersion]
    after: RunId | None


class ExpiredDefinitions(Protocol):
    """Finding backfills that ended long ago, and versions of workflows that nothing needs."""

    async def expired_backfills(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """Backfills that ended before the instant, none of whose runs exists any more, with their ticks."""
        ...

    async def superseded_workflows(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """Versions that were followed by another before the instant, and that no schedule and open backfill needs.

        Runs may still need them. The batch has one archive record for each name, in the same order.
        """
        ...

    async def versions_of_runs(self, *, after: RunId, limit: int) -> VersionsOfRuns:
        """The versions of workflows of the next `limit` runs by id."""
        ...


class RetainedHistory(RetentionStore, ExpiredDefinitions, Protocol):
    """Everything that the cleaner asks of a store."""


class Archive(Protocol):
    """Storage for records before they are removed."""

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """Write the records durably, so that they survive a power cut. Idempotent."""
        ...


class SingletonLeases(Protocol):
    """Leases for services of which one node at a time runs one."""

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """Acquire or renew the lease for `ttl_ms`. False if another holder has it, by the store's clock."""
        ...

    async def release_singletons(self, holder: str) -> None:
        """Release every lease of the holder."""
        ...


#: A position in a walk through open runs: a schedule, none first, and a planned time.
OpenRunPosition = tuple[str, int]
FIRST_OPEN_RUN: OpenRunPosition = ("", -(1 << 62))


class StuckRunsPage(Struct, frozen=True):
    """The stuck ones of a page of open runs, and the position at which to look for more; None if that was all."""

    runs: Mapping[RunId, StuckReason]
    after: OpenRunPosition | None


class StuckRuns(Protocol):
    """Finding and repairing runs that wait for something that cannot happen."""

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """The stuck ones among about `limit` open runs that were created before an instant."""
        ...

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """Repair the runs that are still stuck; return those."""
        ...


class JobStats(Struct, frozen=True, kw_only=True):
    """The state of a job that gauges show."""

    uid: ScheduleUid
    job: str
    next_fire_at: int | None
    #: An active run excludes others.
    locked: bool


#: Among so many of the newest runs of a schedule its last success is looked for.
NEWEST_RUNS = 20
#: So many waiting tasks are counted at most: the statistics are read every second.
MAX_COUNTED_TASKS = 100_000
#: So many breakers are named at most.
MAX_NAMED_BREAKERS = 10
#: So many waiting approvals are counted at most: people take days, and counting them must cost nothing meanwhile.
MAX_COUNTED_APPROVALS = 1_000


class StoreStats(Struct, frozen=True, kw_only=True):
    """Counts and ages of what a store holds."""

    #: The store's clock.
    store_at: int
    schema: int
    jobs: int
    #: Schedules whose next fire is due and not decided, since when, and how many are overdue.
    due: int
    oldest_due_at: int | None
    overdue: int
    #: The time since which the oldest task that is due has waited: to be admitted, for a route, or for a worker.
    ready_since_at: int | None
    #: Tasks that a worker may take.
    scheduled: int = 0
    #: Tasks that no worker can take, since when the oldest of them waits, and why.
    unroutable: int = 0
    unroutable_since_at: int | None = None
    unroutable_reason: str = ""
    #: By state, tasks that should have been handled: ready for long, or with an attempt whose lease has ended.
    stale: Mapping[TaskState, int] = {}
    workers: int
    #: Shards whose leases have not expired, and the number of nodes that hold them.
    shards: int
    holders: int
    unresolved: int
    #: Announcements that are to be sent.
    unannounced: int = 0
    #: Runs that are being rolled back.
    rolling_back: int = 0
    #: Approvals that wait for votes.
    approvals_waiting: int = 0
    #: The first jobs by name.
    job_stats: tuple[JobStats, ...] = ()


class HeldTasks(Struct, frozen=True, kw_only=True):
    """Tasks that the policy or a breaker holds back."""

    #: Those that wait for votes, that the policy puts off, and that wait for breakers.
    to_approve: int = 0
    put_off: int = 0
    by_breakers: int = 0
    #: Why the one that is asked about next was put off.
    reason: str = ""
    #: The breakers that are not closed, with their tenants unless that is the default one.
    breakers: tuple[str, ...] = ()


def shown_breaker(key: BreakerKey) -> str:
    """The name of a breaker, with its tenant unless that is the default one."""
    return key.name if key.tenant in (NO_TENANT, "default") else f"{key.tenant}/{key.name}"


class MarksAhead(Struct, frozen=True):
    """Schedules that decide nothing until the clock has passed their marks."""

    count: int
    #: The farthest of the marks.
    farthest_at: int | None = None


class StoreStatsReader(Protocol):
    """Statistics of a store, read from its indexes."""

    async def read(self, now: int, *, overdue_before: int, max_jobs: int, stale_before: int = 0) -> StoreStats:
        """The statistics, with at most `max_jobs` jobs in detail. Tasks ready since `stale_before` are stale."""
        ...

    async def marks_ahead(self) -> MarksAhead:
        """The schedules whose marks are ahead of the store's clock. It reads every schedule."""
        ...

    async def held_tasks(self) -> HeldTasks:
        """The tasks that the policy or a breaker holds back."""
        ...

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """The steps of the runs that have several, each with its state. Items are not steps."""
        ...

    async def last_successes(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """When the last successful run of each schedule ended, for those with a success among their newest runs."""
        ...


class InvariantChecks(Protocol):
    """Finding and repairing violations of the invariants of a store."""

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """Schedules by uid that fire by time, are not paused, and have no next fire."""
        ...

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """Set the next fire of the schedule, if it is still as it was read."""
        ...

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """Open attempts whose leases expired longer ago than the grace, by the store's clock."""
        ...

    async def oldest_due(self) -> OverdueSchedule | None:
        """The schedule with the earliest next fire."""
        ...

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """Schedules by uid, with the recorded and the actual number of their runs."""
        ...

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """Correct the run counts of these schedules and release queued runs that now may start.

        Return the schedules whose counts were wrong.
        """
        ...
