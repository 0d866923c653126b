"""The domain model: schedules, decisions, ticks, runs, tasks and attempts as frozen values.

Instants are whole milliseconds since 1970 in UTC and end in `_at`; spans are whole milliseconds and end in `_ms`, as
in the store and on the wire. None of the values can be part of a reference cycle, so the garbage collector need not
track them (gc=False).
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from gnomon.core.cron import Cron
from gnomon.core.policy.constraints import Constraints
from gnomon.core.runs.rollback import RollbackCause, RollbackStatus
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, RunDeadlines
from gnomon.core.triggers import At, Every, OnDemand, OnEvent

ScheduleUid = NewType("ScheduleUid", str)
RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
#: The worker of attempts that no worker runs: tasks that wait for their items, or for another run.
ENGINE = "gnomon"
DAY_MS = 24 * 60 * MINUTE_MS


class Overlap(StrEnum):
    """The policy for a tick that comes due while an earlier run of its schedule is open."""

    SKIP = "skip"
    ALLOW = "allow"
    #: Run it when the earlier ones have ended, in planned order.
    QUEUE = "queue"
    #: Cancel the earlier ones and run it when they have ended.
    REPLACE = "replace"


class Catchup(StrEnum):
    """The policy for several overdue ticks: which of them become runs."""

    #: The newest, if it is late by no more than the grace.
    NONE = "none"
    #: The newest, however late.
    LATEST = "latest"
    #: Every one within the window.
    ALL = "all"
    #: Every one within the window, spread over the lookahead.
    SPREAD = "spread"


class TickKind(StrEnum):
    """The decision on a tick."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"


class Reason(StrEnum):
    """The reason of the decision on a tick."""

    ON_TIME = "on_time"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    BEHIND_A_RUN = "behind_a_run"
    REPLACES_A_RUN = "replaces_a_run"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    PAUSED = "paused"
    #: An operator skipped or moved this single tick.
    SKIPPED_ONCE = "skipped_once"
    MOVED = "moved"
    NEWER_TICK = "newer_tick"
    CATCHUP_NONE = "catchup_none"
    WINDOW = "window"
    #: A backup was restored: whether the tick ran before is not known, and its job may run at most once.
    STORE_UNCERTAIN = "store_uncertain"


class TickStatus(StrEnum):
    """The status of a tick, as the schedule API shows it."""

    ENQUEUED = "ENQUEUED"
    STARTED = "STARTED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class RunStatus(StrEnum):
    """The status of a run."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ExecutionStatus(StrEnum):
    """The status by which executions are listed: that of a run, or `skipped` for a tick without one."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class RunSource(StrEnum):
    """The trigger of a run."""

    CRON = "cron"
    MANUAL = "manual"
    API = "api"
    EVENT = "event"
    #: A planned time in the past.
    BACKFILL = "backfill"


