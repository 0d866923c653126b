"""What is said to those who ask, by whichever door they come: the command line, the API and its client.

Instants are in UTC. What has a value only sometimes is None otherwise: every answer of a kind has the same fields.
"""

from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Response(Struct, frozen=True, kw_only=True):
    """Base of them all."""


class Page(Response, Generic[T], frozen=True, kw_only=True):
    """Some of many."""

    items: list[T]
    #: Where to ask for more; None if there is none.
    next: str | None = None


# ---- jobs ----------------------------------------------------------------------------------------


class JobSummary(Response, frozen=True, kw_only=True):
    """A job as it is listed."""

    job: str
    #: `active`, `paused` or `running`.
    state: str
    #: The schedule in words.
    schedule: str
    timezone: str
    #: None if it is paused, or nothing is planned.
    next_run_at: datetime | None
    paused: bool
    #: How many executions have begun and are not over, and how many wait for those.
    under_way: int
    queued: int
    #: Of its workflow.
    version: int
    functions: list[str]
    tags: list[str]


class LedgerTick(Response, frozen=True, kw_only=True):
    """What became of a planned time, or of several in a row for one reason."""

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


class JobLock(Response, frozen=True, kw_only=True):
    """Which execution keeps others of the same job from starting."""

    key: str
    execution_id: str
    acquired_at: datetime
    ttl_ms: int


class TickMoved(Response, frozen=True, kw_only=True):
    """A coming tick that is skipped, or moved to another time."""

    planned_at: datetime
    #: None if it is skipped.
    moved_to: datetime | None


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """All there is to know about a job."""

    #: Of its schedule: every change makes it greater.
    revision: int
    #: Names the job as it stands: another, once it has changed or was made anew.
    etag: str
    next_runs: list[datetime]
    #: What says the same job again; None if its workflow is not registered.
    definition: dict[str, Any] | None
    last_ticks: list[LedgerTick]
    #: Those that are not over.
    executions: list[str]
    #: Of single ticks to come.
    exceptions: list[TickMoved]
    lock: JobLock | None


class JobApplied(Response, frozen=True, kw_only=True):
    """What became of a job that was registered."""

    job: str
    #: `created`, `changed` or `unchanged`.
    change: str
    revision: int
    version: int
    next_run_at: datetime | None
    #: What was understood: the schedule in words, and as cron; None if cron cannot say it.
    schedule: str = ""
    cron: str | None = None


class PlannedFire(Response, frozen=True, kw_only=True):
    """A planned time to come."""

    job: str
    utc: datetime
    #: The same instant on the clocks of the job's time zone.
    local: str
    timezone: str
    schedule: str


# ---- executions ----------------------------------------------------------------------------------


class Execution(Response, frozen=True, kw_only=True):
    """An execution as it is listed."""

    execution_id: str
    #: The job, or the workflow if it was run without one.
    job: str
    version: int
    #: `cron`, `manual`, `api` or `event`.
    trigger: str
    #: `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: str
    queued: bool
    planned_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None
    user_id: str
    error: str | None
    key: str | None
    replay_of: str | None


class AttemptDetail(Response, frozen=True, kw_only=True):
    """One try of a step."""

    attempt: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: How it ended; None while it goes on.
    result: str | None
    error: str | None


class WorkDetail(Response, frozen=True, kw_only=True):
    """What has become of a step, or of one of its items."""

    state: str
    waits_for: str | None = None
    #: When its time comes, if it waits for nothing else.
    waits_until: datetime | None = None
    skipped: bool = False
    upstream_failed: bool = False
    note: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    output: Any = None
    attempts: list[AttemptDetail] = []


class ItemDetail(WorkDetail, frozen=True, kw_only=True):
    """One item of a step that is done for each."""

    item: int | None


