"""When deadlines are, and how they are written in jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import job_schema
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.plan import plan, run_record
from gnomon.core.messages import assignment_of, decode_task_message, encode_task_message, task_message_of
from gnomon.core.runs.deadlines import earliest, run_deadline, task_deadline
from gnomon.core.runs.launch import item_tasks, next_tasks
from gnomon.core.runs.workflow import RunDeadlines, Workflow
from gnomon.errors import FieldError
from support.running_assignments import NOW, running_assignment

pytestmark = pytest.mark.req("R-07")


def job(**said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({"name": "report", "function": "f", **said}, Defaults(), now=NOON)


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"deadline": "10m"}, {"budget": {"deadline_ms": 600_000}}])
def test_a_deadline_has_two_names(said: dict[str, Any]) -> None:
    found = job(**said)

    assert found.workflow.deadline_ms == 10 * MINUTE
    assert found.spec.deadlines == RunDeadlines(run_ms=10 * MINUTE)
    assert job_as_data(found)["deadline"] == "10m"
    assert job(**{field: value for field, value in job_as_data(found).items() if field != "name"}) == found


def test_the_schedule_knows_the_deadlines_of_first_steps_alone() -> None:
    steps = [
        {"step": "a", "function": "f", "deadline": "1m"},
        {"step": "b", "function": "f", "depends_on": ["a"], "deadline": "2m"},
        {"step": "c", "function": "f"},
    ]
    found = read_job({"name": "report", "dag": steps}, Defaults(), now=NOON)

    assert found.spec.deadlines == RunDeadlines(steps_ms={"a": MINUTE})
    assert [step.deadline_ms for step in found.workflow.steps] == [MINUTE, 2 * MINUTE, None]
    assert [step.get("deadline") for step in job_as_data(found)["dag"]] == ["1m", "2m", None]


def test_a_job_without_a_deadline_has_none() -> None:
    assert job().spec.deadlines is job().workflow.deadlines is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"deadline": "0s"}, "deadline"),
        ({"deadline": "367d"}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"deadline": "1m", "budget": {"deadline_ms": 1}}, "deadline"),
        ({"budget": {}}, "budget.deadline_ms"),
        ({"budget": {"deadline_ms": "1m"}}, "budget.deadline_ms"),
        ({"budget": {"deadline_ms": 0}}, "budget.deadline_ms"),
        ({"budget": {"tokens": 5}}, "budget.tokens"),
        ({"budget": 600_000}, "budget"),
    ],
)
def test_a_wrong_deadline_is_refused_by_its_field(said: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        job(**said)

    assert refused.value.field == field


def test_the_schema_has_both_names() -> None:
    assert {"deadline", "budget"} <= job_schema()["properties"].keys()


# ---- counting ------------------------------------------------------------------------------------


def test_of_several_deadlines_the_earliest_counts() -> None:
    assert (earliest(3, None, 1), earliest(None), earliest()) == (1, None, None)


def test_a_run_that_is_decided_ahead_is_counted_from_its_planned_time() -> None:
    ahead = run_deadline(MINUTE, created_at=NOON, planned_at=NOON + HOUR)
    late = run_deadline(MINUTE, created_at=NOON, planned_at=NOON - HOUR)

    assert (ahead, late) == (NOON + HOUR + MINUTE, NOON + MINUTE)


def test_the_run_of_a_tick_has_the_deadline_of_its_schedule() -> None:
    schedule = minutely(deadlines=RunDeadlines(run_ms=HOUR))
    [decision] = plan(schedule, now=NOON + MINUTE + 5).decisions

    assert run_record(schedule, decision, now=NOON + MINUTE + 5).deadline_at == NOON + MINUTE + 5 + HOUR


def test_a_task_has_its_own_deadline_or_that_of_its_run() -> None:
    run = replace(running_assignment().run, deadline_at=NOW + HOUR)

    spans = (None, MINUTE, 2 * HOUR)

    assert [task_deadline(run, span, created_at=NOW) for span in spans] == [NOW + HOUR, NOW + MINUTE, NOW + HOUR]


def test_items_end_with_their_step_however_late_they_are_created() -> None:
    step = replace(running_assignment().task, deadline_at=NOW + MINUTE)

    assert {item.deadline_at for item in item_tasks(step, range(3), limit=None, now=NOW + 50_000)} == {NOW + MINUTE}


def test_a_later_step_is_counted_from_when_it_is_ready() -> None:
    held = running_assignment()
    graph = Workflow(workflow_id="w", version=1, steps=(replace(held.step, deadline_ms=MINUTE),))

    [task] = next_tasks(held.run, ["main"], graph, held=False, now=NOW + HOUR)

    assert task.deadline_at == NOW + HOUR + MINUTE


# ---- over the bus --------------------------------------------------------------------------------


def test_a_worker_learns_the_deadline_of_its_task() -> None:
    held = running_assignment()
    held = replace(held, task=replace(held.task, deadline_at=NOW + MINUTE))
    message = decode_task_message(encode_task_message(task_message_of(held, deadline=NOW + 9), now=NOW))

    assert (message.deadline, message.task_deadline) == (NOW + 9, NOW + MINUTE)
    assert assignment_of(message).task.deadline_at == NOW + MINUTE
