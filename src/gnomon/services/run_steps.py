"""The steps of a run in the order of their graph, each with all that has become of it."""

from msgspec import Struct

from gnomon.core.runs.dag import in_order
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.services.executions import ExecutionView, StepView

#: The state of a step that has no task yet.
WAITING = "waiting"


class Drawn(Struct, frozen=True, kw_only=True):
    """A step of a run with all that has become of it."""

    step: Step
    #: None as long as its turn has not come.
    view: StepView | None = None
    items: tuple[StepView, ...] = ()


def steps_of(view: ExecutionView, workflow: Workflow) -> list[Drawn]:
    """Every step of the workflow, each after those that it depends on, with its tasks."""
    own = {one.task.step: one for one in view.steps if one.task.parent is None}
    items: dict[str, list[StepView]] = {}
    for one in view.steps:
        if one.task.parent is not None:
            items.setdefault(one.task.step, []).append(one)
    return [
        Drawn(
            step=step,
            view=own.get(step.name),
            items=tuple(sorted(items.get(step.name, ()), key=lambda one: one.task.item or 0)),
        )
        for step in in_order(workflow)
    ]


def run_of(drawn: Drawn) -> str | None:
    """The execution that a step has started and waits for, or has waited for."""
    view = drawn.view
    if drawn.step.workflow is None or view is None or not view.attempts or drawn.items:
        return None
    return sub_run_id(view.task)