class StepDetail(WorkDetail, frozen=True, kw_only=True):
    """A step of an execution."""

    step: str
    depends_on: list[str] = []
    when: str | None = None
    #: What must hold besides.
    condition: str | None = None
    #: The execution that it started and waits for.
    execution_id: str | None = None
    #: The first hundred, and how many are in which state; None if it is not done for each of several.
    items: list[ItemDetail] | None = None
    item_counts: dict[str, int] | None = None


class ExecutionDetail(Execution, frozen=True, kw_only=True):
    """All there is to know about an execution."""

    input: Any
    parent_task: str | None
    #: When somebody asked for its end.
    cancel_requested_at: datetime | None
    steps: list[StepDetail]


class LogEntry(Response, frozen=True, kw_only=True):
    """A line that a step has said."""

    at: datetime
    level: str
    step: str
    #: Which of its items; None if it has none.
    item: int | None
    #: The first that it has said is 1.
    line: int
    text: str


class Started(Response, frozen=True, kw_only=True):
    """What a wish for an execution came to."""

    execution_id: str
    #: `started`, `queued`, or `already` if the same key asked before.
    became: str


class Ended(Response, frozen=True, kw_only=True):
    """What a wish for the end of an execution came to."""

    execution_id: str
    #: `cancelled`, or `asked` while what runs has been told to stop.
    became: str


# ---- dead letters --------------------------------------------------------------------------------


class DeadLetterSummary(Response, frozen=True, kw_only=True):
    """A dead letter as it is listed."""

    dead_letter_id: str
    job: str
    execution_id: str
    step: str
    reason: str
    attempts: int
    last_error: str | None
    input: Any
    first_attempt_at: datetime
    last_attempt_at: datetime
    created_at: datetime
    resolved: bool
    resolved_at: datetime | None
    resolved_by: str | None
    replayed_by: str | None


class DeadLetterDetail(DeadLetterSummary, frozen=True, kw_only=True):
    """A dead letter and all that was tried."""

    attempt_history: list[AttemptDetail]
    #: Whether its execution is still there.
    kept: bool


class Replay(Response, frozen=True, kw_only=True):
    """What became of one of many replays."""

    dead_letter_id: str
    job: str
    execution_id: str | None
    became: str | None
    #: Why there is no execution.
    refused: str | None


# ---- schedules, workflows, events, workers -------------------------------------------------------


class ScheduleRegistered(Response, frozen=True, kw_only=True):
    """What registering a schedule answers."""

    schedule_id: str
    next_run_at: datetime | None


class ScheduleDetail(Response, frozen=True, kw_only=True):
    """A schedule with its next planned times and its last decisions."""

    schedule_id: str
    workflow_id: str
    version: int
    user_id: str
    #: In words.
    schedule: str
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    next_run_at: datetime | None
    paused: bool
    jitter_ms: int
    overlap: str
    catchup: str
    revision: int
    updated_at: datetime
    next_runs: list[datetime]
    last_ticks: list[LedgerTick]


class Launched(Response, frozen=True, kw_only=True):
    """Whether the run launcher could start what it was asked for."""

    started: bool


class WorkflowDeployed(Response, frozen=True, kw_only=True):
    """What a deployment came to."""

    workflow_id: str
    version: int
    #: Whether that version is new.
    new: bool
    schedules: list[str]
    removed: list[str]


class WorkflowSummary(Response, frozen=True, kw_only=True):
    """A workflow in its newest version."""

    workflow_id: str
    version: int
    steps: list[str]
    tags: list[str]


class EventEntry(Response, frozen=True, kw_only=True):
    """What became of an event for one job."""

    job: str
    became: str
    reason: str
    execution_id: str | None
    decided_at: datetime


class EventDetail(Response, frozen=True, kw_only=True):
    """An event and what became of it for every job that listens."""

    event_id: str
    name: str
    key: str | None
    emitted_at: datetime
    actor: str
    body: Any
    entries: list[EventEntry]


