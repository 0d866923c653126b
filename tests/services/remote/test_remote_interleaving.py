"""A fleet whose answers take their time: whatever happens until one has come, it is what is then that counts."""

from collections.abc import Sequence

import pytest

from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.errors import BusUnavailable
from gnomon.ports.messaging import OutboundTask
from gnomon.services.remote.remote_worker import RemoteWorker
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness
from support.memory_bus import MemoryServerBus
from support.task_steps import workflow

pytestmark = pytest.mark.usefixtures("any_gate")

LEASE_MS = 30_000


@pytest.fixture
async def fleet() -> FleetHarness:
    fleet = FleetHarness()
    await fleet.open()
    return fleet


def side_of(worker: RemoteWorker) -> object:
    """The worker's side of the bus."""
    return worker._queue  # noqa: SLF001 - there is no other way to be in the middle


async def another(fleet: FleetHarness, *functions: str) -> tuple[RemoteWorker, FakeRunner]:
    worker = fleet.new_remote_worker("field_2", remote_runner := FakeRunner(*functions))
    await worker.heartbeat.send()
    return worker, remote_runner


# ---- while a worker says that it begins ----------------------------------------------------------


@pytest.mark.guarantee("S11")
async def test_a_task_cancelled_while_its_start_is_reported_is_not_started(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    side = side_of(fleet.remote_worker)
    report = side.report  # type: ignore[attr-defined]

    async def slow(name: str, body: bytes) -> None:
        await report(name, body)
        await fleet.store.runs.cancel(run.run_id, reason="enough", now=fleet.clock.now())
        await fleet.remote_worker.heartbeat.send(at_once=True)

    with monkeypatch.context() as patched:
        patched.setattr(side, "report", slow)
        await fleet.remote_worker.pull()
        await fleet.remote_worker.step()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert not fleet.remote_runner.started
    assert (await fleet.now(run)).status is RunStatus.CANCELLED


@pytest.mark.guarantee("S11")
async def test_a_task_cancelled_while_its_start_is_requested_is_not_started(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    side = side_of(fleet.remote_worker)
    ask = side.ask  # type: ignore[attr-defined]

    async def slow(body: bytes) -> bytes:
        granted: bytes = await ask(body)
        await fleet.store.runs.cancel(run.run_id, reason="enough", now=fleet.clock.now())
        await fleet.remote_worker.heartbeat.send(at_once=True)
        return granted

    with monkeypatch.context() as patched:
        patched.setattr(side, "ask", slow)
        await fleet.remote_worker.pull()
        await fleet.remote_worker.step()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert not fleet.remote_runner.started
    assert (await fleet.now(run)).status is RunStatus.CANCELLED


@pytest.mark.guarantee("S11")
@pytest.mark.parametrize("delivery", Delivery)
async def test_a_task_cancelled_in_a_slow_delivery_is_not_started(fleet: FleetHarness, delivery: Delivery) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=delivery)))
    await fleet.send()
    await fleet.store.runs.cancel(run.run_id, reason="enough", now=fleet.clock.now())
    fleet.clock.advance(2_001)
    await fleet.get()
    await fleet.collect_reports()

    assert not fleet.remote_runner.started
    assert (await fleet.now(run)).status is RunStatus.CANCELLED
    assert not fleet.remote_worker.in_hand