class TickException(Struct, frozen=True, gc=False):
    """One tick that an operator skipped or moved."""

    planned_at: int
    #: The new time, which must not be a planned time; None if the tick is skipped.
    moved_to: int | None = None


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a schedule that operators define. Every change of it is a new revision, but for its declaration."""

    trigger: Cron | Every | At | OnDemand | OnEvent
    workflow_id: str
    workflow_version: int = 1
    user_id: str = ""
    #: The steps that depend on no other: their tasks are created together with the run.
    first_steps: tuple[str, ...] = (ONLY_STEP,)
    #: There are no ticks before this; the first may be at it.
    start_at: int | None = None
    #: There are no ticks at or after this.
    end_at: int | None = None
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.NONE
    #: How far a fire may be moved from its planned time, either way.
    jitter_ms: int = 0
    #: A tick that is late by no more than this is late, not missed.
    misfire_grace_ms: int = MINUTE_MS
    catchup_window_ms: int = DAY_MS
    #: The limit of the settings when it was registered, for older programs. The limit in force decides.
    catchup_cap: int = 100
    queue_limit: int = 100
    lookahead_ms: int = MINUTE_MS
    #: For a one-shot: delete it once its run has succeeded, pause it once the run has failed.
    delete_after_run: bool = False
    #: Skipped and moved ticks, by planned time.
    exceptions: tuple[TickException, ...] = ()
    #: Where the definition comes from, see core/jobs/origins.py; empty if it is unknown.
    origin: str = ""
    #: Its origin was read again and does not declare it any more.
    orphaned: bool = False
    #: Those of its workflow, which ticks do not read; None if it has none.
    deadlines: RunDeadlines | None = None

    @property
    def timezone(self) -> str:
        """The time zone of the trigger."""
        return self.trigger.timezone if isinstance(self.trigger, Cron) else "UTC"


class MarkCorrection(Struct, frozen=True, kw_only=True, gc=False):
    """A mark that lay ahead of the clock, because the clock had been ahead, and was set back."""

    corrected_at: int
    #: The mark before.
    from_at: int
    #: How many ticks that had not come lost a decision without a run: they are decided when their time comes.
    withdrawn: int
    #: The planned times after the new mark whose decision stays, because it started a run.
    decided: tuple[int, ...] = ()


class Schedule(Struct, frozen=True, kw_only=True, gc=False):
    """A spec under a name, and how far its ticks have been decided."""

    #: Never used again, even if a new schedule gets the same name.
    uid: ScheduleUid
    tenant: str = "default"
    schedule_id: str
    spec: Spec
    revision: int = 1
    shard: int
    #: Every tick up to here has been decided.
    mark_at: int
    #: The last time that the mark was set back; some ticks after the mark may be decided since then.
    mark_correction: MarkCorrection | None = None
    #: When the next undecided tick is to fire; None while paused and after the last one.
    next_fire_at: int | None
    paused_at: int | None = None
    #: Runs that are not over, queued ones not counted.
    active_runs: int = 0
    queued_runs: int = 0
    #: Until when overdue ticks are spread, if they are. A time that has passed means nothing.
    spread_until: int | None = None
    created_at: int
    updated_at: int


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """The decision on one tick, or on a range of ticks with the same kind and reason."""

    kind: TickKind
    reason: Reason
    #: The planned time; of the first tick, if there are several.
    planned_at: int
    #: The planned time of the last tick; the same, if there is one.
    last_at: int
    count: int = 1
    #: When its run may start; None if it has none.
    fire_at: int | None = None

    @property
    def starts_run(self) -> bool:
        """Whether the decision starts or queues a run."""
        return self.fire_at is not None


class TickVerdict(Struct, frozen=True, kw_only=True, gc=False):
    """The decisions on a schedule's due ticks, and its state afterwards: written in one transaction."""

    #: The schedule as it was read. If it has changed since, the verdict is void.
    schedule: Schedule
    decisions: tuple[Decision, ...]
    mark_at: int
    next_fire_at: int | None
    active_runs: int
    queued_runs: int
    #: The open runs of the schedule are cancelled.
    replaces: bool = False
    spread_until: int | None = None

    @property
    def newest_run_at(self) -> int:
        """The planned time of the newest tick that has a run."""
        return max(decision.planned_at for decision in self.decisions if decision.starts_run)