class WorkerDetail(Response, frozen=True, kw_only=True):
    """A worker that is alive."""

    worker: str
    pool: str
    slots: int
    #: How many tasks it had in hand when it was last heard of.
    in_hand: int
    started_at: datetime
    #: When it was last heard of.
    seen_at: datetime
    #: It finishes what it has, and takes nothing more.
    draining: bool
    #: How busy its machine is, in percent; null for what cannot be told.
    cpu: int | None
    gpu: int | None
    labels: dict[str, str]
    capabilities: list[str]
    functions: list[str]


class TicksSwallowed(Response, frozen=True, kw_only=True):
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


class BackfillDetail(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "to"}):
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


class BackfillPreview(Response, frozen=True, kw_only=True):
    """What a backfill would do."""

    job: str
    to_run: list[datetime]
    had_a_run: int


# ---- plans ---------------------------------------------------------------------------------------


class PlannedField(Response, frozen=True, kw_only=True):
    """A field that would say something else; null where it says nothing."""

    field: str
    before: Any
    after: Any


class PlannedChange(Response, frozen=True, kw_only=True):
    """What would become of one fire."""

    #: `added`, `removed` or `moved`.
    fate: str
    before: datetime | None
    after: datetime | None
    #: Whether clocks are changed on its day.
    clock_change: bool


class PlannedFires(Response, frozen=True, kw_only=True):
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


class PlannedOddDay(Response, frozen=True, kw_only=True):
    """A day on which clocks are changed, and what that does to the fires."""

    at: datetime
    timezone: str
    what: str


class JobPlan(Response, frozen=True, kw_only=True):
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


class JobsPlanned(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """What would become of some jobs, and of their fires."""

    from_at: datetime
    until_at: datetime
    #: How many jobs would be created, changed, left alone and removed.
    jobs: dict[str, int]
    fires: dict[str, int]
    plan: list[JobPlan]


# ---- the audit trail -----------------------------------------------------------------------------


class AuditRecord(Response, frozen=True, kw_only=True):
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


class Component(Response, frozen=True, kw_only=True):
    """How one part of the scheduler is."""

    component: str
    #: `ok`, `idle` or `error`.
    status: str
    #: Empty for those who may not look at anything else.
    message: str
    #: Since when it has been so.
    since_at: datetime


class HealthReport(Response, frozen=True, kw_only=True):
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


class StreamChange(Response, frozen=True, kw_only=True):
    """Something that changed, as the stream tells it."""

    #: `tick`, `execution`, `task` or `dead_letter`.
    kind: str
    number: int
    at: datetime
    job: str | None
    execution_id: str | None
    #: All that is told of it.
    facts: dict[str, Any]


class WhyDecision(Response, frozen=True, kw_only=True):
    """The row of the ledger that an explanation reads."""

    kind: str
    reason: str
    first_at: datetime
    last_at: datetime
    count: int
    fire_at: datetime | None
    decided_at: datetime | None


class WhyAttempt(Response, frozen=True, kw_only=True):
    """What a worker has tried."""

    step: str
    item: int | None
    fence: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: str | None
    error: str | None


class WhyMoment(Response, frozen=True, kw_only=True):
    """Why a job did what it did at a moment, or did nothing."""

    at: datetime
    #: The same instant on the clocks of the schedule.
    local: str
    kind: str
    reason: str
    #: The answer in words.
    sentence: str
    waits: list[str]
    schedule: str
    timezone: str
    revision: int
    decision: WhyDecision | None
    previous_at: datetime | None
    next_at: datetime | None
    execution: Execution | None
    attempts: list[WhyAttempt]


class WhyAnswer(Response, frozen=True, kw_only=True):
    """Why, of one moment or of the last few."""

    job: str
    schedule: str
    timezone: str
    explanations: list[WhyMoment]
    #: How many more there are within the moment that was asked about.
    more: int
    #: History before this is no longer kept; None if all of it is.
    forgotten_before: datetime | None
    #: What comes next; None if a moment was asked about.
    coming: WhyMoment | None
