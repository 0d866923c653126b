"""What happened in a simulation, as the checker wants it: what was said, decided and done, by whom and when.

Everything that can be told apart in time has a moment: a number that grows with whatever is written down. Bodies are
told of by a witness, who asks neither the store nor the services.
"""

from dataclasses import dataclass, field

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
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import Pause, Revision
from gnomon.ports.tasks import AttemptRef

#: Among those who were hurt.
EVERYONE = ""
OPERATOR = "operator"
#: For how long a process can be hurt.
MAX_FAULT_MS = 200_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, where, and how."""

    rule: str
    schedule: str
    text: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One schedule's verdict that was carried out."""

    #: Commits are numbered in the order in which the store made them.
    number: int
    uid: ScheduleUid
    schedule: Schedule
    decisions: tuple[Decision, ...]
    #: The wall clock of whoever decided.
    at: int
    #: The same moment on the clock that is never set.
    elapsed_ms: int
    #: None for a decision that an operator's change made.
    term: int | None
    holder: str | None
    #: What the schedule became by an operator's change; None if it was deleted, or nobody changed it.
    changed: Schedule | None = None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """What became of a wish for a run."""

    #: How many commits there were before.
    commits: int
    uid: ScheduleUid
    run_id: RunId
    planned_at: int
    spec: Spec
    force: bool
    became: LaunchOutcome


@dataclass(frozen=True, slots=True)
class RunEndRecord:
    """A run that was over."""

    #: How many commits there were before, the one that ended it included.
    commits: int
    uid: ScheduleUid
    run_id: RunId
    planned_at: int


@dataclass(slots=True)
class RunInterval:
    """A run by record, in moments: when it was made, went on and was over."""

    run_id: RunId
    uid: ScheduleUid
    planned_at: int
    #: The policy under which it was made.
    overlap: Overlap
    forced: bool
    made: int
    went_on: int | None = None
    #: When that was, on the clock that is never set.
    went_on_ms: int = 0
    over: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionObservation:
    """The start of a body, or its end."""

    moment: int
    #: None for a start, and for the end of a body that died with its process.
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
        """The attempt whose body it is."""
        return self.task_id, self.fence


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """An attempt that the store gave to a worker."""

    moment: int
    held: AttemptRef
    worker: str
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """What someone said about the end of an attempt, and what the store made of it."""

    moment: int
    run_id: RunId
    held: AttemptRef
    by: str
    result: Result
    ended_at: int
    elapsed_ms: int
    #: The store said that it counts.
    counted: bool
    #: The task as it was seen before and after.
    before: Task | None
    after: Task | None
    #: Someone had asked for the end of the run.
    stopping: bool


@dataclass(frozen=True, slots=True)
class CancelRecord:
    """A run whose end someone asked for, and was told would come."""

    moment: int
    run_id: RunId
    at: int
    elapsed_ms: int


@dataclass(slots=True)
class RecordedSchedule:
    """Everything about one schedule."""

    uid: ScheduleUid
    revisions: tuple[Revision, ...] = ()
    pauses: tuple[Pause, ...] = ()
    runs: tuple[Run, ...] = ()
    #: How it stood at the end; None if it was deleted.
    final: Schedule | None = None
    #: When it was deleted, if it was.
    deleted_at: int | None = None
    #: The ledger's rows at the end, by planned time.
    ledger: dict[int, Decision] = field(default_factory=dict)
    #: How ticks show at the end that have a run.
    statuses: dict[RunId, TickStatus] = field(default_factory=dict)


@dataclass(slots=True)
class SimulationHistory:
    """A whole simulation."""

    started_at: int
    ended_at: int = 0
    ended_elapsed_ms: int = 0
    moments: int = 0
    commits: list[Commit] = field(default_factory=list)
    lives: dict[ScheduleUid, RecordedSchedule] = field(default_factory=dict)
    #: What filled a schedule's floor and cleared it between commits, in order.
    turns: list[LaunchRecord | RunEndRecord] = field(default_factory=list)
    #: When schedules were deleted, by the wall clock of whoever did it.
    deleted: dict[ScheduleUid, int] = field(default_factory=dict)
    #: Stretches of wall time in which something was broken on purpose: from, to.
    faults: list[tuple[int, int]] = field(default_factory=list)
    #: When the wall clock was set, on the clock that never is.
    clock_set: list[int] = field(default_factory=list)

    # ---- the work ----------------------------------------------------------------------------

    workflows: dict[tuple[str, int], Workflow] = field(default_factory=dict)
    #: When that was.
    defined: dict[tuple[str, int], int] = field(default_factory=dict)
    run_intervals: dict[RunId, RunInterval] = field(default_factory=dict)
    witness: list[ExecutionObservation] = field(default_factory=list)
    grants: list[GrantRecord] = field(default_factory=list)
    #: Attempts whose lease someone found to be over, by the store's clock, and when that was first seen.
    lapsed: dict[AttemptRef, int] = field(default_factory=dict)
    reports: list[ReportRecord] = field(default_factory=list)
    cancelled: list[CancelRecord] = field(default_factory=list)
    #: The states in which tasks were seen, one after the other.
    states: dict[TaskId, list[TaskState]] = field(default_factory=dict)
    #: Who was hurt and when, on the clock that is never set.
    hurt: list[tuple[str, int]] = field(default_factory=list)
    #: Stretches in which a process did nothing, on the clock that is never set.
    stops: list[tuple[str, int, int]] = field(default_factory=list)
    #: When processes died, on the same clock.
    deaths: dict[str, int] = field(default_factory=dict)
    #: At the end.
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    #: Of all tasks that took more than one attempt, or did not succeed.
    attempts: dict[TaskId, list[Attempt]] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def moment(self) -> int:
        """A number that is greater than all before."""
        self.moments += 1
        return self.moments

    def clock_set_between(self, since_ms: int, until_ms: int) -> bool:
        """Whether the wall clock was set between the two, on the clock that never is."""
        return any(since_ms <= at <= until_ms for at in self.clock_set)

    def ran_undisturbed(self, who: str, since_ms: int, until_ms: int) -> bool:
        """Whether a process could do as it pleased between the two, on the clock that is never set."""
        stopped = any(name == who and since <= until_ms and until >= since_ms for name, since, until in self.stops)
        hurt = any(name in (who, EVERYONE) and since_ms - MAX_FAULT_MS <= at <= until_ms for name, at in self.hurt)
        return not stopped and not hurt and self.deaths.get(who, until_ms + 1) > until_ms

    def quiet(self, start: int, end: int) -> bool:
        """Whether nothing was broken between the two."""
        return all(until < start or since > end for since, until in self.faults)
