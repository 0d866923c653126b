"""The nouns of the ledger: frozen values, equal when their contents are equal.

Instants are whole milliseconds since 1970 in UTC and end in `_at`; spans are whole milliseconds and end in `_ms`.
That is how they stand in the store and on the wire, and nothing is gained by anything else in between. None of them can
be part of a cycle, so the garbage collector need not look at them (gc=False).
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from gnomon.core.cron import Cron
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.core.triggers import At, Every, OnDemand, OnEvent

ScheduleUid = NewType("ScheduleUid", str)
RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
#: Who has tasks in hand that no worker needs to carry out: those that wait for items, or for another run.
ENGINE = "gnomon"
DAY_MS = 24 * 60 * MINUTE_MS


class Overlap(StrEnum):
    """What to do about a tick while an earlier run of its schedule goes on."""

    SKIP = "skip"
    ALLOW = "allow"
    #: Run it when the earlier ones have ended, in planned order.
    QUEUE = "queue"
    #: Cancel the earlier ones and run it when they have ended.
    REPLACE = "replace"


class Catchup(StrEnum):
    """Which of several ticks that came due together become runs."""

    #: The newest, if it is late by no more than the grace.
    NONE = "none"
    #: The newest, however late.
    LATEST = "latest"
    #: Every one within the window.
    ALL = "all"
    #: Every one within the window, laid out over the lookahead.
    SPREAD = "spread"


class TickKind(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"


class Reason(StrEnum):
    """Why that became of it."""

    ON_TIME = "on_time"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    BEHIND_A_RUN = "behind_a_run"
    REPLACES_A_RUN = "replaces_a_run"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    PAUSED = "paused"
    #: An operator said so, of this tick alone.
    SKIPPED_ONCE = "skipped_once"
    MOVED = "moved"
    NEWER_TICK = "newer_tick"
    CATCHUP_NONE = "catchup_none"
    WINDOW = "window"


class TickStatus(StrEnum):
    """How a tick shows to those who ask for schedule runs."""

    ENQUEUED = "ENQUEUED"
    STARTED = "STARTED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class RunStatus(StrEnum):
    """How a run shows."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Source(StrEnum):
    """What made a run."""

    CRON = "cron"
    MANUAL = "manual"
    API = "api"
    EVENT = "event"
    #: A planned time in the past.
    BACKFILL = "backfill"


class TickException(Struct, frozen=True, gc=False):
    """What an operator said about one tick: that it is skipped, or moved."""

    planned_at: int
    #: The tick that there is instead, at a time at which there was none.
    moved_to: int | None = None


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """What an operator says about a schedule. Every change of it is a new revision."""

    trigger: Cron | Every | At | OnDemand | OnEvent
    workflow_id: str
    workflow_version: int = 1
    user_id: str = ""
    #: The steps that wait for no other: their tasks are made together with the run.
    first_steps: tuple[str, ...] = (ONLY_STEP,)
    #: Ticks before this are none; the first may be at it.
    start_at: int | None = None
    #: Ticks at or after this are none.
    end_at: int | None = None
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.NONE
    #: How far a fire may be moved from its planned time, either way.
    jitter_ms: int = 0
    #: Late by no more than this is late, not missed.
    misfire_grace_ms: int = MINUTE_MS
    catchup_window_ms: int = DAY_MS
    #: How many ticks of one schedule may fire in one pass.
    catchup_cap: int = 100
    queue_limit: int = 100
    lookahead_ms: int = MINUTE_MS
    #: Of a one-shot: gone once its run has succeeded, paused once it has failed.
    delete_after_run: bool = False
    #: By planned time.
    exceptions: tuple[TickException, ...] = ()

    @property
    def timezone(self) -> str:
        """The zone whose clocks it goes by."""
        return self.trigger.timezone if isinstance(self.trigger, Cron) else "UTC"


