"""The part of a run's input that a function gets: all of it as the only step, and of several steps what it can take."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.model import RunSource
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import Step
from gnomon.runners.arguments import ArgumentBinder
from runners.runner_harness import assignment

GIVEN = {"date": "today", "rows": [1]}


def in_a_graph(given: dict[str, Any], **own: Any) -> Assignment:  # noqa: ANN401 - any input
    """An assignment of a workflow with another step."""
    made = assignment("f", given)
    step = Step(name="load", function="f", input=own)
    workflow = replace(made.workflow, steps=(Step(name="other", function="g"), step))
    return replace(made, workflow=workflow, step=step)


def by_event(given: dict[str, Any]) -> Assignment:
    made = assignment("f", given)
    return replace(made, run=replace(made.run, source=RunSource.EVENT))


def test_the_only_function_of_a_job_is_given_everything() -> None:
    assert ArgumentBinder(lambda rows: rows).wanted(assignment("f", GIVEN)) == GIVEN


def test_a_function_of_a_graph_is_given_what_it_has_parameters_for() -> None:
    assert ArgumentBinder(lambda rows: rows).wanted(in_a_graph(GIVEN)) == {"rows": [1]}


def test_arguments_of_the_own_step_are_never_left_out() -> None:
    given = {**GIVEN, "typo": 1}

    assert ArgumentBinder(lambda rows: rows).wanted(in_a_graph(given, typo=1)) == {"rows": [1], "typo": 1}


def test_a_function_that_takes_anything_is_given_everything() -> None:
    assert ArgumentBinder(lambda **given: given).wanted(in_a_graph(GIVEN)) == GIVEN


@pytest.mark.parametrize(
    ("function", "names"),
    [(lambda model: model, {"model"}), (lambda model, event: (model, event), {"model", "event"})],
)
def test_a_function_that_an_event_starts_need_not_take_the_event(function: Callable[..., Any], names: set[str]) -> None:
    assert set(ArgumentBinder(function).wanted(by_event({"model": "zen", "event": {"id": "evt_1"}}))) == names