@pytest.mark.guarantee("S11")
async def test_a_task_whose_start_was_reported_late_is_granted_first(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    side = side_of(fleet.remote_worker)
    report = side.report  # type: ignore[attr-defined]

    async def slow(name: str, body: bytes) -> None:
        fleet.clock.advance(2_001)
        await report(name, body)

    with monkeypatch.context() as patched:
        patched.setattr(side, "report", slow)
        await fleet.remote_worker.pull()
        await fleet.remote_worker.step()
    await fleet.collect_reports()
    await fleet.remote_worker.step()

    assert len(fleet.remote_runner.started) == 1
    assert (await fleet.now(run)).status is RunStatus.RUNNING


@pytest.mark.guarantee("S9")
async def test_a_task_lost_while_its_start_is_reported_is_not_started(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    side = side_of(fleet.remote_worker)
    report = side.report  # type: ignore[attr-defined]

    async def slow(name: str, body: bytes) -> None:
        await report(name, body)
        await fleet.reconciler.recover(alive={"nobody"})
        await fleet.remote_worker.heartbeat.send(at_once=True)

    monkeypatch.setattr(side, "report", slow)
    await fleet.remote_worker.pull()
    await fleet.remote_worker.step()

    assert not fleet.remote_runner.started


# ---- while a worker shows that it is alive -------------------------------------------------------


@pytest.mark.guarantee("C4", "S9")
async def test_a_lost_task_is_stopped_even_if_the_bus_fails_right_after_the_reply(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.run(await fleet.job())
    await fleet.run_cycle()
    [held] = fleet.remote_runner.started
    await fleet.reconciler.recover(alive={"nobody"})

    async def away(_: object) -> None:
        raise BusUnavailable("away")

    monkeypatch.setattr(side_of(fleet.remote_worker), "extend", away)
    await fleet.remote_worker.heartbeat.send(at_once=True)

    assert fleet.remote_runner.stopped == [(held, Result.LOST)]


# ---- a bus that forgets, and has things twice ----------------------------------------------------


@pytest.mark.guarantee("C5", "S9")
async def test_a_doubtful_message_stays_doubtful_when_it_is_delivered_again(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    await fleet.get()
    other, remote_runner = await another(fleet)
    fleet.bus.forgetful = True
    fleet.bus.work["default"].forget()
    await other.pull()
    fleet.bus.forgetful = False
    fleet.bus.work["default"].add("once more", message.body)
    await other.pull()
    await other.step()
    await fleet.collect_reports()
    await other.step()

    assert (len(fleet.remote_runner.started), len(remote_runner.started)) == (1, 0)


@pytest.mark.guarantee("C5", "S9")
async def test_a_worker_that_was_away_requests_the_start_of_older_messages(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    await fleet.get()
    message.tries = message.visible_at = 0
    other, remote_runner = await another(fleet)
    await other.pull()
    await other.step()
    await fleet.collect_reports()
    await other.step()

    assert (len(fleet.remote_runner.started), len(remote_runner.started)) == (1, 0)


@pytest.mark.guarantee("C5", "S5", "S9")
@pytest.mark.parametrize("delivery", Delivery)
async def test_a_task_that_one_worker_started_is_not_given_back_by_another(
    fleet: FleetHarness, delivery: Delivery
) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=delivery, retry=RetryPolicy(max_attempts=3))))
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    await fleet.get()
    await fleet.collect_reports()
    fleet.bus.work["default"].add("once more", message.body)
    other, _ = await another(fleet, "something.else")
    await fleet.get(other)
    await fleet.collect_reports()

    [attempt] = await fleet.attempts_of(run)
    assert (attempt.worker, attempt.result) == ("field_1", None)


@pytest.mark.guarantee("C5", "S7")
async def test_the_result_of_a_task_counts_though_another_worker_gives_it_back_at_once(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    await fleet.get()
    await fleet.collect_reports()
    fleet.bus.work["default"].add("once more", message.body)
    other, _ = await another(fleet, "something.else")
    await fleet.get(other)
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("C5", "S9")
async def test_a_worker_stops_what_another_was_granted_because_the_bus_lost_its_word(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.get()
    [held] = fleet.remote_runner.started
    fleet.bus.reports.messages.clear()
    fleet.bus.forgetful = True
    fleet.bus.work["default"].forget()
    other, remote_runner = await another(fleet)
    await fleet.get(other)
    assert list(remote_runner.started) == [held]
    await fleet.remote_worker.heartbeat.send(at_once=True)
    await other.heartbeat.send(at_once=True)

    assert (fleet.remote_runner.stopped, remote_runner.stopped) == ([(held, Result.LOST)], [])
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    [task] = await fleet.store.history.tasks([run])
    assert task.state is TaskState.RUNNING, "what the first one says of it now means nothing"


@pytest.mark.guarantee("C5", "S9")
async def test_the_start_of_a_resent_task_is_requested_because_it_may_have_arrived_before(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.run(await fleet.job())
    side = fleet.publisher._queue  # noqa: SLF001 - there is no other way to be in the middle
    publish = side.publish

    async def unheard(outbound: Sequence[OutboundTask]) -> frozenset[str]:
        await publish(outbound)
        return frozenset()

    with monkeypatch.context() as patched:
        patched.setattr(side, "publish", unheard)
        await fleet.send()
    await fleet.get()
    stream = fleet.bus.work["default"]
    stream.forget_message_ids()
    other, remote_runner = await another(fleet)
    fleet.clock.advance(1_000)
    await fleet.publisher.step()
    assert len(stream.messages) == 2
    await other.pull()
    await other.step()
    await fleet.collect_reports()
    await other.step()

    assert (len(fleet.remote_runner.started), len(remote_runner.started)) == (1, 0)


@pytest.mark.guarantee("C5", "S9")
async def test_the_start_of_a_task_is_requested_after_the_bus_lost_its_delivery_state(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    other, remote_runner = await another(fleet)
    side = side_of(fleet.remote_worker)
    report = side.report  # type: ignore[attr-defined]

    async def slow(name: str, body: bytes) -> None:
        fleet.bus.work["default"].forget()
        await fleet.get(other)
        await report(name, body)

    with monkeypatch.context() as patched:
        patched.setattr(side, "report", slow)
        await fleet.remote_worker.pull()
        await fleet.remote_worker.step()
    await fleet.collect_reports()
    await fleet.remote_worker.step()

    assert (len(fleet.remote_runner.started), len(remote_runner.started)) == (0, 1)
    assert not fleet.remote_worker.in_hand


# ---- a server that stood still -------------------------------------------------------------------


@pytest.mark.guarantee("C7", "S4")
@pytest.mark.parametrize("delivery", Delivery)
async def test_an_end_reported_while_servers_were_frozen_is_no_loss(fleet: FleetHarness, delivery: Delivery) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=delivery)))
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    fleet.clock.advance(2 * LEASE_MS)
    fleet.reconciler = fleet.new_reconciler(await_reports=fleet.collect_reports)
    await fleet.reconciler.step()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("S17")
async def test_a_dead_worker_is_detected_though_reports_may_be_pending(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.clock.advance(LEASE_MS)
    fleet.bus.away = True
    fleet.reconciler = fleet.new_reconciler(await_reports=MemoryServerBus(fleet.bus).wait_caught_up)
    await fleet.reconciler.step()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.LOST]


# ---- what does not fit ---------------------------------------------------------------------------


@pytest.mark.guarantee("S18", "S25")
async def test_an_output_that_fits_into_no_message_ends_its_task_and_holds_up_no_other(fleet: FleetHarness) -> None:
    job = await fleet.job()
    large, small = await fleet.run(job, "a"), await fleet.run(job, "b")
    await fleet.run_cycle()
    for held, assignment in list(fleet.remote_runner.started.items()):
        fleet.remote_runner.end(
            held, output=b'"' + b"x" * (2**21 if assignment.run.run_id == large.run_id else 5) + b'"'
        )
    for _ in range(3):
        await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert [(await fleet.now(run)).status for run in (large, small)] == [RunStatus.FAILED, RunStatus.COMPLETED]
    assert "too large for a message" in ((await fleet.now(large)).error or "")


@pytest.mark.guarantee("S18", "S25")
async def test_an_input_that_fits_into_no_message_ends_its_task_and_holds_up_no_other(fleet: FleetHarness) -> None:
    large = await fleet.run(
        await fleet.job(workflow("large", input={"x": "x" * 2**21}), name="large", workflow_id="large"), "a"
    )
    small = await fleet.run(await fleet.job(name="small"), "b")
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert [(await fleet.now(run)).status for run in (large, small)] == [RunStatus.FAILED, RunStatus.COMPLETED]
    assert "too large for a message" in ((await fleet.now(large)).error or "")


@pytest.mark.guarantee("S18")
async def test_a_message_of_nonsense_that_fits_into_no_report_holds_up_nothing(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    fleet.bus.of("default").add("bad", b"{" * 2**20)
    await fleet.run_cycle()
    await fleet.remote_worker.step()

    assert (await fleet.now(run)).status is RunStatus.RUNNING
    assert len(fleet.bus.work["default"].messages) == 1


# ---- a task that nobody begins -------------------------------------------------------------------


@pytest.mark.req("R-07")
@pytest.mark.guarantee("S9")
async def test_a_task_that_a_worker_may_still_start_is_not_given_up() -> None:
    fleet = FleetHarness(flags={"worker.lease_ms": 10 * LEASE_MS, "reconciler.dispatch_timeout_ms": LEASE_MS})
    await fleet.open()
    run = await fleet.run(await fleet.job())
    await fleet.send()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.reconciler.step()
    await fleet.get()

    assert [one.result for one in await fleet.attempts_of(run)] == [None]
    assert len(fleet.remote_runner.started) == 1
