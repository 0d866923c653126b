"""Workflows written in Python: what they become, and how misuse is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import HTTP, SHELL, Step, When
from gnomon.core.runs.workflow import RetryPolicy as CoreRetry
from gnomon.core.triggers import OnDemand, OnEvent
from gnomon.errors import FieldError, UsageError
from gnomon.runners.registry import Functions, Retry
from gnomon.runners.workflow_builder import StepHandle, Workflows, index, item, step


class WorkflowRegistry:
    """A registry with some functions and a way to write workflows."""

    def __init__(self) -> None:
        self.functions = Functions()
        self.workflow = Workflows(self.functions).workflow
        self.extract = self.functions.function("etl/extract")(extract)
        self.load_rows = self.functions.function()(load_rows)

    def job(self) -> Job:
        return read_job(self.functions.jobs[-1], Defaults(), now=0)

    def steps(self) -> tuple[Step, ...]:
        return self.job().workflow.steps


def extract(date: str) -> dict[str, Any]:
    return {"date": date}


def load_rows(rows: list[int]) -> int:
    return len(rows)


def delete(date: str, path: str) -> str:
    return date + path


@pytest.fixture
def setup() -> WorkflowRegistry:
    return WorkflowRegistry()


@pytest.mark.req("R-09")
def test_a_step_says_how_it_is_undone(setup: WorkflowRegistry) -> None:
    cancel = setup.functions.function("etl/delete")(delete)

    @setup.workflow(rollback_on=["failed"])
    def undone(date: str = "today") -> None:
        found = step(setup.extract, date=date)
        found.compensate(cancel, date=date, path=found.output["path"], retry=Retry(max_attempts=7), timeout="5s")
        files = step(command="./upload.sh", foreach=["a", "b"], name="upload", after=[found])
        files.compensate(command="./remove.sh", env={"NAME": item, "PATH_OF": files.output["path"]})
        step(setup.load_rows, rows=[1], after=[files])

    first, second, last = setup.steps()
    assert first.compensate is not None
    assert (first.compensate.function, first.compensate.input) == (
        "etl/delete",
        {"date": "${input.date}", "path": "${steps.extract.output.path}"},
    )
    assert (first.compensate.retry, first.compensate.timeout_ms) == (CoreRetry(max_attempts=7), 5000)
    assert second.compensate is not None
    assert (second.compensate.command, second.compensate.foreach) == ("./remove.sh", ["a", "b"])
    assert (second.depends_on, last.compensate) == (("extract",), None)
    assert setup.job().workflow.rollback_on == ("failed",)


@pytest.mark.req("R-09")
def test_a_compensation_that_cannot_be_is_refused(setup: WorkflowRegistry) -> None:
    handles: list[StepHandle] = []

    @setup.workflow(name="other")
    def other() -> None:
        handles.append(step(setup.extract, date="x"))

    def of_another_workflow() -> None:
        handles[0].compensate("undo")
        step(setup.load_rows, rows=[1])

    def twice() -> None:
        found = step(setup.load_rows, rows=[1])
        found.compensate("undo")
        found.compensate("undo")

    def with_nothing() -> None:
        step(setup.load_rows, rows=[1]).compensate()

    def by_a_workflow() -> None:
        step(setup.load_rows, rows=[1]).compensate(other)

    for definition, reason in (
        (of_another_workflow, "is no step of the workflow"),
        (twice, "a second time"),
        (with_nothing, "give a function, a command or an http call"),
    ):
        with pytest.raises(FieldError, match=reason):
            setup.workflow(definition)
    setup.workflow(by_a_workflow)
    with pytest.raises(FieldError, match=r"compensate\.workflow"):
        setup.job()
    with pytest.raises(UsageError, match="outside of a workflow"):
        handles[0].compensate("undo")


@pytest.mark.req("H-07")
def test_a_workflow_is_a_job_with_a_graph(setup: WorkflowRegistry) -> None:
    @setup.workflow(schedule="every day at 2am", max_parallel=2, retry=Retry(max_attempts=2), tags=["etl"])
    def nightly_etl(date: str = "today") -> None:
        found = step(setup.extract, date=date)
        step(setup.load_rows, rows=found.output["rows"])

    job = setup.job()

    assert (job.name, job.workflow.input, job.workflow.max_parallel) == ("nightly-etl", {"date": "today"}, 2)
    retry = CoreRetry(max_attempts=2)
    assert job.workflow.steps == (
        Step(name="extract", function="etl/extract", input={"date": "${input.date}"}, retry=retry),
        Step(
            name="load-rows",
            function="load-rows",
            depends_on=("extract",),
            input={"rows": "${steps.extract.output.rows}"},
            retry=retry,
        ),
    )


def test_a_workflow_without_a_schedule_waits_to_be_asked(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def load(rows: list[int]) -> None:
        step(setup.load_rows, rows=rows)

    assert setup.job().spec.trigger == OnDemand()


def test_a_workflow_may_wait_for_an_event_and_take_from_it(setup: WorkflowRegistry) -> None:
    @setup.workflow(on={"event": "model.drift"})
    def retrain(event: dict[str, Any]) -> None:
        step(setup.extract, date=event["body"]["date"])

    assert setup.job().spec.trigger == OnEvent("model.drift")
    assert setup.steps()[0].input == {"date": "${input.event.body.date}"}


def test_a_decorated_workflow_stays_as_it_was(setup: WorkflowRegistry) -> None:
    def load() -> None:
        step("f")

    assert setup.workflow(load) is load


def test_references_go_into_texts_lists_and_mappings(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def load() -> None:
        first = step("list", name="first")
        step("f", text=f"from {first.output['path']}", deep=[{"x": first.output[0]["y"]}], whole=first.output)

    assert setup.steps()[1].depends_on == ("first",)
    assert setup.steps()[1].input == {
        "text": "from ${steps.first.output.path}",
        "deep": [{"x": "${steps.first.output[0].y}"}],
        "whole": "${steps.first.output}",
    }


def test_a_step_says_all_that_a_file_can_say(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def everything() -> None:
        files = step("list-files")
        step(
            "team/app/convert",
            name="convert",
            after=["list-files"],
            when="all_done",
            condition=f"{files.output['count']} > 0",
            foreach=files.output["files"],
            max_parallel=4,
            delay=timedelta(seconds=5),
            timeout="1m",
            retry=Retry(max_attempts=2, initial_delay=1),
            isolation="process",
            path=item["path"],
            number=index,
            input={"name": "x"},
        )

    assert setup.steps()[1] == Step(
        name="convert",
        function="team/app/convert",
        depends_on=("list-files",),
        when=When.ALL_DONE,
        condition='steps["list-files"]["output"]["count"] > 0',
        foreach="${steps.list-files.output.files}",
        max_parallel=4,
        delay_ms=5000,
        timeout_ms=60_000,
        retry=CoreRetry(max_attempts=2, initial_delay_ms=1000),
        isolation=setup.steps()[1].isolation,
        input={"name": "x", "path": "${item.path}", "number": "${index}"},
    )
    assert setup.steps()[1].isolation == "process"


def test_a_step_may_only_wait(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def pausing() -> None:
        step(name="pause", delay="5m")
        step(name="later", delay_until=datetime(2026, 12, 1, 9, tzinfo=UTC), after=["pause"])

    assert setup.steps() == (
        Step(name="pause", delay_ms=300_000),
        Step(name="later", delay_until="2026-12-01T09:00:00+00:00", depends_on=("pause",)),
    )


def test_a_step_may_run_another_workflow(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def inner(x: int) -> None:
        step("f", x=x)

    @setup.workflow
    def outer() -> None:
        done = step(inner, x=1)
        step(workflow="elsewhere", name="other", y=done.output)

    assert setup.steps() == (
        Step(name="inner", workflow="inner", input={"x": 1}),
        Step(name="other", workflow="elsewhere", depends_on=("inner",), input={"y": "${steps.inner.output}"}),
    )


def test_a_condition_in_words_makes_the_step_come_after_what_it_asks_for(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def load() -> None:
        step("count")
        step("f", condition="steps.count.output.rows > 0 and input.mode == 'full'")

    assert setup.steps()[1].depends_on == ("count",)


def test_a_workflow_loaded_again_takes_its_old_place(setup: WorkflowRegistry) -> None:
    for _ in range(2):

        @setup.workflow
        def load() -> None:
            step("f")

    assert len(setup.functions.jobs) == 1


def refused(setup: WorkflowRegistry, body: Any, **words: Any) -> UsageError:  # noqa: ANN401 - whatever someone may write
    with pytest.raises(UsageError) as found:
        setup.workflow(name="bad", **words)(body)
    assert setup.functions.jobs == []
    return found.value


def test_a_step_outside_of_a_workflow_is_refused() -> None:
    with pytest.raises(UsageError, match="outside of a workflow"):
        step("f")


def test_after_a_workflow_that_failed_steps_are_refused_again(setup: WorkflowRegistry) -> None:
    refused(setup, lambda: step(5))  # type: ignore[arg-type] # that is the point

    with pytest.raises(UsageError, match="outside of a workflow"):
        step("f")


def two_of_one_name() -> None:
    step("f")
    step("f")


def no_json() -> None:
    step("f", x={1, 2}, y=object())


def a_step_for_a_value() -> None:
    step("f", name="g", x=step("f"))


def decided_too_early() -> None:
    if step("f").output:
        step("g")


def compared_too_early() -> None:
    if step("f").output["rows"] == 5:
        step("g")


def gone_through_too_early() -> None:
    step("g", x=list(step("f").output))


def a_key_that_is_none() -> None:
    step("g", x=step("f").output["a b"])


async def a_coroutine() -> None:
    step("f")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda: None, "has no steps"),
        (lambda: step(load_rows, name="x"), "is not a registered function"),
        (lambda: step("f", workflow="other"), "give one of them"),
        (lambda: step(delay="5s"), "only waits"),
        (lambda: step("f", name="Bad Name"), "must be 1 to 128"),
        (two_of_one_name, "name of an earlier step"),
        (no_json, "nothing that JSON has"),
        (a_step_for_a_value, "take its .output"),
        (decided_too_early, "no value before its run"),
        (compared_too_early, "no value before its run"),
        (gone_through_too_early, "no value before its run"),
        (a_key_that_is_none, "cannot be a part of it"),
        (a_coroutine, "is a coroutine"),
        (lambda *args: step("f", x=args), "which an input cannot name"),
    ],
)
def test_misuse_is_refused_where_it_stands(setup: WorkflowRegistry, body: Any, reason: str) -> None:  # noqa: ANN401
    setup.functions = Functions()
    setup.workflow = Workflows(setup.functions).workflow

    assert reason in str(refused(setup, body))


def test_a_parameter_that_no_clock_could_give_is_refused(setup: WorkflowRegistry) -> None:
    assert "has no default" in str(refused(setup, lambda date: step("f", date=date), schedule="@daily"))


def test_two_workflows_of_one_name_are_refused(setup: WorkflowRegistry) -> None:
    def one() -> None:
        step("f")

    def other() -> None:
        step("f")

    setup.workflow(name="etl")(one)
    with pytest.raises(FieldError, match="already the name of the job"):
        setup.workflow(name="etl")(other)


def test_a_step_may_be_a_command(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def nightly() -> None:
        found = step(setup.extract, date="today")
        step(command="pg_dump -Fc", env={"DAY": found.output["date"]}, timeout="5m")

    assert setup.steps()[1] == Step(
        name="pg_dump",
        function=SHELL,
        command="pg_dump -Fc",
        input={"env": {"DAY": "${steps.extract.output.date}"}},
        depends_on=("extract",),
        timeout_ms=300_000,
    )


def test_a_step_may_be_an_http_call(setup: WorkflowRegistry) -> None:
    @setup.workflow
    def nightly(ledger: str = "main") -> None:
        found = step(setup.extract, date="today")
        url = f"https://api.example/{ledger}/{found.output['date']}"
        step(name="close", http={"url": url, "json": {"rows": found.output["rows"]}})

    assert setup.steps()[1] == Step(
        name="close",
        function=HTTP,
        input={
            "url": "https://api.example/${input.ledger}/${steps.extract.output.date}",
            "json": {"rows": "${steps.extract.output.rows}"},
        },
        depends_on=("extract",),
    )


def test_an_http_call_is_beside_nothing_else_and_needs_a_name(setup: WorkflowRegistry) -> None:
    call = {"url": "https://api.example/"}
    with pytest.raises(FieldError, match="cannot be combined with a function"):
        setup.workflow(name="a")(lambda: step(setup.extract, http=call))
    with pytest.raises(FieldError, match="a step that only waits, calls a URL or a model, has none of its own"):
        setup.workflow(name="b")(lambda: step(http=call))
    setup.workflow(name="c")(lambda: step(name="x", http=call, command="date"))
    with pytest.raises(FieldError, match="cannot be beside command"):
        setup.steps()


def test_a_command_is_not_beside_a_function(setup: WorkflowRegistry) -> None:
    with pytest.raises(FieldError, match="cannot be combined with a function"):

        @setup.workflow
        def nightly() -> None:
            step(setup.extract, command="date")
