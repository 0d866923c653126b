"""A run that is rolled back: its successes are undone one after the other, the last one first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from contracts.store import NOON
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DeadLetter, Result, Run, RunId, RunStatus
from gnomon.core.runs.launch import CancelOutcome
from gnomon.core.runs.rollback import RollbackCause, RollbackOutcome, RollbackStatus
from gnomon.core.runs.workflow import Step
from gnomon.ports.audit import AuditQuery
from gnomon.services.observability.metrics import MetricsRecorder
from gnomon.testing.clock import VirtualClock
from support.graph_runs import HarnessFactory, ScriptedGraphRun, acted, step
from support.sqlite_files import open_new_sqlite

pytestmark = [pytest.mark.usefixtures("any_gate"), pytest.mark.req("R-09")]


def undoable(name: str, *needs: str, **said: Any) -> Step:  # noqa: ANN401 - any field of a step
    undo = Step(name=f"compensate:{name}", function="reports.make", **said.pop("undo", {}))
    return step(name, *needs, compensate=undo, **said)


#: Flight, hotel and car, each booked after the one before, and a payment that may fail.
BOOKING = (undoable("flight"), undoable("hotel", "flight"), undoable("car", "hotel"), step("pay", "car"))


async def booked(backend: HarnessFactory, **said: Any) -> ScriptedGraphRun:  # noqa: ANN401
    """A booking up to the payment."""
    play = await acted(backend, *BOOKING, **said)
    for name in ("flight", "hotel", "car"):
        await play.end(name)
    return play


async def run_of(play: ScriptedGraphRun) -> Run:
    return await play.harness.now(play.run)


async def undone(play: ScriptedGraphRun, result: Result = Result.SUCCEEDED) -> list[str]:
    """The steps that are undone until the run has ended, in their order. One runs at a time."""
    order = []
    while play.running():
        [name] = play.running()
        order.append(name)
        await play.end(name, result)
    return order


async def letters_of(play: ScriptedGraphRun) -> Sequence[DeadLetter]:
    return await play.harness.store.dead_letters.page("default")


async def cancelled(play: ScriptedGraphRun) -> CancelOutcome:
    store, now = play.harness.store, play.harness.clock.now()
    return await store.runs.cancel(play.run.run_id, reason="not wanted", now=now)


async def test_a_step_that_gives_up_undoes_the_successes_backwards(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay", Result.GAVE_UP, error="card declined")

    rolling = await run_of(play)
    assert (rolling.status, rolling.rollback, rolling.rollback_cause) == (
        RunStatus.RUNNING,
        RollbackStatus.RUNNING,
        RollbackCause.GAVE_UP,
    )
    assert await undone(play) == ["compensate:car", "compensate:hotel", "compensate:flight"]
    ended = await run_of(play)
    assert (ended.status, ended.rollback, ended.error) == (
        RunStatus.FAILED,
        RollbackStatus.COMPLETE,
        "step pay: card declined",
    )


async def test_steps_beside_each_other_are_undone_in_the_order_of_their_ends(backend: HarnessFactory) -> None:
    play = await acted(backend, undoable("left"), undoable("right"), step("last", "left", "right"))
    await play.end("right")
    play.harness.clock.advance(1000)
    await play.end("left")
    await play.end("last", Result.GAVE_UP)
    assert await undone(play) == ["compensate:left", "compensate:right"]


@pytest.mark.parametrize(
    ("result", "cause"),
    [(Result.FAILED, "failed"), (Result.TIMED_OUT, "timeout"), (Result.DENIED, "denied")],
    ids=str,
)
async def test_other_failures_roll_a_run_back_if_its_workflow_says_so(
    backend: HarnessFactory, result: Result, cause: str
) -> None:
    play = await booked(backend, rollback_on=(cause,))
    await play.end("pay", result)
    assert (await run_of(play)).rollback_cause == cause
    assert len(await undone(play)) == 3


@pytest.mark.parametrize("result", [Result.FAILED, Result.TIMED_OUT, Result.DENIED], ids=str)
async def test_other_failures_undo_nothing_by_default(backend: HarnessFactory, result: Result) -> None:
    play = await booked(backend)
    await play.end("pay", result)
    ended = await run_of(play)
    assert (ended.status, ended.rollback, play.running()) == (RunStatus.FAILED, None, [])


async def test_a_run_without_compensations_just_fails(backend: HarnessFactory) -> None:
    play = await acted(backend, step("a"), step("b", "a"))
    await play.end("a")
    await play.end("b", Result.GAVE_UP)
    assert ((await run_of(play)).status, (await run_of(play)).rollback) == (RunStatus.FAILED, None)


async def test_a_run_with_nothing_to_undo_just_fails(backend: HarnessFactory) -> None:
    play = await acted(backend, *BOOKING)
    await play.end("flight", Result.GAVE_UP)
    assert ((await run_of(play)).status, (await run_of(play)).rollback) == (RunStatus.FAILED, None)


async def test_steps_that_handle_the_failure_run_before_anything_is_undone(backend: HarnessFactory) -> None:
    alert = step("alert", "pay", when="any_failed")
    play = await acted(backend, *BOOKING, alert)
    for name in ("flight", "hotel", "car"):
        await play.end(name)
    await play.end("pay", Result.GAVE_UP)
    assert play.running() == ["alert"]
    await play.end("alert")
    assert (await undone(play))[0] == "compensate:car"


async def test_no_other_step_begins_once_the_run_is_to_be_rolled_back(backend: HarnessFactory) -> None:
    play = await acted(backend, undoable("a"), step("slow"), step("later", "a", "slow"), step("bad", "a"))
    await play.end("a")
    await play.end("bad", Result.GAVE_UP)
    await play.end("slow")
    assert play.running() == ["compensate:a"]
    assert (await play.states())["later"] == "CANCELLED"


async def test_a_compensation_that_fails_leaves_a_dead_letter_and_the_next_goes_on(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay", Result.GAVE_UP)
    await play.end("compensate:car", Result.FAILED, error="no such booking")
    assert await undone(play) == ["compensate:hotel", "compensate:flight"]

    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE
    letters = await letters_of(play)
    assert [(one.step, one.reason, one.last_error) for one in letters] == [
        ("compensate:car", "saga_compensation_failed", "no such booking")
    ]


async def test_a_cancelled_run_is_rolled_back_if_the_workflow_says_so(backend: HarnessFactory) -> None:
    play = await booked(backend, rollback_on=("cancelled",))
    await cancelled(play)
    await play.end("pay", Result.CANCELLED)
    assert await undone(play) == ["compensate:car", "compensate:hotel", "compensate:flight"]
    ended = await run_of(play)
    assert (ended.status, ended.rollback) == (RunStatus.CANCELLED, RollbackStatus.COMPLETE)


async def test_a_run_that_is_rolled_back_cannot_be_cancelled(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay", Result.GAVE_UP)
    assert await cancelled(play) is CancelOutcome.OVER
    assert play.running() == ["compensate:car"]
    assert len(await undone(play)) == 3


async def test_a_compensation_sees_the_output_of_its_step(backend: HarnessFactory) -> None:
    given = {"input": {"booking": "${steps.a.output.id}"}}
    play = await acted(backend, undoable("a", undo=given), step("b", "a"))
    await play.end("a", output=msgspec.json.encode({"id": "LH-400"}))
    await play.end("b", Result.GAVE_UP)
    assert play.given("compensate:a")["booking"] == "LH-400"


async def rolled_back(play: ScriptedGraphRun) -> RollbackOutcome:
    store, now = play.harness.store, play.harness.clock.now()
    outcome = await store.runs.roll_back(play.run.run_id, reason="wrong customer", now=now, actor="ada")
    await play.harness.run_until_idle()
    return outcome


async def test_a_run_that_completed_is_rolled_back_on_request(backend: HarnessFactory) -> None:
    play = await booked(backend)
    assert await rolled_back(play) is RollbackOutcome.UNDER_WAY
    await play.end("pay")
    assert await play.status() is RunStatus.COMPLETED

    assert await rolled_back(play) is RollbackOutcome.STARTED
    begun = await run_of(play)
    assert (begun.status, begun.rollback_cause, begun.completed_at) == (RunStatus.RUNNING, "requested", None)
    assert await undone(play) == ["compensate:car", "compensate:hotel", "compensate:flight"]
    ended = await run_of(play)
    assert (ended.status, ended.rollback, ended.error) == (
        RunStatus.FAILED,
        RollbackStatus.COMPLETE,
        "rolled back: wrong customer",
    )
    assert await rolled_back(play) is RollbackOutcome.NOTHING


async def test_a_second_rollback_undoes_only_what_the_first_could_not(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay", Result.GAVE_UP, error="card declined")
    await play.end("compensate:car")
    await play.end("compensate:hotel", Result.FAILED)
    await play.end("compensate:flight")
    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE

    assert await rolled_back(play) is RollbackOutcome.STARTED
    assert await undone(play) == ["compensate:hotel#2"]
    ended = await run_of(play)
    assert (ended.rollback, ended.rollback_number, ended.error) == (
        RollbackStatus.COMPLETE,
        2,
        "step pay: card declined",
    )
    assert [one.resolved_by for one in await letters_of(play)] == ["rollback 2"]


async def test_a_run_being_rolled_back_counts_for_its_schedule(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay")
    assert await active_runs(play) == 0
    await rolled_back(play)
    assert await active_runs(play) == 1
    await undone(play)
    assert await active_runs(play) == 0


@pytest.mark.req("R-19")
async def test_the_runs_that_are_being_rolled_back_are_counted(backend: HarnessFactory) -> None:
    play = await booked(backend)
    counts = [await rolling_back(play)]
    await play.end("pay", Result.GAVE_UP)
    counts.append(await rolling_back(play))
    await undone(play)
    assert [*counts, await rolling_back(play)] == [0, 1, 0]


async def rolling_back(play: ScriptedGraphRun) -> int:
    return (await play.harness.store.stats.read(NOON, overdue_before=NOON, max_jobs=0)).rolling_back


async def active_runs(play: ScriptedGraphRun) -> int:
    assert play.run.schedule_id is not None
    schedule = await play.harness.store.schedules.find("default", play.run.schedule_id)
    assert schedule is not None
    return schedule.active_runs


async def test_nobody_rolls_back_what_does_not_exist_or_has_nothing_to_undo(backend: HarnessFactory) -> None:
    play = await acted(backend, step("a"), step("b", "a"))
    await play.end("a")
    await play.end("b")
    assert await rolled_back(play) is RollbackOutcome.NOTHING
    now = play.harness.clock.now()
    unknown = await play.harness.store.runs.roll_back(RunId("run_none"), reason="x", now=now, actor="ada")
    assert unknown is RollbackOutcome.UNKNOWN


async def test_the_request_for_a_rollback_is_in_the_audit_trail(backend: HarnessFactory) -> None:
    play = await booked(backend)
    await play.end("pay")
    await rolled_back(play)
    entries = await play.harness.store.audit.page(AuditQuery(tenant="default", action="rollback", limit=5))
    assert [(one.entry.actor, one.entry.name) for one in entries] == [("ada", play.run.run_id)]


def test_a_compensation_is_urgent_and_says_what_it_is() -> None:
    steps = [
        {"step": "a", "function": "book", "labels": {"region": "eu"}, "compensate": {"function": "cancel"}},
        {"step": "b", "command": "pay", "depends_on": ["a"], "compensate": {"command": "refund"}},
    ]
    workflow = read_job({"name": "trip", "dag": steps}, Defaults(), now=0).workflow
    undo = workflow.step("compensate:a")
    assert undo is not None
    assert undo.route is not None
    assert undo.route.priority == "critical"
    assert undo.route.labels == {
        "region": "eu",
        "saga_compensation": "true",
        "is_compensation": "true",
        "saga_workflow_id": "trip",
    }
    refund = workflow.step("compensate:b")
    assert refund is not None
    assert refund.input["env"] == {"saga_compensation": "true", "saga_workflow_id": "trip"}


@pytest.mark.req("R-19")
async def test_rollbacks_and_compensations_are_counted(tmp_path: Path) -> None:
    clock, meter = VirtualClock(NOON), MetricsRecorder(max_jobs=10)
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    play = await booked(HarnessFactory(store.observed(observers=[meter]), clock))
    await play.end("pay", Result.GAVE_UP)
    await play.end("compensate:car", Result.FAILED)
    clock.advance(1500)
    await undone(play)
    await rolled_back(play)
    await undone(play)

    counted = {name: sum(values.values()) for name, values in meter.counters.items() if name.startswith("saga_")}
    assert counted == {
        "saga_recorded": 3,
        "saga_rollback_triggered": 2,
        "saga_compensation_dispatched": 4,
        "saga_compensation_failed": 1,
        "saga_unmarshal_error": 0,
    }
    assert sum(meter.histograms["saga_rollback_duration_seconds"][()].counts) == 2
    assert meter.histograms["saga_rollback_duration_seconds"][()].sum == 1.5
    await store.close()


@pytest.mark.req("R-19")
async def test_a_compensation_that_was_changed_in_the_database_does_not_run(tmp_path: Path) -> None:
    clock, meter = VirtualClock(NOON), MetricsRecorder(max_jobs=10)
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    backend = HarnessFactory(store.observed(observers=[meter]), clock)
    play = await acted(backend, *BOOKING)
    await play.end("flight")
    [hotel] = play.harness.runner.started
    play.harness.runner.end(hotel)
    await play.harness.worker.step()
    query = sa.text("UPDATE workflow SET definition = replace(definition, 'compensate:hotel\",\"', :changed)")
    changed = 'compensate:hotel","capability":"other","'
    await store.transactions.write(lambda conn: conn.execute(query, {"changed": changed}))
    # Another process goes on: it reads the definition that is in the database now.
    play = ScriptedGraphRun(backend.harness(), play.run)
    await play.harness.run_until_idle()
    await play.end("car")
    await play.end("pay", Result.GAVE_UP)

    assert await undone(play) == ["compensate:car", "compensate:flight"]
    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE
    assert [(one.step, one.reason) for one in await letters_of(play)] == [("compensate:hotel", "saga_unmarshal_failed")]
    assert sum(meter.counters["saga_unmarshal_error"].values()) == 1
    await store.close()


MANY = 60


async def many_booked(backend: HarnessFactory) -> ScriptedGraphRun:
    """So many bookings that their order is stored when the rollback begins; each ended after the one before."""
    play = await acted(backend, *(undoable(f"s{number}") for number in range(MANY)), step("pay", *_names(MANY)))
    for name in _names(MANY):
        play.harness.clock.advance(10)
        await play.end(name)
    return play


def _names(count: int) -> list[str]:
    return [f"s{number}" for number in range(count)]


async def test_a_rollback_of_many_steps_has_the_same_order_through_failures_and_restarts(
    backend: HarnessFactory,
) -> None:
    play = await many_booked(backend)
    await play.end("pay", Result.GAVE_UP)
    order = []
    while play.running():
        [name] = play.running()
        order.append(name)
        if name == "compensate:s30":
            # Another process goes on.
            for held in list(play.harness.runner.started):
                play.harness.runner.end(held)
            await play.harness.worker.step()
            play = ScriptedGraphRun(backend.harness(), play.run)
            await play.harness.run_until_idle()
            continue
        await play.end(name, Result.FAILED if name == "compensate:s40" else Result.SUCCEEDED)
    assert order == [f"compensate:{name}" for name in reversed(_names(MANY))]
    assert (await run_of(play)).rollback is RollbackStatus.INCOMPLETE
    assert await rolled_back(play) is RollbackOutcome.STARTED
    assert await undone(play) == ["compensate:s40#2"]
    assert (await run_of(play)).rollback is RollbackStatus.COMPLETE
