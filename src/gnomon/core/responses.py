"""The responses of the operations, shared by the API, its client and the command line.

Instants are in UTC. A field without a value is None: every response of a kind has the same fields. The class names are
the names of the OpenAPI schemas.
"""

from datetime import date, datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Response(Struct, frozen=True, kw_only=True):
    """The base of all responses."""


class Page(Response, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    items: list[T]
    #: The cursor of the next page; None if this is the last.
    next: str | None = None


# ---- jobs ----------------------------------------------------------------------------------------


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

    approved_by: str
    approved_at: datetime
    reason: str
    #: The digest of the commands that it is bound to.
    digest: str


class JobApprovalState(Response, frozen=True, kw_only=True):
    """Whether the commands of a job are approved as they are now."""

    #: The job, or the workflow of a deployment, that is approved.
    job: str
    approved: bool
    #: The digest of the commands as they are now.
    digest: str
    approval: JobApproval | None


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
    #: Commands that need an approval and have none: they are refused until an admin approves the job.
    warnings: list[str] = []


class ScheduleExplained(Response, frozen=True, kw_only=True):
    """A schedule in words, as cron, and its next fires."""

    schedule: str
    sentence: str
    #: None if cron cannot express it.
    cron: str | None
    timezone: str
    #: The next fires in UTC, and in the time zone of the schedule.
    fires: list[datetime]
    local_fires: list[str]


class SimulatedDecision(Response, frozen=True, kw_only=True):
    """How often ticks of a job would be decided like this."""

    kind: str
    reason: str
    count: int


class SimulatedJob(Response, frozen=True, kw_only=True):
    """A job in a simulation."""

    job: str
    ticks: int
    runs: int
    decisions: list[SimulatedDecision]
    runs_beside_another: int
    runs_replaced: int
    most_waiting: int


class SimulatedCollision(Response, frozen=True, kw_only=True):
    """Jobs that start in the same second."""

    at: datetime
    jobs: list[str]


class SimulationResult(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """The result of a simulation of jobs."""

    from_at: datetime
    until_at: datetime
    timezone: str
    runs: int
    not_enabled: list[str]
    jobs: list[SimulatedJob]
    #: The number of minutes in which several jobs start, and the largest collisions.
    colliding_minutes: int
    collisions: list[SimulatedCollision]
    #: Jobs of which the policy in force would deny, put off or ask about a step, or may.
    policy: "list[JobPolicy]" = []


class PlannedFire(Response, frozen=True, kw_only=True):
    """A coming planned time."""

    job: str
    utc: datetime
    #: The same instant in the job's time zone.
    local: str
    timezone: str
    schedule: str


# ---- executions ----------------------------------------------------------------------------------


class Execution(Response, frozen=True, kw_only=True):
    """An execution in a list, or a tick without one, whose status is `skipped`."""

    #: The key of the tick if it was skipped.
    execution_id: str
    #: The job, or the workflow if it was run without one.
    job: str
    #: The version of the workflow; None if it was skipped.
    version: int | None
    #: `cron`, `manual`, `api`, `event` or `backfill`.
    trigger: str
    #: `pending`, `running`, `completed`, `failed`, `cancelled` or `skipped`.
    status: str
    #: Why it was skipped, and how many planned times in a row with it.
    reason: str | None = None
    count: int = 1
    queued: bool
    #: The number of the last attempt, of the step that had most; 0 before the first.
    attempt: int
    planned_at: datetime
    #: The key of the tick that started it; None if no schedule did.
    tick_key: str | None
    created_at: datetime
    #: When it was created, started, asked to stop or ended, the last of these.
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None
    user_id: str
    #: The caller that requested it; empty if a schedule started it.
    actor: str
    error: str | None
    key: str | None
    replay_of: str | None
    #: Whether its end was announced: `pending`, `sent`, `silent` or `given_up`; None if it is not announced.
    announced: str | None = None
    #: The tokens that its agents have read and written so far, and their cost in the currency of the prices; None if
    #: none has run.
    tokens: int | None = None
    cost: float | None = None


class AttemptDetail(Response, frozen=True, kw_only=True):
    """One attempt of a step."""

    attempt: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: How it ended; None while it is open.
    result: str | None
    error: str | None


class WorkDetail(Response, frozen=True, kw_only=True):
    """The state of a step, or of one of its items."""

    state: str
    waits_for: str | None = None
    #: When it can start, if it waits for a time only.
    waits_until: datetime | None = None
    skipped: bool = False
    upstream_failed: bool = False
    note: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: When it ends, whatever it does; None without a deadline.
    deadline_at: datetime | None = None
    output: Any = None
    attempts: list[AttemptDetail] = []


class ItemDetail(WorkDetail, frozen=True, kw_only=True):
    """One item of a step with `foreach`."""

    item: int | None


class StepDetail(WorkDetail, frozen=True, kw_only=True):
    """A step of an execution."""

    step: str
    depends_on: list[str] = []
    when: str | None = None
    #: The condition under which it runs.
    condition: str | None = None
    #: The execution that it started and waits for.
    execution_id: str | None = None
    #: The first hundred items, and the number of items by state; None for a step without `foreach`.
    items: list[ItemDetail] | None = None
    item_counts: dict[str, int] | None = None


class ExecutionDetail(Execution, frozen=True, kw_only=True):
    """An execution with all its details."""

    input: Any
    parent_task: str | None
    #: When its cancellation was requested.
    cancel_requested_at: datetime | None
    #: When everything that is left of it ends; None without a deadline.
    deadline_at: datetime | None = None
    #: `running`, `complete` or `incomplete`, and why it is rolled back; None without a rollback.
    rollback: str | None
    rollback_cause: str | None
    steps: list[StepDetail]
    announcements: "list[AnnouncementSummary]" = []


class LogEntry(Response, frozen=True, kw_only=True):
    """A line that a step logged."""

    at: datetime
    level: str
    step: str
    #: The number of the item; None if the step has none.
    item: int | None
    #: The number of the line, from 1.
    line: int
    text: str


class Started(Response, frozen=True, kw_only=True):
    """The result of a request to start an execution."""

    execution_id: str
    #: `started`, `queued`, or `already` if a request with the same key came before.
    became: str


class Ended(Response, frozen=True, kw_only=True):
    """The result of a request to cancel an execution."""

    execution_id: str
    #: `cancelled`, or `asked` while running attempts have been asked to stop.
    became: str


class RollbackStarted(Response, frozen=True, kw_only=True):
    """The result of a request to roll an execution back."""

    execution_id: str
    #: Always `running`.
    rollback: str


# ---- agents --------------------------------------------------------------------------------------


class AgentUsage(Response, frozen=True, kw_only=True):
    """The usage of one model within a day in UTC."""

    day: date
    #: The model that answered last; empty if none has answered.
    model: str
    attempts: int
    requests: int
    input_tokens: int
    output_tokens: int
    #: In the currency of the prices.
    cost: float
    tool_calls: int
    actions: int


class SessionListed(Response, frozen=True, kw_only=True):
    """A session of agents."""

    session: str
    #: The runs whose messages it holds, and about how many tokens these have.
    turns: int
    tokens: int
    updated_at: datetime


class SessionTurnShown(Response, frozen=True, kw_only=True):
    """The messages of one run in a session."""

    #: Counts from 1 within the session.
    number: int
    job: str
    execution_id: str
    ended_at: datetime
    tokens: int
    #: As the library of models writes them.
    messages: list[dict[str, Any]]


class SessionCleared(Response, frozen=True, kw_only=True):
    """The result of a request to clear a session."""

    session: str
    turns: int


class AgentUsageReport(Response, frozen=True, kw_only=True):
    """The usage of agents, newest day first."""

    days: list[AgentUsage]
    cost_today: float
    #: The limit of a day; None for none.
    max_cost_per_day: float | None


# ---- breakers ------------------------------------------------------------------------------------


class BreakerDefinition(Response, frozen=True, kw_only=True):
    """The limits of a breaker, as one of its users defines them."""

    #: A job that defines it so, or a job and its step.
    user: str
    failures: int
    open: str
    probes: int
    successes: int


class BreakerDetail(Response, frozen=True, kw_only=True):
    """A circuit breaker."""

    name: str
    #: `closed`, `open` or `half_open`.
    state: str
    #: The failures since the last success.
    failures: int
    #: When it becomes half open; None unless it is open.
    open_until: datetime | None
    #: The task whose failure has opened it, and the tasks that are its probes now.
    opened_by: str | None
    probes: list[str]
    changed_at: datetime | None
    #: The definitions that differ; the strictest of each limit applies.
    definitions: list[BreakerDefinition]


# ---- announcements -------------------------------------------------------------------------------


class AnnouncementSummary(Response, frozen=True, kw_only=True):
    """An announcement."""

    announcement_id: str
    job: str
    #: The execution; None if it is about a tick without one.
    execution_id: str | None
    #: The planned time of the execution or of the tick.
    planned_at: datetime
    #: `success`, `failure`, `recovery`, `missed` or `skipped`.
    moment: str
    channel: str
    #: The recipient; empty for that of the channel.
    to: str
    #: Whether its execution does not wait for it.
    best_effort: bool
    #: `pending`, `sent`, `silent` or `given_up`.
    state: str
    #: How many parts of its text were sent, and how many tries have failed.
    parts_sent: int
    tries: int
    #: When it is tried next; None if it is not.
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    #: Why it was not sent, or the last failure.
    note: str | None


# ---- approvals -----------------------------------------------------------------------------------


class ApprovalVote(Response, frozen=True, kw_only=True):
    """The vote of one person on an approval."""

    voter: str
    #: `approve`, `reject` or `override`.
    vote: str
    at: datetime
    reason: str


class ApprovalNeeds(Response, frozen=True, kw_only=True):
    """The votes that an approval needs: a voter meets every condition that is not empty, with one of its entries."""

    roles: list[str]
    groups: list[str]
    voters: list[str]
    quorum: int
    #: Whether those who asked for the task may vote, too.
    self_approval: bool
    #: The same in words.
    text: str


class ApprovalSummary(Response, frozen=True, kw_only=True):
    """An approval in a list."""

    approval_id: str
    #: `task`: one task, or all items of a step; `command`: the commands of a definition.
    kind: str
    #: `waiting`, `approved`, `rejected`, `expired`, `void` or `revoked`.
    status: str
    job: str
    #: The digest that voters quote: of everything that is approved.
    digest: str
    #: Why it is needed, or was granted.
    reason: str
    #: Of a task: its execution, id and step; and its number, if it is an item.
    execution_id: str | None
    task_id: str | None
    step: str | None
    item: int | None
    #: The number of items, if it is about all items of a step.
    items: int | None
    #: The rule that asks, and the version of the policy.
    rule: str | None
    version: int | None
    needs: ApprovalNeeds | None
    votes: list[ApprovalVote]
    asked_at: datetime | None
    expires_at: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    #: Whether it was approved by an override.
    overridden: bool
    #: Why it is void.
    note: str | None


class ApprovalDetail(ApprovalSummary, frozen=True, kw_only=True):
    """An approval with the data that its task is about to work on."""

    constraints: dict[str, Any] | None
    #: The input of the task, without secrets; None if there is none any more.
    input: Any


# ---- dead letters --------------------------------------------------------------------------------


class DeadLetterSummary(Response, frozen=True, kw_only=True):
    """A dead letter in a list."""

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
    """A dead letter with its attempts."""

    attempt_history: list[AttemptDetail]
    #: Whether its execution is still stored.
    kept: bool


class Replay(Response, frozen=True, kw_only=True):
    """The result of one of several replays."""

    dead_letter_id: str
    job: str
    execution_id: str | None
    became: str | None
    #: Why there is no execution.
    refused: str | None


# ---- schedules, workflows, events, workers -------------------------------------------------------


class ScheduleRegistered(Response, frozen=True, kw_only=True):
    """The result of registering a schedule."""

    schedule_id: str
    next_run_at: datetime | None


class ScheduleDetail(Response, frozen=True, kw_only=True):
    """A schedule with its next planned times and its last decisions."""

    schedule_id: str
    workflow_id: str
    version: int
    user_id: str
    #: The schedule in words, and as cron; None if cron cannot express it.
    schedule: str
    cron: str | None
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
    """Whether the run launcher started the run."""

    started: bool


class WorkflowDeployed(Response, frozen=True, kw_only=True):
    """The result of a deployment."""

    workflow_id: str
    version: int
    #: Whether that version is new.
    new: bool
    schedules: list[str]
    removed: list[str]
    #: Commands that need an approval and have none: they are refused until an admin approves the workflow.
    warnings: list[str] = []


class WorkflowSummary(Response, frozen=True, kw_only=True):
    """A workflow in its newest version."""

    workflow_id: str
    version: int
    steps: list[str]
    tags: list[str]


class EventEntry(Response, frozen=True, kw_only=True):
    """The effect of an event on one job."""

    job: str
    became: str
    reason: str
    execution_id: str | None
    decided_at: datetime


class EventDetail(Response, frozen=True, kw_only=True):
    """An event, and its effect on every job that listens to it."""

    event_id: str
    name: str
    key: str | None
    emitted_at: datetime
    actor: str
    body: Any
    entries: list[EventEntry]


class WorkerDetail(Response, frozen=True, kw_only=True):
    """A live worker."""

    worker: str
    pool: str
    slots: int
    #: The number of its tasks at its last heartbeat.
    in_hand: int
    started_at: datetime
    #: The time of its last heartbeat.
    seen_at: datetime
    #: It finishes its tasks and takes no new ones.
    draining: bool
    #: The load of its machine in percent; null if unknown.
    cpu: int | None
    gpu: int | None
    labels: dict[str, str]
    capabilities: list[str]
    functions: list[str]


class TicksSwallowed(Response, frozen=True, kw_only=True):
    """The planned times that a pause suppressed."""

    count: int
    first_at: datetime | None
    last_at: datetime | None


class JobResumed(JobDetail, frozen=True, kw_only=True):
    """A resumed job, and the ticks of its pause."""

    swallowed: TicksSwallowed
    #: How many of those ticks run after all.
    runs: int


# ---- backfills -----------------------------------------------------------------------------------


class BackfillDetail(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "to"}):
    """A backfill and its progress."""

    backfill_id: str
    job: str
    from_at: datetime
    until_at: datetime
    #: `under way`, `done` or `cancelled`.
    state: str
    max_parallel: int
    again: bool
    #: The number of planned times; of those that got a run, and of those that had one before.
    planned: int
    fired: int
    skipped: int
    under_way: int
    failed: int
    created_at: datetime
    actor: str
    ended_at: datetime | None


class BackfillPreview(Response, frozen=True, kw_only=True):
    """The planned times that a backfill would run."""

    job: str
    to_run: list[datetime]
    had_a_run: int


# ---- plans ---------------------------------------------------------------------------------------


class PlannedField(Response, frozen=True, kw_only=True):
    """A field whose value would change; null where it has none."""

    field: str
    before: Any
    after: Any


class PlannedChange(Response, frozen=True, kw_only=True):
    """The change of one fire."""

    #: `added`, `removed` or `moved`.
    fate: str
    before: datetime | None
    after: datetime | None
    #: Whether clocks change on its day.
    clock_change: bool


class PlannedFires(Response, frozen=True, kw_only=True):
    """The changes of the fires of a job."""

    before: int
    after: int
    same: int
    added: int
    removed: int
    moved: int
    #: The time up to which fires were compared one by one.
    compared_until: datetime
    changes: list[PlannedChange]


class PlannedOddDay(Response, frozen=True, kw_only=True):
    """A day with a clock change, and its effect on the fires."""

    at: datetime
    timezone: str
    what: str


class JobPlan(Response, frozen=True, kw_only=True):
    """The planned changes of one job."""

    job: str
    change: str
    #: The job is paused and stays paused.
    stays_paused: bool
    timezone: str
    #: For a job that would be deleted: executions that would finish, and queued ones that would be cancelled.
    under_way: int
    queued: int
    fields: list[PlannedField]
    fires: PlannedFires
    clock_changes: list[PlannedOddDay]
    #: The steps of its next execution that the policy in force would deny, put off or ask about, or may.
    policy: "list[StepRuling]"


class JobsPlanned(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """The planned changes of several jobs and of their fires."""

    from_at: datetime
    until_at: datetime
    #: How many jobs would be created, changed, left unchanged and removed.
    jobs: dict[str, int]
    fires: dict[str, int]
    plan: list[JobPlan]


# ---- the audit trail -----------------------------------------------------------------------------


class AuditRecord(Response, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    #: In the order in which entries of all tenants were written; null for other tenants than the operator's.
    number: int | None
    at: datetime
    actor: str
    tenant: str
    action: str
    #: The kind and name of the changed object.
    kind: str
    name: str
    #: Digests of the object before and after.
    before: str | None
    after: str | None
    details: dict[str, Any]
    #: Its place in the chain of all tenants, once it is sealed. Other tenants than the operator's see the hash alone.
    seq: int | None
    prev_hash: str | None
    hash: str | None


# ---- tokens --------------------------------------------------------------------------------------


class TokenDetail(Response, frozen=True, kw_only=True):
    """A token that was issued or revoked here, without the token itself."""

    token_id: str
    #: Subject, role and issue; empty if another issuer made it.
    subject: str
    role: str
    issued_at: datetime | None
    issued_by: str
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str


class TokensRevoked(Response, frozen=True, kw_only=True):
    """The result of a revocation."""

    #: False if the token was revoked before.
    revoked: bool


# ---- health --------------------------------------------------------------------------------------


class Component(Response, frozen=True, kw_only=True):
    """The health of one component."""

    component: str
    #: `ok`, `idle` or `error`.
    status: str
    #: Empty for callers without permission to read.
    message: str
    #: The time since which it has had this status.
    since_at: datetime


class HealthReport(Response, frozen=True, kw_only=True):
    """The health of the node."""

    #: `error` if any component has an error.
    status: str
    version: str
    #: Whether it accepts work, and whether the process works at all.
    ready: bool
    alive: bool
    checked_at: datetime
    components: list[Component]


# ---- the stream ----------------------------------------------------------------------------------


class StreamChange(Response, frozen=True, kw_only=True):
    """A change in the stream of changes."""

    #: `tick`, `execution`, `task`, `dead_letter` or `breaker`.
    kind: str
    number: int
    at: datetime
    job: str | None
    execution_id: str | None
    #: The fields of the change.
    facts: dict[str, Any]


# ---- explanations --------------------------------------------------------------------------------


class WhyDecision(Response, frozen=True, kw_only=True):
    """The ledger entry behind an explanation."""

    kind: str
    reason: str
    first_at: datetime
    last_at: datetime
    count: int
    fire_at: datetime | None
    decided_at: datetime | None


class WhyAttempt(Response, frozen=True, kw_only=True):
    """An attempt by a worker."""

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
    """The explanation of one moment of a job."""

    at: datetime
    #: The same instant in the time zone of the schedule.
    local: str
    kind: str
    reason: str
    #: The explanation in words.
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
    """The explanations of one moment, or of the latest ones."""

    job: str
    schedule: str
    timezone: str
    explanations: list[WhyMoment]
    #: How many more subjects there are at the requested moment.
    more: int
    #: History before this is no longer stored; None if all of it is.
    forgotten_before: datetime | None
    #: The next tick; None if the request was about a moment.
    coming: WhyMoment | None


# ---- security ------------------------------------------------------------------------------------


class SecurityStatus(Response, frozen=True, kw_only=True):
    """The state of the policy of commands for the tenant of the caller."""

    #: Every change is refused.
    read_only: bool
    #: How many guarded commands may start within an hour, how many have, and how many more may; None for any number.
    actions_per_hour: int | None
    actions_spent: int
    actions_left: int | None


# ---- the policy of tasks -------------------------------------------------------------------------


class PolicyVersionDetail(Response, frozen=True, kw_only=True):
    """A version of the policy of tasks."""

    version: int
    #: The SHA-256 of the file.
    digest: str
    author: str
    applied_at: datetime
    #: Whether it is the newest version: that is in force.
    in_force: bool


class PolicyDetail(PolicyVersionDetail, frozen=True, kw_only=True):
    """A version of the policy of tasks, with its file."""

    body: str


class PolicyApplied(PolicyVersionDetail, frozen=True, kw_only=True):
    """The version that a file became, or was already."""

    rules: int
    default_decision: str


class PolicyRuleChange(Response, frozen=True, kw_only=True):
    """The change of one rule, or of the default decision."""

    rule: str
    #: `added`, `removed`, `changed`, or `moved`: the same rule at another place among the others.
    change: str
    #: Its decision before and after; None where there is none.
    before: str | None
    after: str | None
    #: The fields of a changed rule that differ.
    fields: list[str]


class PolicyDifference(Response, frozen=True, kw_only=True):
    """The changes that a policy file would make."""

    #: The version in force; None if there is no policy.
    version: int | None
    changes: list[PolicyRuleChange]


class PolicyRuling(Response, frozen=True, kw_only=True):
    """A decision of the policy about a task. Equal ones that follow each other are one, with a count."""

    decision: str
    rule: str
    #: The version of the policy.
    version: int
    reason: str
    #: The reason code of a denial; None for any other decision.
    code: str | None
    constraints: dict[str, Any] | None
    #: `policy`, `commands` for the policy of commands, or another name.
    ruled_by: str
    #: The SHA-256 of exactly what was asked.
    digest: str
    at: datetime
    last_at: datetime
    count: int


class TaskDecisions(Response, frozen=True, kw_only=True):
    """The decisions of the policy about one task, in the order in which they were made."""

    task_id: str
    step: str
    #: The number of the item of a `foreach` step; None for any other task.
    item: int | None
    decisions: list[PolicyRuling]


class StepRuling(Response, frozen=True, kw_only=True):
    """The decision that the policy would make about a step of a job."""

    step: str
    #: None if it depends on data that only a run has: one of `rules` will decide.
    decision: str | None
    rule: str | None
    reason: str | None
    constraints: dict[str, Any] | None
    #: The rules that can match the step, in their order.
    rules: list[str]


class JobPolicy(Response, frozen=True, kw_only=True):
    """The decisions that the policy would make about a job, if it started now."""

    job: str
    #: The version of the policy; 0 for a file that is not in force, None if there is no policy.
    version: int | None
    steps: list[StepRuling]


class ReplayDecision(Response, frozen=True, kw_only=True):
    """A decision about tasks of the history."""

    decision: str
    #: The rule that made it; None if there was no policy.
    rule: str | None
    constraints: dict[str, Any] | None


class ReplayChange(Response, frozen=True, kw_only=True):
    """Tasks of one job that a policy file would decide about otherwise, in the same way."""

    tenant: str
    job: str
    before: ReplayDecision
    after: ReplayDecision
    tasks: int
    #: The execution and the step of the first of them.
    execution_id: str
    step: str


class ReplayedRule(Response, frozen=True, kw_only=True):
    """How many tasks of the history a rule would decide about."""

    rule: str
    tasks: int


class ReplayUnknown(Response, frozen=True, kw_only=True):
    """Tasks of one job for which nobody knows what a policy file would have decided."""

    tenant: str
    job: str
    #: The fact that is no longer known: `definition`, `input`, `actor` or `time`.
    fact: str
    tasks: int


class PolicyReplayed(Response, frozen=True, kw_only=True):
    """The decisions of a policy file about a part of the history."""

    #: The tasks that somebody was asked about: unchanged, changed or not known.
    tasks: int
    unchanged: int
    changed: int
    not_known: int
    #: Tasks that nobody was ever asked about: they were skipped or cancelled, or still wait for others.
    not_asked: int
    changes: list[ReplayChange]
    #: Changed tasks that are in none of `changes`, because there are too many different ones.
    left_out: int
    rules: list[ReplayedRule]
    unknown: list[ReplayUnknown]
    #: The place of the next part; None if this is the last.
    after: str | None


class ShadowChange(Response, frozen=True, kw_only=True):
    """Rulings of the shadow about tasks of one job that differ from those in force in the same way."""

    tenant: str
    job: str
    before: str
    #: The rule in force; None if there is no policy.
    before_rule: str | None
    after: str
    after_rule: str
    count: int
    first_at: datetime
    last_at: datetime
    #: The execution and the step of the last of them.
    execution_id: str
    step: str


class PolicyShadowDetail(Response, frozen=True, kw_only=True):
    """A policy file that is, or was, judged beside the policy in force."""

    number: int
    #: The SHA-256 of the file.
    digest: str
    author: str
    started_at: datetime
    #: None while it runs.
    ended_at: datetime | None
    #: Rulings with the same effect as in force, and with another one.
    same: int
    different: int
    #: Tasks that it was not asked about, because there were too many at once.
    not_judged: int
    #: Different rulings that are in none of `differences`, because there are too many ways.
    left_out: int


class PolicyShadowReport(PolicyShadowDetail, frozen=True, kw_only=True):
    """A shadow of the policy, with the ways in which its rulings differ."""

    body: str
    differences: list[ShadowChange]
