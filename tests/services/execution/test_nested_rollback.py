"""The rollback of steps with items and of steps that run other workflows."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from contracts.store import NOON
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Result, Run, RunId, RunStatus
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.rollback import RollbackCause, RollbackOutcome, RollbackStatus
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import FieldError
from gnomon.ports.schedules import JobChangeset
from gnomon.testing.clock import VirtualClock
from support.graph_runs import HarnessFactory, ScriptedGraphRun, acted, graph, step
from support.sqlite_files import open_new_sqlite

pytestmark = pytest.mark.req("R-09")

CITIES = ["Rome", "Oslo", "Bonn"]


def undoable(name: str, *needs: str, undo: dict[str, Any] | None = None, **said: Any) -> Step:  # noqa: ANN401
    given = {"foreach": said["foreach"], "max_parallel": 1} if "foreach" in said else {}
    compensation = Step(name=f"compensate:{name}", function="reports.make", **given, **(undo or {}))
    return step(name, *needs, compensate=compensation, **said)


async def run_of(play: ScriptedGraphRun, run_id: RunId | None = None) -> Run:
    found = await play.harness.store.executions.find_run(run_id or play.run.run_id)
    assert found is not None
    return found


async def undone(play: ScriptedGraphRun, *failing: str) -> list[str]:
    """The names of the compensations until the run has ended, in their order. One runs at a time."""
    order = []
    while play.running():
        [name] = play.running()
        order.append(name)
        await play.end(name, Result.FAILED if name in failing else Result.SUCCEEDED)
    return order


async def rolled_back(play: ScriptedGraphRun, run_id: RunId | None = None) -> RollbackOutcome:
    store, now = play.harness.store, play.harness.clock.now()
    outcome = await store.runs.roll_back(run_id or play.run.run_id, reason="wrong", now=now, actor="ada")
    await play.harness.run_until_idle()
    return outcome


# ---- foreach -------------------------------------------------------------------------------------


async def hotels(backend: HarnessFactory, *, failing: str = "", **said: Any) -> ScriptedGraphRun:  # noqa: ANN401
    """A flight, a hotel in each city, and a payment that is refused."""
    play = await acted(
        backend, undoable("flight"), undoable("hotel", "flight", foreach=CITIES, **said), step("pay", "hotel")
    )
    await play.end("flight")
    for number in (1, 0, 2):
        name = f"hotel[{number}]"
        result = Result.GAVE_UP if name == failing else Result.SUCCEEDED
        await play.end(name, result, output=msgspec.json.encode({"id": f"H-{number}"}))
    return play


async def test_items_are_undone_in_reverse_in_the_place_of_their_step(backend: HarnessFactory) -> None:
    play = await hotels(backend)
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play) == [
        "compensate:hotel[2]",
        "compensate:hotel[1]",
        "compensate:hotel[0]",
        "compensate:flight",
    ]
    ended = await run_of(play)
    assert (ended.status, ended.rollback) == (RunStatus.FAILED, RollbackStatus.COMPLETE)


async def test_only_the_items_that_succeeded_are_undone(backend: HarnessFactory) -> None:
    play = await hotels(backend, failing="hotel[1]")
    assert await undone(play) == ["compensate:hotel[2]", "compensate:hotel[0]", "compensate:flight"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


async def test_a_compensation_of_an_item_sees_the_item_and_its_output(backend: HarnessFactory) -> None:
    given = {
        "city": "${item}",
        "place": "${index}",
        "booking": "${steps.hotel.output.id}",
        "of": "${steps.flight.output}",
    }
    play = await hotels(backend, undo={"input": given})
    await play.end("pay", Result.GAVE_UP)
    await play.end("compensate:hotel[2]")
    assert play.given("compensate:hotel") == {"city": "Oslo", "place": 1, "booking": "H-1", "of": None}
    await play.end("compensate:hotel[1]")
    assert play.given("compensate:hotel") == {"city": "Rome", "place": 0, "booking": "H-0", "of": None}


async def test_an_item_without_an_input_of_its_own_gets_item_and_index(backend: HarnessFactory) -> None:
    play = await hotels(backend)
    await play.end("pay", Result.GAVE_UP)
    assert play.given("compensate:hotel") == {"item": "Bonn", "index": 2}


async def test_an_item_that_cannot_be_undone_leaves_a_letter_and_the_next_goes_on(backend: HarnessFactory) -> None:
    play = await hotels(backend)
    await play.end("pay", Result.GAVE_UP)
    assert len(await undone(play, "compensate:hotel[1]")) == 4
    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE
    letters = await play.harness.store.dead_letters.page("default")
    assert [(one.step, one.reason) for one in letters] == [("compensate:hotel", "saga_compensation_failed")]

    assert await rolled_back(play) is RollbackOutcome.STARTED
    assert await undone(play) == ["compensate:hotel#2[1]"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE
    assert await rolled_back(play) is RollbackOutcome.NOTHING


async def test_a_fan_out_without_any_success_has_nothing_to_undo(backend: HarnessFactory) -> None:
    play = await acted(backend, undoable("hotel", foreach=CITIES), step("pay", "hotel"))
    for number in range(3):
        await play.end(f"hotel[{number}]", Result.GAVE_UP)
    ended = await run_of(play)
    assert (ended.status, ended.rollback, play.running()) == (RunStatus.FAILED, None, [])


# ---- workflow ------------------------------------------------------------------------------------

STAY = (undoable("room"), undoable("meals", "room"))


async def with_stay(backend: HarnessFactory, stay: tuple[Step, ...], outer: Workflow) -> ScriptedGraphRun:
    """A run of a workflow whose steps may run the workflow `stay`."""
    harness = backend.harness()
    inner = Workflow(workflow_id="stay", version=1, steps=stay)
    await harness.store.jobs.apply(JobChangeset(workflows=[inner]), now=NOON, actor="ada", tzdata="")
    play = ScriptedGraphRun(harness, await harness.run(await harness.job(outer), first_steps=outer.first_steps))
    await harness.run_until_idle()
    return play


async def trip(backend: HarnessFactory, *inner: Step, **said: Any) -> ScriptedGraphRun:  # noqa: ANN401
    """A flight, a stay that is a workflow of its own, and a payment."""
    hotel = Step(name="hotel", workflow="stay", depends_on=("flight",))
    play = await with_stay(backend, inner or STAY, graph(undoable("flight"), hotel, step("pay", "hotel"), **said))
    await play.end("flight")
    return play


async def stay_of(play: ScriptedGraphRun) -> RunId:
    tasks = await play.harness.store.history.tasks([play.run])
    return sub_run_id(next(task for task in tasks if task.step == "hotel"))


async def test_a_sub_workflow_is_undone_in_its_place_in_the_order(backend: HarnessFactory) -> None:
    play = await trip(backend)
    await play.end("room")
    await play.end("meals")
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play) == ["compensate:meals", "compensate:room", "compensate:flight"]
    ended, inner = await run_of(play), await run_of(play, await stay_of(play))
    assert (ended.status, ended.rollback) == (RunStatus.FAILED, RollbackStatus.COMPLETE)
    assert (inner.status, inner.rollback, inner.rollback_cause) == ("failed", "complete", RollbackCause.PARENT)
    assert (await play.states())["compensate:hotel"] == "SUCCEEDED"


async def test_a_sub_workflow_that_cannot_be_undone_leaves_the_rollback_above_incomplete(
    backend: HarnessFactory,
) -> None:
    play = await trip(backend)
    await play.end("room")
    await play.end("meals")
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play, "compensate:meals") == ["compensate:meals", "compensate:room", "compensate:flight"]
    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE

    # A second rollback tries again what is left, at any depth.
    assert await rolled_back(play) is RollbackOutcome.STARTED
    assert await undone(play) == ["compensate:meals#2"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


async def test_a_function_that_gives_up_in_a_sub_workflow_rolls_the_run_above_back(backend: HarnessFactory) -> None:
    play = await trip(backend)
    await play.end("room")
    await play.end("meals", Result.GAVE_UP)
    assert await undone(play) == ["compensate:room", "compensate:flight"]
    ended = await run_of(play)
    assert (ended.rollback, ended.rollback_cause) == (RollbackStatus.COMPLETE, RollbackCause.GAVE_UP)


async def test_the_half_of_a_sub_workflow_that_failed_is_undone_too(backend: HarnessFactory) -> None:
    play = await trip(backend, rollback_on=("failed",))
    await play.end("room")
    await play.end("meals", Result.FAILED)
    assert await undone(play) == ["compensate:room", "compensate:flight"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


async def test_a_sub_workflow_without_compensations_has_nothing_to_undo(backend: HarnessFactory) -> None:
    play = await trip(backend, step("room"))
    await play.end("room")
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play) == ["compensate:flight"]
    assert "compensate:hotel" not in await play.states()


async def test_a_sub_run_whose_rollback_a_person_has_begun_is_waited_for(backend: HarnessFactory) -> None:
    play = await trip(backend)
    await play.end("room")
    await play.end("meals")
    assert await rolled_back(play, await stay_of(play)) is RollbackOutcome.STARTED
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play) == ["compensate:meals", "compensate:room", "compensate:flight"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


async def test_a_compensation_beside_a_workflow_undoes_the_step_instead_of_its_run(backend: HarnessFactory) -> None:
    undo = Step(name="compensate:hotel", function="reports.make")
    hotel = Step(name="hotel", workflow="stay", compensate=undo)
    play = await with_stay(backend, STAY, graph(hotel, step("pay", "hotel")))
    for name in ("room", "meals"):
        await play.end(name)
    await play.end("pay", Result.GAVE_UP)
    assert await undone(play) == ["compensate:hotel"]


async def test_the_runs_of_items_are_undone_from_the_last_item_to_the_first(backend: HarnessFactory) -> None:
    hotel = Step(name="hotel", workflow="stay", foreach=CITIES)
    play = await with_stay(backend, (undoable("room"),), graph(hotel, step("pay", "hotel")))
    harness, runs = play.harness, {}
    while "room" in play.running():
        [one, *_] = [one for one in harness.runner.started.values() if one.task.step == "room"]
        runs[one.run.run_id] = one.run.parent_task
        await play.end("room")
    await play.end("pay", Result.GAVE_UP)
    order = []
    while play.running():
        assert play.running() == ["compensate:room"]
        [one] = harness.runner.started.values()
        order.append(str(runs[one.run.run_id])[-6:])
        await play.end("compensate:room")
    assert order == ["000002", "000001", "000000"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


async def test_a_job_with_one_sub_workflow_is_rolled_back_on_request(backend: HarnessFactory) -> None:
    play = await with_stay(backend, STAY, graph(Step(name="hotel", workflow="stay")))
    for name in ("room", "meals"):
        await play.end(name)
    assert await play.status() is RunStatus.COMPLETED
    assert await rolled_back(play) is RollbackOutcome.STARTED
    assert await undone(play) == ["compensate:meals", "compensate:room"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE


# ---- what is accepted, and what it costs ---------------------------------------------------------


def dag_of(*steps: dict[str, Any]) -> Workflow:
    return read_job({"name": "trip", "dag": list(steps)}, Defaults(), now=0).workflow


def test_the_compensation_of_a_step_with_items_may_refer_to_the_item() -> None:
    undo = {"function": "cancel", "input": {"city": "${item}", "id": "${steps.hotel.output.id}"}}
    workflow = dag_of({"step": "hotel", "function": "book", "foreach": CITIES, "max_parallel": 2, "compensate": undo})
    found = workflow.step("compensate:hotel")
    assert found is not None
    assert (found.foreach, found.max_parallel) == (CITIES, 1)
    [exported] = job_as_data(read_job({"name": "trip", "dag": [{**_HOTEL, "compensate": undo}]}, Defaults(), now=0))[
        "dag"
    ]
    assert exported["compensate"] == undo


_HOTEL = {"step": "hotel", "function": "book", "foreach": CITIES}


def test_the_compensation_of_a_step_without_items_may_not() -> None:
    undo = {"function": "cancel", "input": {"city": "${item}"}}
    with pytest.raises(FieldError, match="must begin with steps, input, run"):
        dag_of({"step": "hotel", "function": "book", "compensate": undo})


def test_a_step_that_only_waits_is_not_undone() -> None:
    with pytest.raises(FieldError, match="means nothing for a step that only waits"):
        dag_of({"step": "night", "delay": "8h", "compensate": {"function": "cancel"}})


def test_a_job_that_runs_other_workflows_may_say_when_it_is_rolled_back() -> None:
    fields = {"name": "trip", "rollback_on": ["failed"], "dag": [{"step": "hotel", "workflow": "stay"}]}
    assert read_job(fields, Defaults(), now=0).workflow.rollback_on == ("failed",)


async def test_the_next_item_is_found_without_looking_at_all_others(tmp_path: Path) -> None:
    clock = VirtualClock(NOON)
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    play = await acted(HarnessFactory(store, clock), undoable("hotel", foreach=CITIES), step("pay", "hotel"))
    play.harness.runner.end_all()
    await play.harness.run_until_idle()
    await play.end("pay", Result.GAVE_UP)
    said: list[str] = []

    def trace(conn: sa.Connection, *, on: bool) -> None:
        driver = conn.connection.dbapi_connection
        assert driver is not None
        driver.set_trace_callback(said.append if on else None)

    await store.transactions.write(lambda conn: trace(conn, on=True))
    await play.end("compensate:hotel[2]")
    await store.transactions.write(lambda conn: trace(conn, on=False))
    [release] = {one for one in said if one.startswith("UPDATE OR FAIL task SET wait_reason = 'ready'")}
    query = sa.text(f"EXPLAIN QUERY PLAN {release}")
    plan = await store.transactions.write(lambda conn: [str(row[3]) for row in conn.execute(query)])
    assert any("task_held" in row for row in plan)
    assert not any("B-TREE" in row or row.startswith("SCAN") for row in plan), plan
    await store.close()
