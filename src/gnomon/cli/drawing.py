"""A graph of steps in a terminal: each under the last of those that it comes after."""

from collections.abc import Iterator, Sequence

from gnomon.cli.output import print_table, speaks_unicode
from gnomon.cli.readable import first_line, span
from gnomon.core.dag import in_order
from gnomon.core.model import Task
from gnomon.core.states import TERMINAL, TaskState
from gnomon.core.workflow import Step, When, Workflow
from gnomon.services.executions import ExecutionView, StepView
from gnomon.services.run_steps import WAITING, Drawn, run_of, steps_of


def draw(view: ExecutionView, workflow: Workflow) -> None:
    """Print the graph of a run: states, durations, attempts."""
    drawn = {one.step.name: one for one in steps_of(view, workflow)}
    rows = [[label, *_told(drawn[name])] for label, name in outline([one.step for one in drawn.values()])]
    print_table(["step", "state", "took", "attempts", "remarks"], rows)


def draw_definition(workflow: Workflow) -> None:
    """Print the graph of a workflow: what each step does."""
    steps = {step.name: step for step in in_order(workflow)}
    rows = [[label, _does(steps[name]), _terms(steps[name])] for label, name in outline(list(steps.values()))]
    print_table(["step", "does", "remarks"], rows)


def outline(steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Each step as a line of a tree, and its name. A step stands under the last of those that it comes after."""
    places = {step.name: place for place, step in enumerate(steps)}
    below: dict[str | None, list[str]] = {}
    for step in steps:
        above = max(step.depends_on, key=places.__getitem__, default=None)
        below.setdefault(above, []).append(step.name)
    branch, last, along = ("├─ ", "└─ ", "│  ") if speaks_unicode() else ("|- ", "`- ", "|  ")
    ahead = [(name, "", "") for name in reversed(below.get(None, []))]
    while ahead:
        name, lead, under = ahead.pop()
        yield f"{lead}{name}", name
        inner = below.get(name, [])
        ahead += [
            (one, under + (last if one == inner[-1] else branch), under + ("   " if one == inner[-1] else along))
            for one in reversed(inner)
        ]


def _told(drawn: Drawn) -> list[str]:
    view = drawn.view
    if view is None:
        return [WAITING, "", "", _terms(drawn.step)]
    attempts = str(len(view.attempts)) if view.attempts and not drawn.items else ""
    remarks = [
        _terms(drawn.step, asked=not view.task.skipped),
        counted(drawn.items),
        _runs(drawn),
        first_line(view.task.note),
    ]
    return [state_of(view.task), span(took(view)), attempts, "; ".join(one for one in remarks if one)]


def state_of(task: Task) -> str:
    """Where a task stands, in a word or two."""
    if task.skipped:
        return "SKIPPED"
    return f"{task.state} ({task.wait_reason})" if task.state is TaskState.PENDING else task.state.value


def took(view: StepView) -> int | None:
    """How long a step that is over took, from its first attempt to the end of the last."""
    if view.started_at is None or view.ended_at is None or view.task.state not in TERMINAL:
        return None
    return max(0, view.ended_at - view.started_at)


def counted(items: Sequence[StepView]) -> str:
    """How far the items of a step are."""
    if not items:
        return ""
    states = [one.task.state for one in items]
    done = sum(state is TaskState.SUCCEEDED for state in states)
    failed = sum(state in TERMINAL and state is not TaskState.SUCCEEDED for state in states)
    return f"each: {done} of {len(items)} done" + (f", {failed} failed" if failed else "")


def _runs(drawn: Drawn) -> str:
    run_id = run_of(drawn)
    return f"runs {run_id}" if run_id else ""


def _terms(step: Step, *, asked: bool = True) -> str:
    """On what it waits besides the step above it. `asked`: also what must hold."""
    found = [f"after {', '.join(step.depends_on)}"] if len(step.depends_on) > 1 else []
    if step.when is not When.ALL_SUCCESS:
        found.append(f"when {step.when}")
    if asked and step.condition is not None:
        found.append(f"if {first_line(step.condition, 40)}")
    return ", ".join(found)


def _does(step: Step) -> str:
    does = step.function or (f"workflow {step.workflow}" if step.workflow else "")
    if step.command:
        does = first_line(step.command, 40)
    waits = f"waits {span(step.delay_ms)}" if step.delay_ms else f"waits until {step.delay_until}"
    if step.delay_ms is None and step.delay_until is None:
        waits = ""
    each = "" if step.foreach is None else "for each item"
    return ", ".join(one for one in (does, each, waits) if one)
