"""Builds histories by hand, attempt by attempt, to test the checker with correct and incorrect ones."""

from typing import Any

from msgspec.structs import replace

from gnomon.core.model import (
    Attempt,
    DeadLetter,
    Overlap,
    Result,
    Run,
    RunId,
    RunSource,
    RunStatus,
    Schedule,
    ScheduleUid,
    Spec,
    Task,
    TaskId,
)
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.schedules import Revision
from gnomon.testing.history import (
    CancelRecord,
    ExecutionObservation,
    GrantRecord,
    LaunchRecord,
    RecordedSchedule,
    ReportRecord,
    RunEndRecord,
    RunInterval,
    SimulationHistory,
)

NOON = 1_790_000_000_000
SCHEDULE_UID = ScheduleUid("sch_1")
_STATUS = {TaskState.SUCCEEDED: RunStatus.COMPLETED, TaskState.CANCELLED: RunStatus.CANCELLED}


class HistoryBuilder:
    """One job whose runs are triggered by hand. Every call takes a second."""

    def __init__(self, *, overlap: Overlap = Overlap.ALLOW, **workflow: Any) -> None:  # noqa: ANN401 - any field
        step = Step(name=ONLY_STEP, function="work", retry=workflow.pop("retry", None))
        self.history = SimulationHistory(started_at=NOON)
        self.history.workflows["work", 1] = Workflow(workflow_id="work", version=1, steps=(step,), **workflow)
        self.history.defined["work", 1] = 0
        self.spec = Spec(trigger=OnDemand(), workflow_id="work", overlap=overlap)
        self.runs: dict[str, Run] = {}
        self.tasks: dict[str, Task] = {}
        self.seconds = 0

    @property
    def now(self) -> int:
        return NOON + 1000 * self.seconds

    def _next_moment(self) -> int:
        self.seconds += 1
        return self.history.moment()

    def wait(self, seconds: int) -> "HistoryBuilder":
        self.seconds += seconds
        return self

    # ---- runs --------------------------------------------------------------------------------

    def run(
        self, name: str, *, queued: bool = False, force: bool = False, replay_of: str | None = None
    ) -> "HistoryBuilder":
        """Trigger a run."""
        moment, run_id = self._next_moment(), RunId(f"run_{name}")
        self.runs[name] = Run(
            run_id=run_id,
            tenant="default",
            schedule_uid=SCHEDULE_UID,
            schedule_id="job",
            workflow_id="work",
            workflow_version=1,
            user_id="",
            source=RunSource.MANUAL,
            status=RunStatus.PENDING,
            queued=queued,
            planned_at=self.now,
            fire_at=self.now,
            created_at=self.now,
            replay_of=replay_of,
        )
        task_id = TaskId(f"task_{name}")
        self.tasks[name] = Task(
            task_id=task_id,
            tenant="default",
            run_id=run_id,
            step=ONLY_STEP,
            state=TaskState.PENDING,
            wait_reason=WaitReason.QUEUE if queued else WaitReason.READY,
            available_at=self.now,
            created_at=self.now,
        )
        self.history.states[task_id] = [TaskState.PENDING]
        self.history.run_intervals[run_id] = RunInterval(
            run_id=run_id, uid=SCHEDULE_UID, planned_at=self.now, overlap=self.spec.overlap, forced=force, made=moment
        )
        outcome = LaunchOutcome.QUEUED if queued else LaunchOutcome.STARTED
        self.history.run_changes.append(LaunchRecord(0, SCHEDULE_UID, run_id, self.now, self.spec, force, outcome))
        return self if queued else self.released(name)

    def released(self, name: str) -> "HistoryBuilder":
        """Release a queued run."""
        self.runs[name] = replace(self.runs[name], queued=False)
        interval = self.history.run_intervals[self.runs[name].run_id]
        interval.activated, interval.activated_ms = self._next_moment(), 1000 * self.seconds
        return self

    def cancelled(self, name: str) -> "HistoryBuilder":
        """Request the cancellation of the run."""
        run = self.runs[name]
        self.history.cancelled.append(CancelRecord(self._next_moment(), run.run_id, self.now, 1000 * self.seconds))
        if self.tasks[name].state is not TaskState.RUNNING:
            self.becomes(name, TaskState.CANCELLED)
        return self

    # ---- attempts ----------------------------------------------------------------------------

    def becomes(self, name: str, state: TaskState, **changes: Any) -> "HistoryBuilder":  # noqa: ANN401 - any field of the task
        """Record another state of the task; a final one also ends its run."""
        task = self.tasks[name] = replace(self.tasks[name], state=state, **changes)
        self.history.states[task.task_id].append(state)
        if state in TERMINAL:
            self.over(name, _STATUS.get(state, RunStatus.FAILED))
        return self

    def over(self, name: str, status: RunStatus) -> None:
        run = self.runs[name] = replace(self.runs[name], status=status, queued=False, completed_at=self.now)
        self.history.run_intervals[run.run_id].over = self._next_moment()
        self.history.run_changes.append(RunEndRecord(0, SCHEDULE_UID, run.run_id, run.planned_at))

    def taken(self, name: str, worker: str = "w1") -> "HistoryBuilder":
        """Record that a worker takes the task."""
        fence = self.tasks[name].fence + 1
        self.becomes(name, TaskState.SCHEDULED).becomes(name, TaskState.RUNNING, fence=fence)
        held = self.tasks[name].task_id, fence
        self.history.grants.append(GrantRecord(self._next_moment(), held, worker, 1000 * self.seconds))
        attempt = Attempt(
            task_id=held[0], number=fence, worker=worker, lease_until=self.now + 180_000, dispatched_at=self.now
        )
        self.history.attempts.setdefault(held[0], []).append(attempt)
        self.runs[name] = replace(self.runs[name], status=RunStatus.RUNNING, started_at=self.now)
        return self

    def begins(self, name: str, worker: str = "w1", fence: int | None = None) -> "HistoryBuilder":
        """Record the start of a body."""
        return self._witnessed(name, worker, fence, starts=True, result=None)

    def ends(self, name: str, result: Result | None, worker: str = "w1", fence: int | None = None) -> "HistoryBuilder":
        """Record the end of a body."""
        return self._witnessed(name, worker, fence, starts=False, result=result)

    def _witnessed(
        self, name: str, worker: str, fence: int | None, *, starts: bool, result: Result | None
    ) -> "HistoryBuilder":
        task, moment = self.tasks[name], self._next_moment()
        number, elapsed = task.fence if fence is None else fence, 1000 * self.seconds
        seen = ExecutionObservation(
            moment, result, starts, task.run_id, task.task_id, number, worker, self.now, elapsed
        )
        self.history.observations.append(seen)
        return self

    def reported(
        self,
        name: str,
        result: Result,
        state: TaskState,
        *,
        by: str = "w1",
        delay_ms: int = 0,
        **changes: Any,  # noqa: ANN401
    ) -> "HistoryBuilder":
        """Record an accepted report of the newest attempt."""
        before, held = self.tasks[name], (self.tasks[name].task_id, self.tasks[name].fence)
        counts = result in (Result.FAILED, Result.GAVE_UP, Result.TIMED_OUT, Result.LOST)
        moment, ended_at = self._next_moment(), self.now
        self.becomes(name, state, available_at=ended_at + delay_ms, attempts=before.attempts + counts, **changes)
        self._report(moment, name, held, by, result, ended_at, counted=True, before=before)
        return self

    def late(self, name: str, fence: int, result: Result, *, by: str = "w1", changed: bool = False) -> "HistoryBuilder":
        """Record a late report, which must have no effect."""
        before, moment = self.tasks[name], self._next_moment()
        if changed:
            self.becomes(name, TaskState.SUCCEEDED)
        held = before.task_id, fence
        self._report(moment, name, held, by, result, self.now, counted=False, before=before)
        return self

    def _report(
        self,
        moment: int,
        name: str,
        held: tuple[TaskId, int],
        by: str,
        result: Result,
        ended_at: int,
        *,
        counted: bool,
        before: Task,
    ) -> None:
        run = self.runs[name]
        self.history.reports.append(
            ReportRecord(
                moment=moment,
                run_id=run.run_id,
                held=held,
                by=by,
                result=result,
                ended_at=ended_at,
                elapsed_ms=ended_at - NOON,
                counted=counted,
                before=before,
                after=self.tasks[name],
                stopping=any(one.run_id == run.run_id for one in self.history.cancelled),
            )
        )

    def lapsed(self, name: str) -> "HistoryBuilder":
        """Record that the lease of the newest attempt has expired."""
        self.history.lapsed[self.tasks[name].task_id, self.tasks[name].fence] = self._next_moment()
        return self

    def letter(self, name: str, *, resolved: bool = False) -> "HistoryBuilder":
        """Record a dead letter of the task."""
        made = DeadLetter(
            dead_letter_id=f"dl_{name}",
            tenant="default",
            job="job",
            run_id=self.runs[name].run_id,
            task_id=self.tasks[name].task_id,
            step=ONLY_STEP,
            reason="",
            attempts=1,
            last_error=None,
            input=None,
            first_attempt_at=NOON,
            last_attempt_at=NOON,
            created_at=NOON,
            resolved_at=self.now if resolved else None,
        )
        self.history.dead_letters.append(made)
        return self

    def success(self, name: str, worker: str = "w1") -> "HistoryBuilder":
        """Record a whole successful execution of a ready run."""
        self.taken(name, worker).begins(name, worker).ends(name, Result.SUCCEEDED, worker)
        return self.reported(name, Result.SUCCEEDED, TaskState.SUCCEEDED, by=worker)

    # ---- the end -----------------------------------------------------------------------------

    def build(self) -> SimulationHistory:
        """The history with the final states."""
        going = [run for run in self.runs.values() if not run.over]
        schedule = Schedule(
            uid=SCHEDULE_UID, schedule_id="job", spec=self.spec, shard=0, mark_at=NOON, next_fire_at=None,
            created_at=NOON, updated_at=NOON,
        )  # fmt: skip
        revision = Revision(revision=1, schedule=schedule, from_at=NOON, actor="", tzdata="")
        waiting = sum(run.queued for run in going)
        final = replace(schedule, active_runs=len(going) - waiting, queued_runs=waiting)
        runs = tuple(self.runs.values())
        self.history.schedules[SCHEDULE_UID] = RecordedSchedule(
            uid=SCHEDULE_UID, revisions=(revision,), runs=runs, final=final
        )
        self.history.tasks = {task.task_id: task for task in self.tasks.values()}
        self.history.ended_at, self.history.ended_elapsed_ms = self.now, 1000 * self.seconds
        return self.history
