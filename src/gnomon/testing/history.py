"""The history of a simulation, as input for the checker: requests, decisions and executions, with actor and time.

Every record has a moment, a number that grows with each record. An observer records the executions of functions; it
reads neither the store nor the services.
"""

from dataclasses import dataclass, field

from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.model import (
    Attempt,
    DeadLetter,
    Decision,
    Overlap,
    Result,
    Run,
    RunId,
    Schedule,
    ScheduleUid,
    Spec,
    Task,
    TaskId,
    TickStatus,
)
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import Pause, Revision
from gnomon.ports.tasks import AttemptRef
from gnomon.testing.policy_history import PolicyHistory

#: Stands for all processes in `disturbances`.
EVERYONE = ""
OPERATOR = "operator"
#: The longest effect of a fault on a process.
MAX_FAULT_MS = 200_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of a rule: the rule, the schedule, and a description."""

    rule: str
    schedule: str
    text: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed verdict on one schedule."""

    #: The position in the order of commits.
    number: int
    uid: ScheduleUid
    schedule: Schedule
    decisions: tuple[Decision, ...]
    #: The wall clock of the process that decided.
    at: int
    #: The same time on the monotonic clock.
    elapsed_ms: int
    #: None for a decision that an operator's change made.
    term: int | None
    holder: str | None
    #: The schedule after an operator's change; None if it was deleted, or if this is no change.
    changed: Schedule | None = None


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """A mark that was ahead of the clock, and was set back."""

    #: The number of commits before it.
    commits: int
    uid: ScheduleUid
    revision: int
    to_at: int


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch and its outcome."""

    #: The number of commits before it.
    commits: int
    uid: ScheduleUid
    run_id: RunId
    planned_at: int
    spec: Spec
    force: bool
    outcome: LaunchOutcome
    #: It is queued where the overlap policy would refuse it.
    waits: bool = False


@dataclass(frozen=True, slots=True)
class RunEndRecord:
    """The end of a run."""

    #: The number of commits before it, including the one that ended it.
    commits: int
    uid: ScheduleUid
    run_id: RunId
    planned_at: int


@dataclass(slots=True)
class RunInterval:
    """The moments in which a run was created, activated and ended, as recorded by the store."""

    run_id: RunId
    uid: ScheduleUid
    planned_at: int
    #: The overlap policy when it was created.
    overlap: Overlap
    forced: bool
    made: int
    activated: int | None = None
    #: The activation on the monotonic clock.
    activated_ms: int = 0
    over: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionObservation:
    """The start or the end of a function."""

    moment: int
    #: None for a start, and for the end of a function whose process died.
    result: Result | None
    starts: bool
    run_id: RunId
    task_id: TaskId
    fence: int
    worker: str
    at: int
    elapsed_ms: int

    @property
    def held(self) -> AttemptRef:
        """The attempt that it belongs to."""
        return self.task_id, self.fence


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """An attempt that the store assigned to a worker."""

    moment: int
    held: AttemptRef
    worker: str
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A report on the end of an attempt, and whether the store accepted it."""

    moment: int
    run_id: RunId
    held: AttemptRef
    by: str
    result: Result
    ended_at: int
    elapsed_ms: int
    #: Whether the store accepted it.
    counted: bool
    #: The task before and after the report.
    before: Task | None
    after: Task | None
    #: Whether a cancellation of the run had been requested.
    stopping: bool


@dataclass(frozen=True, slots=True)
class CancelRecord:
    """An accepted request to cancel a run."""

    moment: int
    run_id: RunId
    at: int
    elapsed_ms: int


@dataclass(slots=True)
class RecordedSchedule:
    """One schedule with its revisions, pauses, runs and ledger at the end of the simulation."""

    uid: ScheduleUid
    revisions: tuple[Revision, ...] = ()
    pauses: tuple[Pause, ...] = ()
    runs: tuple[Run, ...] = ()
    #: The schedule at the end; None if it was deleted.
    final: Schedule | None = None
    #: When it was deleted; None if it was not.
    deleted_at: int | None = None
    #: The rows of the ledger at the end, by planned time.
    ledger: dict[int, Decision] = field(default_factory=dict)
    #: The status of each tick with a run at the end.
    statuses: dict[RunId, TickStatus] = field(default_factory=dict)


