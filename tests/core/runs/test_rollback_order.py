"""The order of a rollback, computed at once, is the one in which each step would be taken by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.runs.rollback import UndoState, compensation_name, rollback_progress, undo_order
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow


@st.composite
def ended_graphs(draw: st.DrawFn) -> tuple[Workflow, dict[str, UndoState]]:
    """A graph whose steps ended at any times, some of them without a compensation or a success."""
    count = draw(st.integers(1, 8))
    steps, states = [], {}
    for number in range(count):
        needs = draw(st.sets(st.integers(0, number - 1))) if number else set()
        undo = Step(name=f"compensate:s{number}", function="f") if draw(st.booleans()) else None
        depends_on = tuple(f"s{one}" for one in sorted(needs))
        steps.append(Step(name=f"s{number}", function="f", depends_on=depends_on, compensate=undo))
        state = draw(st.sampled_from((TaskState.SUCCEEDED, TaskState.SUCCEEDED, TaskState.FAILED)))
        states[f"s{number}"] = UndoState(state=state, ended_at=draw(st.integers(0, 3)))
    return Workflow(workflow_id="w", version=1, steps=tuple(steps)), states


@pytest.mark.req("R-09")
@given(ended_graphs())
def test_the_order_at_once_is_the_order_one_by_one(case: tuple[Workflow, dict[str, UndoState]]) -> None:
    workflow, states = case
    places = {step.name: place for place, step in enumerate(workflow.steps)}
    taken, seen = [], dict(states)
    while (name := rollback_progress(workflow, seen, places).undo) is not None:
        taken.append(name)
        seen[compensation_name(name)] = UndoState(state=TaskState.SUCCEEDED, ended_at=9)
    assert undo_order(workflow, states, places) == taken
