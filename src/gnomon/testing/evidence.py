"""A history sorted by runs and tasks, for those who judge the work."""

from collections import defaultdict
from dataclasses import dataclass, field

from gnomon.core.model import Result, Run, RunId, Task, TaskId
from gnomon.core.runs.workflow import Delivery, Retry, Step, Workflow
from gnomon.ports.tasks import Held
from gnomon.testing.history import Granted, History, Reported, Witnessed

#: Results that use up an attempt.
COUNTING = (Result.FAILED, Result.GAVE_UP, Result.TIMED_OUT, Result.LOST)
#: A task that takes so many workers down with it has failed, whatever its job says.
LOSSES = 3


@dataclass(slots=True)
class Case:
    """All that is known of one task."""

    run: Run
    task: Task
    #: As it was defined; None if nobody did before the run was over.
    workflow: Workflow | None
    starts: list[Witnessed] = field(default_factory=list)
    grants: list[Granted] = field(default_factory=list)
    reports: list[Reported] = field(default_factory=list)

    @property
    def counted(self) -> list[Reported]:
        """The ends of attempts by record."""
        return [one for one in self.reports if one.counted]

    @property
    def step(self) -> Step | None:
        """What was to be done."""
        return None if self.workflow is None else self.workflow.steps[0]

    @property
    def retry(self) -> Retry | None:
        """How failures are tried again."""
        return None if self.step is None else self.step.retry

    @property
    def only_once(self) -> bool:
        """Whether a second start is out of the question."""
        return self.workflow is not None and self.workflow.delivery is Delivery.AT_MOST_ONCE

    @property
    def name(self) -> str:
        """What its schedule is called."""
        return self.run.schedule_id or self.run.workflow_id


class Evidence:
    """The same history, from the side of the work."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.runs: dict[RunId, Run] = {run.run_id: run for life in history.lives.values() for run in life.runs}
        self.cases: dict[TaskId, Case] = {}
        self.ends: dict[Held, Witnessed] = {one.held: one for one in history.witness if not one.starts}
        #: Starts of bodies that belong to no task on record.
        self.strangers: list[Witnessed] = []
        self.starts_of: dict[RunId, list[Witnessed]] = defaultdict(list)
        for task in history.tasks.values():
            run = self.runs[task.run_id]
            self.cases[task.task_id] = Case(run, task, _defined(history, run))
        for seen in history.witness:
            if not seen.starts:
                continue
            self.starts_of[seen.run_id].append(seen)
            if seen.task_id in self.cases:
                self.cases[seen.task_id].starts.append(seen)
            else:
                self.strangers.append(seen)
        for grant in history.grants:
            if grant.held[0] in self.cases:
                self.cases[grant.held[0]].grants.append(grant)
        for report in history.reports:
            if report.held[0] in self.cases:
                self.cases[report.held[0]].reports.append(report)


def _defined(history: History, run: Run) -> Workflow | None:
    key, flight = (run.workflow_id, run.workflow_version), history.flights.get(run.run_id)
    over = None if flight is None else flight.over
    return None if over is not None and history.defined.get(key, over) >= over else history.workflows.get(key)
