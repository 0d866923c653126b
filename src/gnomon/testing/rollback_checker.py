"""Check rollbacks: every effect is undone once, one after the other, in the reverse order of the successes.

The rule is R-09. It looks at the rows of a history, and shares no code with the decisions that it checks.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from gnomon.core.model import Attempt, Result, Run, Task, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.testing.history import Violation

_RULE = "R-09"
_EFFECTIVE = (TaskState.SUCCEEDED, TaskState.OUTPUT_QUARANTINED)
_OPEN = (TaskState.PENDING, TaskState.APPROVAL_REQUIRED, TaskState.SCHEDULED, TaskState.DISPATCHED, TaskState.RUNNING)


def check_rollbacks(
    runs: Sequence[Run],
    workflow: Workflow,
    tasks: Sequence[Task],
    attempts: Mapping[TaskId, Sequence[Attempt]],
) -> list[Violation]:
    """All violations by these runs of the workflow. `tasks` and `attempts` are all of theirs."""
    found = []
    for run in runs:
        own = {task.step: task for task in tasks if task.run_id == run.run_id and task.parent is None}
        case = _RolledBackRun(run, workflow, own, attempts)
        found += [Violation(_RULE, run.run_id, text) for text in case.problems()]
    return found


class _RolledBackRun:
    def __init__(
        self, run: Run, workflow: Workflow, tasks: Mapping[str, Task], attempts: Mapping[TaskId, Sequence[Attempt]]
    ) -> None:
        self._run, self._tasks, self._attempts = run, tasks, attempts
        self._with_compensation = {step.name for step in workflow.steps if step.compensate is not None}
        self._needs = {step.name: set(step.depends_on) for step in workflow.steps}
        self._undoing = [task for name, task in tasks.items() if name.startswith("compensate:")]

    def problems(self) -> Iterator[str]:
        """The violations in words."""
        if self._run.rollback is None:
            if self._undoing:
                yield f"{len(self._undoing)} compensations without a rollback"
            return
        yield from self._undone_once()
        yield from self._one_after_the_other()
        yield from self._backwards()

    def _undone_once(self) -> Iterator[str]:
        undone = Counter(_undone(task) for task in self._undoing if task.state is TaskState.SUCCEEDED)
        for name, count in undone.items():
            if count > 1:
                yield f"{name} is undone {count} times"
        for task in self._undoing:
            of = self._tasks.get(_undone(task))
            if of is None or of.state not in _EFFECTIVE:
                yield f"{_undone(task)} is undone, and has no effect"
            successes = [one for one in self._attempts.get(task.task_id, ()) if one.result is Result.SUCCEEDED]
            if len(successes) != (task.state is TaskState.SUCCEEDED):
                yield f"{task.step} is {task.state}, and has succeeded {len(successes)} times"
        left = {name for name in self._with_compensation if self._has_effect(name)} - undone.keys()
        open_ = [task.step for task in self._undoing if task.state in _OPEN]
        if self._run.rollback == "complete" and (left or open_):
            yield f"its rollback is complete, without {sorted(left)} and with {open_} under way"
        if self._run.rollback == "incomplete" and not left:
            yield "its rollback is incomplete, and everything is undone"

    def _has_effect(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and task.state in _EFFECTIVE

    def _ran(self) -> list[tuple[int, Task]]:
        """The compensations with an attempt that began, in the order in which the first of these began."""
        starts = {
            task.task_id: [one.started_at for one in self._attempts.get(task.task_id, ()) if one.started_at is not None]
            for task in self._undoing
        }
        began = [(min(starts[task.task_id]), task) for task in self._undoing if starts[task.task_id]]
        return sorted(began, key=lambda one: (one[0], one[1].created_at))

    def _one_after_the_other(self) -> Iterator[str]:
        for (_, before), (began, after) in pairwise(self._ran()):
            ended = max((one.ended_at or began + 1 for one in self._attempts[before.task_id]), default=began)
            if ended > began or before.state in _OPEN:
                yield f"{after.step} began before {before.step} was over"

    def _backwards(self) -> Iterator[str]:
        for (_, before), (_, after) in pairwise(self._ran()):
            first, then = _undone(before), _undone(after)
            if before.step.partition("#")[2] != after.step.partition("#")[2] or not self._both_known(first, then):
                continue
            if then in self._above(first):
                continue
            if first in self._above(then):
                yield f"{first} was undone before {then}, which depends on it"
            elif self._tasks[first].available_at < self._tasks[then].available_at and not self._held_back(then, first):
                yield f"{first} was undone before {then}, which has succeeded after it"

    def _both_known(self, *names: str) -> bool:
        return all(name in self._tasks for name in names)

    def _above(self, name: str) -> set[str]:
        """Every step that the step depends on, directly or not."""
        found, ahead = set[str](), list(self._needs.get(name, ()))
        while ahead:
            if (one := ahead.pop()) not in found:
                found.add(one)
                ahead += self._needs.get(one, ())
        return found

    def _held_back(self, name: str, until: str) -> bool:
        """Whether a step that depends on this one was undone no earlier than `until`: clocks may differ."""
        order = [_undone(task) for _, task in self._ran()]
        return any(name in self._above(one) for one in order[order.index(until) :] if one != name)


def _undone(task: Task) -> str:
    return task.step.removeprefix("compensate:").partition("#")[0]
