"""Graphs of steps as people write them: what a step may say and refer to, and what is refused by which field."""

from typing import Any

import pytest

from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import Isolation, RetryPolicy, Step, When
from gnomon.errors import FieldError

NOW = 1_772_000_000_000


def graph(*steps: dict[str, Any], **said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({"name": "etl", "dag": list(steps), **said}, Defaults(), now=NOW)


def step(name: str, *needs: str, **said: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a step may say
    usual = {} if said.keys() & {"workflow", "delay", "delay_until"} else {"function": "f"}
    return {"step": name, "depends_on": list(needs), **usual, **said}


def refusal(*steps: dict[str, Any], **said: Any) -> FieldError:  # noqa: ANN401 - whatever a job may say
    with pytest.raises(FieldError) as refused:
        graph(*steps, **said)
    return refused.value


@pytest.mark.req("H-07")
def test_a_step_is_read_whole() -> None:
    said = step(
        "b",
        "a",
        when="all_done",
        input={"n": "${item.n}", "i": "${index}", "rows": "${steps.a.output.rows}"},
        foreach="${steps.a.output.files}",
        max_parallel=4,
        delay="5s",
        function="etl/b",
        timeout="1m",
        retry={"max_attempts": 2},
        isolation="process",
    ) | {"if": "steps.a.output.rows > 0 and input.mode == 'full'"}

    found = graph(step("a"), said, max_parallel=3).workflow

    assert found.max_parallel == 3
    assert found.steps[1] == Step(
        name="b",
        function="etl/b",
        depends_on=("a",),
        when=When.ALL_DONE,
        condition="steps.a.output.rows > 0 and input.mode == 'full'",
        input={"n": "${item.n}", "i": "${index}", "rows": "${steps.a.output.rows}"},
        foreach="${steps.a.output.files}",
        max_parallel=4,
        delay_ms=5000,
        timeout_ms=60_000,
        retry=RetryPolicy(max_attempts=2),
        isolation=Isolation.PROCESS,
    )


def test_a_step_may_run_another_workflow_and_be_tried_again_as_the_job_says() -> None:
    [found] = graph(step("a", workflow="other", input={"x": 1}), retry={}, timeout="9s").workflow.steps

    assert found == Step(name="a", workflow="other", input={"x": 1}, retry=RetryPolicy())


@pytest.mark.req("R-16")
@pytest.mark.parametrize(
    ("said", "delay", "until"),
    [
        ({"delay": "5m"}, 300_000, None),
        ({"delay_until": "2026-12-01T09:00:00+01:00"}, None, "2026-12-01T08:00:00+00:00"),
        ({"delay_until": "${input.start}"}, None, "${input.start}"),
    ],
)
def test_a_step_may_only_wait(said: dict[str, Any], delay: int | None, until: str | None) -> None:
    [found] = graph(step("a", **said), retry={}, timeout="9s").workflow.steps

    assert found == Step(name="a", delay_ms=delay, delay_until=until)


@pytest.mark.parametrize("items", [[], [1, {"a": 2}], ["${input.first}", "b"]])
def test_the_items_may_be_written_down(items: list[Any]) -> None:
    [found] = graph(step("a", foreach=items)).workflow.steps

    assert found.foreach == items


def test_an_input_may_take_the_output_of_any_step_before_however_far() -> None:
    last = step("c", "b", input={"deep": [{"x": "from ${steps.a.output.path}, ${run.planned_at}"}]})

    assert graph(step("a"), step("b", "a"), last).workflow.steps[2].input == last["input"]


@pytest.mark.parametrize(
    "steps",
    [
        [step("main", foreach=[1])],
        [step("main", delay="5s")],
        [step("main", workflow="other")],
        [step("main") | {"if": "input.x == 1"}],
        [step("a"), step("b", "a", when="any_failed", delay_until="${steps.a.output[0]}")],
        [step("a"), step("b", "a", foreach="${steps.a.output}", max_parallel=2, workflow="other")],
    ],
)
def test_an_exported_graph_reads_back_as_the_same_graph(steps: list[dict[str, Any]]) -> None:
    found = graph(*steps, max_parallel=5)

    assert read_job(job_as_data(found), Defaults(), now=NOW) == found
    assert job_as_data(found)["max_parallel"] == 5


REFUSALS: dict[str, Any] = {
    "a function and a workflow": (step("b", workflow="other", function="f"), "function", "beside workflow"),
    "a time for a workflow": (step("b", workflow="other", timeout="5s"), "timeout", "have theirs"),
    "a workflow with a bad name": (step("b", workflow="Other"), "workflow", "must be 1 to 128"),
    "the job itself": (step("b", workflow="etl"), "workflow", "is this job itself"),
    "an input for waiting": (step("b", delay="5s", input={"x": 1}), "input", "only waits"),
    "items for waiting": (step("b", delay="5s", foreach=[1]), "foreach", "only waits"),
    "no delay": (step("b", delay=0), "delay", "must be from"),
    "a delay without end": (step("b", delay="400d"), "delay", "must be from"),
    "an instant without a zone": (step("b", delay_until="2026-12-01T09:00"), "delay_until", "no time zone"),
    "an instant that is none": (step("b", delay_until="soon"), "delay_until", "ISO instant"),
    "no instant": (step("b", delay_until=None), "delay_until", "ISO instant"),
    "an instant around a reference": (step("b", "a", delay_until="${steps.a.output}Z"), "delay_until", "ISO instant"),
    "an unknown when": (step("b", "a", when="never"), "when", "all_success"),
    "a when for nothing": (step("b", when="all_done"), "when", "without depends_on"),
    "items that are a number": (step("b", foreach=5), "foreach", "must be a list"),
    "items that are a text": (step("b", foreach="abc"), "foreach", "must be a list"),
    "items around a reference": (step("b", "a", foreach="x ${steps.a.output}"), "foreach", "must be a list"),
    "an item that is nothing JSON has": (step("b", foreach=[{1}]), "foreach[0]", "nothing that JSON has"),
    "an item of itself": (step("b", foreach=["${item}"]), "foreach", "must begin with"),
    "a limit without items": (step("b", max_parallel=2), "max_parallel", "without foreach"),
    "no item at once": (step("b", foreach=[1], max_parallel=0), "max_parallel", "from 1"),
    "an item without items": (step("b", input={"x": "${item}"}), "input.x", "must begin with"),
    "an unknown root": (step("b", input={"x": "${env.HOME}"}), "input.x", "must begin with"),
    "an unknown step": (step("b", "a", input={"x": "${steps.c.output}"}), "input.x", "names c"),
    "the step itself": (step("b", "a", input={"x": "${steps.b.output}"}), "input.x", "names b"),
    "a step that does not come before": (step("b", input={"x": "${steps.a.output}"}), "input.x", "names a"),
    "the state of a step": (step("b", "a", input={"x": "${steps.a.state}"}), "input.x", "steps.STEP.output"),
    "a label of compensations": (
        step("b", labels={"is_compensation": "true"}),
        "labels.is_compensation",
        "only compensations have",
    ),
    "a condition that is a list": (step("b") | {"if": []}, "if", "must be a text"),
    "a condition that is none": (step("b") | {"if": "rows >"}, "if", "is no condition"),
    "a condition that calls": (step("b") | {"if": "open('/etc/passwd')"}, "if", "not allowed"),
    "a condition on an unknown step": (step("b", "a") | {"if": "steps.c.output == 1"}, "if", "names c"),
    "a condition on a later step": (step("b") | {"if": "steps.a.output == 1"}, "if", "names a"),
    "a condition on an item": (step("b", foreach=[1]) | {"if": "item == 1"}, "if", "must begin with"),
    "a condition on a path with blanks": (step("b") | {"if": "input['a b'] == 1"}, "if", "is no path to a value"),
}


@pytest.mark.req("H-07")
@pytest.mark.parametrize(("said", "field", "reason"), [pytest.param(*case, id=name) for name, case in REFUSALS.items()])
def test_an_error_in_a_step_names_its_field(said: dict[str, Any], field: str, reason: str) -> None:
    refused = refusal(step("a"), said)

    assert refused.field == f"dag[1].{field}"
    assert reason in refused.reason


def test_a_limit_for_a_job_with_one_function_is_refused() -> None:
    with pytest.raises(FieldError, match="means nothing without dag"):
        read_job({"name": "a", "function": "f", "max_parallel": 2}, Defaults(), now=NOW)


def test_a_step_with_a_dash_in_its_name_is_asked_for_in_brackets() -> None:
    found = graph(step("load-data"), step("b", "load-data") | {"if": 'steps["load-data"].output.rows > 0'})

    assert found.workflow.steps[1].condition == 'steps["load-data"].output.rows > 0'
