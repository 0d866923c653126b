"""Responses about jobs, their ticks and their coming fires."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class JobTick(Response, frozen=True, kw_only=True):
    """One of the newest ticks of a job, in short."""

    planned_at: datetime
    #: How many planned times in a row it stands for.
    count: int
    kind: str
    reason: str
    status: str
    execution_id: str | None


class NewestOutcome(Response, frozen=True, kw_only=True):
    """The newest tick of a job, or a newer execution without one, in the words of its explanation."""

    at: datetime
    kind: str
    reason: str
    sentence: str


class JobSummary(Response, frozen=True, kw_only=True):
    """A job in a list."""

    job: str
    #: `active`, `paused`, `running` or, while none of its executions has started, `waiting`; of a job for one instant
    #: that is over, `done` or `missed`.
    state: str
    #: The schedule in words, and as cron; None if cron cannot express it.
    schedule: str
    cron: str | None
    timezone: str
    #: None if it is paused, or nothing is planned.
    next_run_at: datetime | None
    paused: bool
    #: The number of active executions, and of those queued behind them.
    under_way: int
    queued: int
    #: The number of active executions that have started: the others wait.
    running: int
    #: The version of its workflow.
    version: int
    functions: list[str]
    tags: list[str]
    #: When its schedule was changed last.
    updated_at: datetime
    #: Where its definition comes from: `api`, `cli`, `cron`, `file:PATH` or `import:MODULE`; empty if it is unknown.
    origin: str = ""
    #: Its file or module does not declare it any more.
    orphaned: bool = False
    #: Whether an admin has approved its commands as they are now.
    approved: bool = False
    description: str = ""
    #: Its newest ticks, newest first; None if they were not asked for.
    ticks: list[JobTick] | None = None
    #: The explanation of the newest; None if it was not asked for, or no tick has been decided.
    newest: NewestOutcome | None = None


class LedgerTick(Response, frozen=True, kw_only=True):
    """The decision on a planned time, or on several in a row with the same reason."""

    job: str
    planned_at: datetime
    last_at: datetime
    count: int
    #: `fired`, `queued`, `skipped`, `coalesced` or `missed`.
    kind: str
    reason: str
    #: `ENQUEUED`, `STARTED`, `SUCCESS`, `FAILED` or `SKIPPED`.
    status: str
    execution_id: str | None
    #: sha256 of `schedule_id:epoch_seconds`: the idempotency key of the run of the planned time.
    key: str
    #: When it was decided, which created it, and when its status changed last.
    decided_at: datetime
    created_at: datetime
    updated_at: datetime


class JobLock(Response, frozen=True, kw_only=True):
    """The lock of a job: the execution that prevents others from starting."""

    key: str
    execution_id: str
    acquired_at: datetime
    ttl_ms: int


class TickMoved(Response, frozen=True, kw_only=True):
    """A coming tick that is skipped, or moved to another time."""

    planned_at: datetime
    #: None if it is skipped.
    moved_to: datetime | None


class JobApproval(Response, frozen=True, kw_only=True):
    """The approval of the commands of a job. A change of the commands ends it."""

    approval_id: str
    approved_by: str
    approved_at: datetime
    reason: str
    #: The digest of the commands that it is bound to.
    digest: str


class JobAgentUsage(Response, frozen=True, kw_only=True):
    """The usage of the agents of a job in the last days."""

    #: How many days, today included, in UTC.
    days: int
    #: The number of attempts, of requests to models, and of tokens that were read and written.
    attempts: int
    requests: int
    input_tokens: int
    output_tokens: int
    #: In the currency of the prices; requests to a model without a price add nothing.
    cost: float


class TicksSwallowed(Response, frozen=True, kw_only=True):
    """The planned times that a pause suppressed."""

    count: int
    first_at: datetime | None
    last_at: datetime | None


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """A job with all its details."""

    #: The revision of its schedule; every change increases it.
    revision: int
    #: Changes with every change of the job, and when it is deleted and created again.
    etag: str
    next_runs: list[datetime]
    #: The fields that define the job; None if its workflow is not registered.
    definition: dict[str, Any] | None
    last_ticks: list[LedgerTick]
    #: The ids of open executions.
    executions: list[str]
    #: Coming ticks that are skipped or moved.
    exceptions: list[TickMoved]
    lock: JobLock | None
    #: The approval of its commands; None if they have none.
    approval: JobApproval | None = None
    #: The usage of its agents; None for a job without agents, and in the answer to a change.
    agents: JobAgentUsage | None = None
    #: The planned times that its pause has suppressed so far; None unless it is paused.
    swallowed: TicksSwallowed | None = None


class JobApplied(Response, frozen=True, kw_only=True):
    """The result of registering a job."""

    job: str
    #: `created`, `changed` or `unchanged`.
    change: str
    revision: int
    version: int
    next_run_at: datetime | None
    #: The schedule in words, and as cron; None if cron cannot express it.
    schedule: str = ""
    cron: str | None = None
    #: Commands that need an approval and have none, which are refused until an admin approves the job; and agents that
    #: start too often.
    warnings: list[str] = []


class PlannedFire(Response, frozen=True, kw_only=True):
    """A coming planned time."""

    job: str
    utc: datetime
    #: The same instant in the job's time zone.
    local: str
    timezone: str
    schedule: str


class JobResumed(JobDetail, frozen=True, kw_only=True):
    """A resumed job, and the ticks of its pause."""

    swallowed: TicksSwallowed
    #: How many of those ticks run after all.
    runs: int