#: How many tasks the sub-runs of one run may have together, unless a setting says otherwise.
MOST_SUB_RUN_TASKS = 10_000


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One execution of a workflow."""

    run_id: RunId
    tenant: str
    schedule_uid: ScheduleUid | None
    schedule_id: str | None
    workflow_id: str
    workflow_version: int
    user_id: str
    source: RunSource
    status: RunStatus
    #: Waits for earlier runs of its schedule to end.
    queued: bool
    planned_at: int
    fire_at: int
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    #: When its cancellation was requested; the run is not over until its tasks are.
    cancel_requested_at: int | None = None
    #: Why it failed or was cancelled.
    error: str | None = None
    #: The key of its caller; a run of a tick uses the key of the tick.
    idempotency_key: str | None = None
    #: The dead letter that it replays.
    replay_of: str | None = None
    #: The task that waits for its end, and the depth of nested runs.
    parent_task: TaskId | None = None
    depth: int = 0
    #: The caller that requested it, as authenticated; empty if a schedule started it. Unlike `user_id`, no caller
    #: chooses it.
    actor: str = ""
    #: The run at the top, of which this is a sub-run; None at the top, and for sub-runs that older programs started.
    root_run_id: RunId | None = None
    #: When all that is left of it ends; None if it has no deadline.
    deadline_at: int | None = None
    #: How far its rollback is, and why it is rolled back.
    rollback: RollbackStatus | None = None
    rollback_cause: RollbackCause | None = None
    #: The number of its rollback, from 1; 0 without one.
    rollback_number: int = 0
    #: The groups to which its caller belonged when they requested it.
    actor_groups: tuple[str, ...] = ()

    @property
    def root(self) -> RunId:
        """The run at the top of the runs that it belongs to."""
        return self.root_run_id or self.run_id

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.status not in (RunStatus.PENDING, RunStatus.RUNNING)


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """One step of a run, or one item of a step: the unit that is admitted, routed and dispatched."""

    task_id: TaskId
    tenant: str
    run_id: RunId
    step: str
    state: TaskState
    wait_reason: WaitReason
    available_at: int
    created_at: int
    #: The number of attempts that count: failed, timed out or lost.
    attempts: int = 0
    #: The number of its last attempt: a report with a lower number is rejected.
    fence: int = 0
    #: The number of attempts that were lost with their worker.
    losses: int = 0
    #: How often routing found no worker.
    routings: int = 0
    #: The reason of its wait or failure, in words.
    note: str | None = None
    #: The task of which this is an item, and the number of the item.
    parent: TaskId | None = None
    item: int | None = None
    #: Its condition or rule excluded it.
    skipped: bool = False
    #: It never ran, because a step before it did not succeed.
    upstream_failed: bool = False
    #: For a task with items: how many are not over, and how many did not succeed.
    open_items: int = 0
    failed_items: int = 0
    #: The limits that its last admission has set.
    constraints: Constraints | None = None
    #: When it ends, whatever it does; None if neither its step nor its run has a deadline.
    deadline_at: int | None = None


class Result(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: It failed and asked not to be retried.
    GAVE_UP = "gave_up"
    #: It asked to be called again later.
    SNOOZED = "snoozed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    #: The lease of its worker expired.
    LOST = "lost"
    #: Its worker was stopped during the attempt, and reported that.
    INTERRUPTED = "interrupted"
    #: It was dispatched, and its worker never started it.
    NEVER_STARTED = "never_started"
    #: Its worker refused to start it, because the policy of commands forbids it.
    DENIED = "denied"


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a task by one worker."""

    task_id: TaskId
    #: The fencing token: it grows with every attempt of a task, and reports with an older one are rejected.
    number: int
    worker: str
    #: When the lease of the worker ends unless it is renewed.
    lease_until: int
    dispatched_at: int
    started_at: int | None = None
    ended_at: int | None = None
    result: Result | None = None
    error: str | None = None


class LogLine(Struct, frozen=True, gc=False):
    """A line that a task logged."""

    at: int
    level: str
    text: str


#: The number of characters of the first line of an error by which dead letters are grouped.
LONGEST_ERROR_LINE = 200


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A task that failed after all its attempts, kept until it is resolved."""

    dead_letter_id: str
    tenant: str
    #: The job, or the workflow if it was run without one.
    job: str
    run_id: RunId
    task_id: TaskId
    step: str
    #: Why there will be no more attempts.
    reason: str
    attempts: int
    last_error: str | None
    #: The input of the run, as JSON. Secrets in it are still references.
    input: bytes | None
    first_attempt_at: int
    last_attempt_at: int
    created_at: int
    resolved_at: int | None = None
    resolved_by: str | None = None
    #: The newest run that replays it.
    replayed_by: RunId | None = None

    @property
    def error_line(self) -> str:
        """The first line of the error, cut to a limited length; empty without an error."""
        return (self.last_error or "").partition("\n")[0][:LONGEST_ERROR_LINE]


class Tick(Struct, frozen=True, kw_only=True, gc=False):
    """A decision as a row of the ledger."""

    uid: ScheduleUid
    tenant: str
    schedule_id: str
    decision: Decision
    key: bytes
    status: TickStatus
    run_id: RunId | None
    decided_at: int
    term: int
    revision: int
    #: When its run started or ended last; None if it has no run, if that waits, or if it is not stored any more.
    run_changed_at: int | None = None

    @property
    def updated_at(self) -> int:
        """When its status was set last."""
        return self.decided_at if self.run_changed_at is None else self.run_changed_at
