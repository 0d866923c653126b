"""A history indexed by runs and tasks, for the checks of their execution."""

from collections import defaultdict
from dataclasses import dataclass, field

from gnomon.core.model import Result, Run, RunId, Task, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, RetryPolicy, Step, Workflow
from gnomon.ports.tasks import AttemptRef
from gnomon.testing.history import ExecutionObservation, GrantRecord, ReportRecord, SimulationHistory

#: Results that use up an attempt.
COUNTING = (Result.FAILED, Result.GAVE_UP, Result.TIMED_OUT, Result.LOST)
#: A rule that is broken, and how.
Finding = tuple[str, str]
#: A task that is lost with its worker this often has failed, regardless of its retry policy.
LOSSES = 3


@dataclass(slots=True)
class TaskHistory:
    """The task with all records about it."""

    run: Run
    task: Task
    #: Its definition; None if it was defined only after the run had ended.
    workflow: Workflow | None
    starts: list[ExecutionObservation] = field(default_factory=list)
    grants: list[GrantRecord] = field(default_factory=list)
    reports: list[ReportRecord] = field(default_factory=list)

    @property
    def counted(self) -> list[ReportRecord]:
        """The reports that counted: one for each attempt that ended."""
        return [one for one in self.reports if one.counted]

    @property
    def by_deadline(self) -> bool:
        """Whether its deadline ended it, as its note says."""
        return self.task.state is TaskState.TIMEOUT and (self.task.note or "").startswith("its deadline passed at ")

    @property
    def step(self) -> Step | None:
        """The step of the task."""
        return None if self.workflow is None else self.workflow.steps[0]

    @property
    def retry(self) -> RetryPolicy | None:
        """The retry policy of the step."""
        return None if self.step is None else self.step.retry

    @property
    def only_once(self) -> bool:
        """Whether the task may be started only once."""
        return self.workflow is not None and self.workflow.delivery is Delivery.AT_MOST_ONCE

    @property
    def name(self) -> str:
        """The name of its schedule, or of its workflow."""
        return self.run.schedule_id or self.run.workflow_id


class HistoryIndex:
    """The runs, tasks and observations of a history by their ids."""

    def __init__(self, history: SimulationHistory) -> None:
        self.history = history
        self.runs: dict[RunId, Run] = {run.run_id: run for one in history.schedules.values() for run in one.runs}
        self.cases: dict[TaskId, TaskHistory] = {}
        self.ends: dict[AttemptRef, ExecutionObservation] = {
            one.held: one for one in history.observations if not one.starts
        }
        #: Starts of functions whose task is not recorded.
        self.unknown_observations: list[ExecutionObservation] = []
        self.starts_of: dict[RunId, list[ExecutionObservation]] = defaultdict(list)
        for task in history.tasks.values():
            run = self.runs[task.run_id]
            self.cases[task.task_id] = TaskHistory(run, task, _defined(history, run))
        for seen in history.observations:
            if not seen.starts:
                continue
            self.starts_of[seen.run_id].append(seen)
            if seen.task_id in self.cases:
                self.cases[seen.task_id].starts.append(seen)
            else:
                self.unknown_observations.append(seen)
        for grant in history.grants:
            if grant.held[0] in self.cases:
                self.cases[grant.held[0]].grants.append(grant)
        for report in history.reports:
            if report.held[0] in self.cases:
                self.cases[report.held[0]].reports.append(report)


def _defined(history: SimulationHistory, run: Run) -> Workflow | None:
    key, interval = (run.workflow_id, run.workflow_version), history.run_intervals.get(run.run_id)
    over = None if interval is None else interval.over
    return None if over is not None and history.defined.get(key, over) >= over else history.workflows.get(key)