@dataclass(slots=True)
class SimulationHistory:
    """All records of a simulation."""

    started_at: int
    ended_at: int = 0
    ended_elapsed_ms: int = 0
    #: How many overdue ticks of a schedule may start within an interval.
    catchup_limit: CatchupLimit = DEFAULT_LIMIT
    moments: int = 0
    commits: list[Commit] = field(default_factory=list)
    marks_set_back: list[MarkRecord] = field(default_factory=list)
    schedules: dict[ScheduleUid, RecordedSchedule] = field(default_factory=dict)
    #: Launches and ends of runs, in order with the number of commits before each.
    run_changes: list[LaunchRecord | RunEndRecord] = field(default_factory=list)
    #: When schedules were deleted, on the wall clock of the process that did it.
    deleted: dict[ScheduleUid, int] = field(default_factory=dict)
    #: Intervals of wall time with injected faults: from, to.
    faults: list[tuple[int, int]] = field(default_factory=list)
    #: When the wall clock was set, on the monotonic clock.
    clock_set: list[int] = field(default_factory=list)

    # ---- execution ---------------------------------------------------------------------------

    workflows: dict[tuple[str, int], Workflow] = field(default_factory=dict)
    #: The moment of each definition.
    defined: dict[tuple[str, int], int] = field(default_factory=dict)
    run_intervals: dict[RunId, RunInterval] = field(default_factory=dict)
    observations: list[ExecutionObservation] = field(default_factory=list)
    grants: list[GrantRecord] = field(default_factory=list)
    #: Attempts that the reconciler read with an expired lease, by the store's clock, and the moment of the first time.
    lapsed: dict[AttemptRef, int] = field(default_factory=dict)
    reports: list[ReportRecord] = field(default_factory=list)
    cancelled: list[CancelRecord] = field(default_factory=list)
    #: Tasks that were ended by their deadlines while they waited, and when on the wall clock.
    deadline_ends: dict[TaskId, int] = field(default_factory=dict)
    #: The observed states of each task, in order.
    states: dict[TaskId, list[TaskState]] = field(default_factory=dict)
    #: Processes that a fault affected, and when on the monotonic clock.
    disturbances: list[tuple[str, int]] = field(default_factory=list)
    #: Intervals in which a process was frozen, on the monotonic clock.
    stops: list[tuple[str, int, int]] = field(default_factory=list)
    #: When processes died, on the monotonic clock.
    deaths: dict[str, int] = field(default_factory=dict)
    #: The tasks at the end.
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    #: The attempts of tasks that needed more than one, or did not succeed.
    attempts: dict[TaskId, list[Attempt]] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    #: Whether a policy was in force all the time; and the rulings about each task at the end.
    ruled: bool = False
    rulings: dict[TaskId, tuple[StoredRuling, ...]] = field(default_factory=dict)
    #: The policy, approvals and breakers; None if the nodes have no policy.
    policy: PolicyHistory | None = None

    def moment(self) -> int:
        """A new moment, greater than all before."""
        self.moments += 1
        return self.moments

    def clock_set_between(self, since_ms: int, until_ms: int) -> bool:
        """Whether the wall clock was set between these times on the monotonic clock."""
        return any(since_ms <= at <= until_ms for at in self.clock_set)

    def ran_undisturbed(self, who: str, since_ms: int, until_ms: int) -> bool:
        """Whether a process was alive and no fault affected it between these times on the monotonic clock."""
        stopped = any(name == who and since <= until_ms and until >= since_ms for name, since, until in self.stops)
        disturbed = any(
            name in (who, EVERYONE) and since_ms - MAX_FAULT_MS <= at <= until_ms for name, at in self.disturbances
        )
        return not stopped and not disturbed and self.deaths.get(who, until_ms + 1) > until_ms

    def quiet(self, start: int, end: int) -> bool:
        """Whether no fault was injected between these wall-clock times."""
        return all(until < start or since > end for since, until in self.faults)
