"""Which steps surely follow on the end of another, and what preparing a step may cost."""

from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.core.model import Result, Run, RunId, RunSource, RunStatus
from gnomon.core.runs.admission import Admission, AdmissionRequest, ReadyTask
from gnomon.core.runs.launch import first_tasks
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, complete_attempt
from gnomon.core.runs.prepare import (
    LARGEST_REPETITION,
    PreparedTask,
    count_references,
    has_other_successors,
    immediate_successors,
    output_owners,
    prepare_task,
)
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy, Step, When, Workflow
from support.counted_calls import counted_calls

NOON = 1_772_452_800_000
RUN = Run(
    run_id=RunId("run_a"),
    tenant="default",
    schedule_uid=None,
    schedule_id=None,
    workflow_id="report",
    workflow_version=1,
    user_id="ada",
    source=RunSource.MANUAL,
    status=RunStatus.RUNNING,
    queued=False,
    planned_at=NOON,
    fire_at=NOON,
    created_at=NOON,
)
FIRST = Step(name="first", function="f", retry=RetryPolicy(max_attempts=2))


def following(*steps: Step, result: Result = Result.SUCCEEDED, **said: Any) -> list[str]:  # noqa: ANN401
    _, sure = ended_first(*steps, result=result, **said)
    return [one.task.step for one in sure]


def ended_first(
    *steps: Step,
    result: Result = Result.SUCCEEDED,
    **said: Any,  # noqa: ANN401
) -> tuple[Assignment, list[ReadyTask]]:
    """The first step, in hand, and what surely follows on its end."""
    workflow = Workflow(workflow_id="report", version=1, steps=(FIRST, *steps), **said)
    [task] = first_tasks(RUN, ("first",), now=NOON)
    held = Assignment(task=task, run=RUN, workflow=workflow, step=FIRST, input={}, given=b"{}")
    return held, immediate_successors(
        held, complete_attempt(held, AttemptOutcome(result=result), now=NOON + 5, limits=GiveUpLimits())
    )


def after(**said: Any) -> Step:  # noqa: ANN401 - any field of a step
    return Step(**{"name": "next", "function": "f", "depends_on": ("first",), **said})


def test_a_step_that_depends_on_nothing_else_surely_follows() -> None:
    assert following(after()) == ["next"]


def test_all_steps_that_depend_on_nothing_else_surely_follow() -> None:
    assert following(after(), after(name="other")) == ["next", "other"]


def test_a_step_may_take_the_output_of_the_one_before_it() -> None:
    assert following(after(input={"path": "${steps.first.output.path}"})) == ["next"]


@pytest.mark.parametrize(
    "step",
    [
        after(depends_on=("first", "second")),
        after(depends_on=()),
        after(when=When.ANY_FAILED),
        after(condition="steps.first.output == 1"),
        after(foreach=[1, 2]),
        after(delay_ms=1000),
        after(delay_until="2030-01-01T00:00:00Z"),
        after(function="", workflow="other"),
        after(input={"path": "${steps.second.output.path}"}),
    ],
    ids=["two", "none", "failed", "condition", "foreach", "delay", "delay until", "workflow", "another output"],
)
def test_a_step_with_other_dependencies_is_no_sure_successor(step: Step) -> None:
    assert following(step, Step(name="second", function="f")) == []


def test_where_few_steps_may_run_at_once_nothing_surely_follows() -> None:
    assert following(after(), max_parallel=1) == []


@pytest.mark.parametrize("result", [Result.FAILED, Result.GAVE_UP, Result.SNOOZED, Result.CANCELLED])
def test_nothing_surely_follows_on_anything_but_success(result: Result) -> None:
    assert following(after(when=When.ALL_DONE), result=result) == []


def test_a_step_whose_followers_all_surely_follow_leads_no_further() -> None:
    assert not has_other_successors(*ended_first(after(), after(name="other"), Step(name="else", function="f")))


@pytest.mark.parametrize(
    "steps",
    [(), (after(depends_on=("first", "second")),), (after(), after(name="other", depends_on=("first", "next")))],
    ids=["the last one", "one that waits for another", "one of two"],
)
def test_a_step_leads_further_if_the_run_ends_with_it_or_others_wait_for_it(steps: tuple[Step, ...]) -> None:
    assert has_other_successors(*ended_first(*steps))


# ---- the cost of a step --------------------------------------------------------------------------

LARGE = "x" * 60_000


def prepared(step: Step, given: dict[str, Any], **outputs: bytes) -> PreparedTask:
    """The step, prepared with that input of its run and those outputs of others."""
    workflow = Workflow(workflow_id="report", version=1, steps=(FIRST, step))
    [task] = first_tasks(RUN, (step.name,), now=NOON)
    waiting = ReadyTask(task=task, run=RUN, input=msgspec.json.encode(given))
    request = AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input=given)
    return prepare_task(request, outputs, None, now=NOON)


@pytest.mark.parametrize(
    "repeating",
    [
        {"input": {"all": ["${input.x}"] * 1000}},
        {"input": {"all": "${input.x}," * 1000}},
        {"input": {"all": ["${steps.first.output}"] * 1000}},
        {"foreach": ["${input.x}"] * 1000},
        {"delay_until": "${input.x}" * 1000},
    ],
    ids=["values", "text", "outputs", "items", "delay"],
)
def test_a_definition_does_not_multiply_data_without_bound(repeating: dict[str, Any]) -> None:
    refused = prepared(after(**repeating), {"x": LARGE}, first=msgspec.json.encode(LARGE))

    assert isinstance(refused, Admission)
    assert refused.state is TaskState.FAILED
    assert str(refused.note).startswith("bad_input: ${")
    assert "repeats too much data" in str(refused.note)


def test_all_data_can_be_passed_on_once_and_a_part_of_it_again() -> None:
    large = "x" * (4 * LARGEST_REPETITION)
    passing = {"one": "${steps.first.output}", "two": "${input.x}", "three": ["${input.x}"] * 4}

    made = prepared(after(input=passing), {"x": LARGE}, first=msgspec.json.encode(large))

    assert isinstance(made, AdmissionRequest)
    assert made.input == {"x": LARGE, "one": large, "two": LARGE, "three": [LARGE] * 4}


def test_a_condition_reads_a_large_input_once() -> None:
    given = {"x": [[]] * 20_000, "text": "$${secret:KEY}"}
    once = after(condition='input.text == "${secret:KEY}"')
    often = after(condition=" or ".join(["input.x == 1"] * 60) + ' or input.text == "${secret:KEY}"')
    assert isinstance(prepared(often, given), AdmissionRequest)

    calls = [counted_calls(partial(prepared, step, given)) for step in (once, often)]

    # Sixty paths cost as much as one, but for a few calls each.
    assert calls[1] - calls[0] < len(given["x"])


@pytest.mark.parametrize("name", ["each", "compensate:each"])
def test_an_item_does_not_read_the_list_of_its_step(name: str) -> None:
    def references_of_item(count: int) -> None:
        step = Step(name=name, function="f", foreach=list(range(count)), input={"x": "${item}"})
        workflow = Workflow(workflow_id="report", version=1, steps=(FIRST, step))
        [task] = first_tasks(RUN, (name,), now=NOON)
        waiting = ReadyTask(task=replace(task, parent=task.task_id, item=0), run=RUN, input=b"{}")
        request = AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input={})
        assert output_owners(request) == {}
        assert count_references(request) < 2

    few, many = (counted_calls(partial(references_of_item, count)) for count in (2, 2_000))

    # The first call may fill a cache.
    assert many <= few
