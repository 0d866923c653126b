"""What is said to those who operate: about plans, backfills, the end of a pause, the audit trail and health."""

from datetime import datetime
from typing import Any

from gnomon.core.answers import Answer, JobDetail


class TicksSwallowed(Answer, frozen=True, kw_only=True):
    """The planned times that a pause swallowed."""

    count: int
    first_at: datetime | None
    last_at: datetime | None


class JobResumed(JobDetail, frozen=True, kw_only=True):
    """A job that goes on, and what became of its pause."""

    swallowed: TicksSwallowed
    #: How many of those run after all.
    runs: int


# ---- backfills -----------------------------------------------------------------------------------


class BackfillDetail(Answer, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "to"}):
    """A stretch of the past that is run after all, and how far that has come."""

    backfill_id: str
    job: str
    from_at: datetime
    until_at: datetime
    #: `under way`, `done` or `cancelled`.
    state: str
    max_parallel: int
    again: bool
    #: How many planned times there are; of how many a run was made, and how many had one before.
    planned: int
    fired: int
    skipped: int
    under_way: int
    failed: int
    created_at: datetime
    actor: str
    ended_at: datetime | None


class BackfillPreview(Answer, frozen=True, kw_only=True):
    """What a backfill would do."""

    job: str
    to_run: list[datetime]
    had_a_run: int


# ---- plans ---------------------------------------------------------------------------------------


class PlannedField(Answer, frozen=True, kw_only=True):
    """A field that would say something else; null where it says nothing."""

    field: str
    before: Any
    after: Any


class PlannedChange(Answer, frozen=True, kw_only=True):
    """What would become of one fire."""

    #: `added`, `removed` or `moved`.
    fate: str
    before: datetime | None
    after: datetime | None
    #: Whether clocks are changed on its day.
    clock_change: bool


class PlannedFires(Answer, frozen=True, kw_only=True):
    """What would become of the fires of a job."""

    before: int
    after: int
    same: int
    added: int
    removed: int
    moved: int
    #: Up to where they were compared one by one.
    compared_until: datetime
    changes: list[PlannedChange]


class PlannedOddDay(Answer, frozen=True, kw_only=True):
    """A day on which clocks are changed, and what that does to the fires."""

    at: datetime
    timezone: str
    what: str


class JobPlan(Answer, frozen=True, kw_only=True):
    """What would become of one job."""

    job: str
    change: str
    #: It is paused, and stays so.
    stays_paused: bool
    timezone: str
    #: Of a job that would be removed: what goes on to its end, and what would be cancelled.
    under_way: int
    queued: int
    fields: list[PlannedField]
    fires: PlannedFires
    clock_changes: list[PlannedOddDay]


class JobsPlanned(Answer, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """What would become of some jobs, and of their fires."""

    from_at: datetime
    until_at: datetime
    #: How many jobs would be created, changed, left alone and removed.
    jobs: dict[str, int]
    fires: dict[str, int]
    plan: list[JobPlan]


# ---- the audit trail -----------------------------------------------------------------------------


class AuditRecord(Answer, frozen=True, kw_only=True):
    """Somebody changed something."""

    number: int
    at: datetime
    actor: str
    tenant: str
    action: str
    #: What was changed, and which.
    kind: str
    name: str
    #: Digests of what was there.
    before: str | None
    after: str | None
    details: dict[str, Any]
    #: Its place in the chain, once it is sealed.
    seq: int | None
    prev_hash: str | None
    hash: str | None


# ---- health --------------------------------------------------------------------------------------


class Component(Answer, frozen=True, kw_only=True):
    """How one part of the scheduler is."""

    component: str
    #: `ok`, `idle` or `error`.
    status: str
    #: Empty for those who may not look at anything else.
    message: str
    #: Since when it has been so.
    since_at: datetime


class HealthReport(Answer, frozen=True, kw_only=True):
    """How the scheduler is."""

    #: `error` if any of its parts is.
    status: str
    version: str
    #: Whether it can be worked with, and whether the process is worth keeping.
    ready: bool
    alive: bool
    checked_at: datetime
    components: list[Component]


# ---- the stream ----------------------------------------------------------------------------------


class StreamChange(Answer, frozen=True, kw_only=True):
    """Something that changed, as the stream tells it."""

    #: `tick`, `execution`, `task` or `dead_letter`.
    kind: str
    number: int
    at: datetime
    job: str | None
    execution_id: str | None
    #: All that is told of it.
    facts: dict[str, Any]