class Schedule(Struct, frozen=True, kw_only=True, gc=False):
    """A spec under a name, and how far its ticks have been decided."""

    #: Given once and never again, whatever happens to the name.
    uid: ScheduleUid
    tenant: str = "default"
    schedule_id: str
    spec: Spec
    revision: int = 1
    shard: int
    #: Every tick up to here has been decided.
    mark_at: int
    #: When the next undecided tick is to fire; None while paused and after the last one.
    next_fire_at: int | None
    paused_at: int | None = None
    #: Runs that are not over, queued ones not counted.
    active_runs: int = 0
    queued_runs: int = 0
    created_at: int
    updated_at: int


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one tick, or of a stretch of ticks for one and the same reason."""

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
        """Whether a run belongs to it."""
        return self.fire_at is not None


class Verdict(Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of a schedule's due ticks and where that leaves it: carried out whole, or not at all."""

    #: As it was read. If it has changed since, the verdict is void.
    schedule: Schedule
    decisions: tuple[Decision, ...]
    mark_at: int
    next_fire_at: int | None
    active_runs: int
    queued_runs: int
    #: The runs under way are to be cancelled.
    replaces: bool = False

    @property
    def newest_run_at(self) -> int:
        """The planned time of the newest tick that has a run."""
        return max(decision.planned_at for decision in self.decisions if decision.starts_run)


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One execution of a workflow."""

    run_id: RunId
    tenant: str
    schedule_uid: ScheduleUid | None
    schedule_id: str | None
    workflow_id: str
    workflow_version: int
    user_id: str
    source: Source
    status: RunStatus
    #: Waits for earlier runs of its schedule to end.
    queued: bool
    planned_at: int
    fire_at: int
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    #: Someone asked for its end; it is not over until its tasks are.
    cancel_requested_at: int | None = None
    #: Why it failed or was cancelled.
    error: str | None = None
    #: What its caller named it by; a run of a tick is named by the tick.
    idempotency_key: str | None = None
    #: The dead letter that it tries again.
    replay_of: str | None = None
    #: The task that waits for its end, and how many such runs there are above it.
    parent_task: TaskId | None = None
    depth: int = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status not in (RunStatus.PENDING, RunStatus.RUNNING)


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """One step of a run: what is checked, routed and dispatched."""

    task_id: TaskId
    tenant: str
    run_id: RunId
    step: str
    state: TaskState
    wait_reason: WaitReason
    available_at: int
    created_at: int
    #: Attempts that count: those that failed, ran out of time, or were lost.
    attempts: int = 0
    #: The number of its last attempt: what comes under a lower one is too late.
    fence: int = 0
    #: Attempts that were lost with their worker.
    losses: int = 0
    #: How often nobody could take it.
    routings: int = 0
    #: What it waits for, or why it failed, in words.
    note: str | None = None
    #: The task of which this is one item, and which one.
    parent: TaskId | None = None
    item: int | None = None
    #: It was not to run.
    skipped: bool = False
    #: It never ran, because a step before it did not succeed.
    upstream_failed: bool = False
    #: Of a task with items: how many are not over, and how many did not succeed.
    open_items: int = 0
    failed_items: int = 0


class Result(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: It failed and said that trying again is no use.
    GAVE_UP = "gave_up"
    #: It asked to be called again later.
    SNOOZED = "snoozed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    #: Its worker has not been heard of.
    LOST = "lost"
    #: Its worker was told to stop in the middle of it, and said so.
    INTERRUPTED = "interrupted"
    #: It was handed out, and its worker never asked to start.
    NEVER_STARTED = "never_started"


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One try of a task by one worker."""

    task_id: TaskId
    #: Grows with every attempt of a task, and fences what is reported about it.
    number: int
    worker: str
    #: Until when the worker's word counts without being renewed.
    lease_until: int
    dispatched_at: int
    started_at: int | None = None
    ended_at: int | None = None
    result: Result | None = None
    error: str | None = None


class LogLine(Struct, frozen=True, gc=False):
    """Something that a task said while it ran."""

    at: int
    level: str
    text: str


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A task that has failed for good, kept until someone has dealt with it."""

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
    #: The input of the run, as JSON. Secrets in it are still names.
    input: bytes | None
    first_attempt_at: int
    last_attempt_at: int
    created_at: int
    resolved_at: int | None = None
    resolved_by: str | None = None
    #: The newest run that tries it again.
    replayed_by: RunId | None = None


class Tick(Struct, frozen=True, kw_only=True, gc=False):
    """A decision as it stands in the ledger."""

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
