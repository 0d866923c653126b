"""From a server to workers that know only the bus, and back: whatever the bus does, every start has a reason."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.core.messages import EndedReport, StartedReport, WorkerReport, decode_task_message, encode_worker_report
from gnomon.core.model import Result, Run, RunStatus, TaskId
from gnomon.core.runs.admission import OutputRelease, ReadyTask
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, RetryPolicy, Step
from gnomon.ports.messaging import RequestHandler
from gnomon.ports.tasks import AttemptRef
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness
from support.gates import at_once
from support.memory_bus import MemoryWorkerBus
from support.task_steps import workflow

pytestmark = pytest.mark.usefixtures("any_gate")

LEASE_MS = 30_000


@pytest.fixture
async def fleet() -> FleetHarness:
    fleet = FleetHarness(flags={"worker.slots": 10})
    await fleet.open()
    return fleet


async def test_a_run_goes_to_a_worker_and_its_end_comes_back(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    assert (await fleet.now(run)).status is RunStatus.RUNNING
    fleet.remote_runner.end_all(output=b'{"rows": 3}')
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    ended = await fleet.now(run)
    [task] = await fleet.store.history.tasks([run])
    assert (ended.status, task.state) == (RunStatus.COMPLETED, TaskState.SUCCEEDED)
    assert await fleet.store.executions.payload(task.task_id, "output") == b'{"rows": 3}'
    assert "task_succeeded" in fleet.events.names()


async def test_the_attempt_is_known_by_the_worker_that_began_it(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    assert [one.worker for one in await fleet.attempts_of(run)] == ["courier_1"]
    await fleet.get()
    await fleet.collect_reports()

    [attempt] = await fleet.attempts_of(run)
    assert (attempt.worker, attempt.started_at) == ("field_1", fleet.clock.now())


@pytest.mark.req("H-13")
async def test_a_message_about_a_job_without_a_timeout_has_that_of_the_settings(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()

    [message] = fleet.bus.work["default"].messages.values()
    assert decode_task_message(message.body).timeout == fleet.settings.execution.default_timeout_ms / 1000


@pytest.mark.req("H-13")
async def test_a_message_is_the_envelope_of_the_seed(fleet: FleetHarness) -> None:
    definition = workflow(timeout_ms=90_000, input={"day": "${secret:DAY}"})
    run = await fleet.run(await fleet.job(definition))
    await fleet.send()

    [message] = fleet.bus.work["default"].messages.values()
    written = msgspec.json.decode(message.body)
    assert (written["schema"], written["type"], written["source"]) == ("hanzo.mq.v1", "scheduler.execute", "scheduler")
    assert written["timestamp"].endswith("Z")
    data = written["data"]
    said = {key: data[key] for key in ("job_name", "execution_id", "function", "input", "attempt", "timeout", "fence")}
    assert said == {
        "job_name": run.schedule_id,
        "execution_id": run.run_id,
        "function": "reports.make",
        # A secret is still a name.
        "input": {"day": "${secret:DAY}"},
        "attempt": 1,
        "timeout": 90.0,
        "fence": 1,
    }
    assert message.name == f"{data['task_id']}:1"
    assert decode_task_message(message.body).deadline > fleet.clock.now()


@pytest.mark.req("H-07", "H-13")
async def test_independent_steps_are_separate_messages_at_once(fleet: FleetHarness) -> None:
    definition = replace(
        workflow(), steps=tuple(Step(name=side, function="reports.make") for side in ("left", "right"))
    )
    run = await fleet.run(await fleet.job(definition), first_steps=definition.first_steps)
    await fleet.send()

    sent = [msgspec.json.decode(one.body)["data"] for one in fleet.bus.work["default"].messages.values()]
    assert sorted(one["step"] for one in sent) == ["left", "right"]
    assert {one["execution_id"] for one in sent} == {run.run_id}


async def test_no_more_is_sent_than_workers_have_slots(fleet: FleetHarness) -> None:
    job = await fleet.job()
    for number in range(25):
        await fleet.run(job, f"{number:02}")
    await fleet.send()
    await fleet.publisher.step()
    assert len(fleet.bus.work["default"].messages) == 10

    await fleet.get()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    await fleet.publisher.step()

    assert len(fleet.bus.work["default"].messages) == 10


async def test_a_task_taken_with_its_admission_is_sent_without_another_read(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.run_cycle()
    job = await fleet.job()
    run = await fleet.run(job)
    fleet.taker.connect(fleet.publisher)
    await fleet.dispatcher.step()
    asked: list[str] = []
    take = fleet.store.attempts.take

    async def counted(worker: str, **shown: Any) -> Sequence[ReadyTask]:  # noqa: ANN401 - as it is given
        asked.append(worker)
        return await take(worker, **shown)

    monkeypatch.setattr(fleet.store.attempts, "take", counted)
    await fleet.publisher.step()
    await fleet.get()

    assert [one.run.run_id for one in fleet.remote_runner.started.values()] == [run.run_id]
    assert asked == []


async def test_a_task_that_another_server_admitted_is_found_soon(fleet: FleetHarness) -> None:
    await fleet.run_cycle()
    run = await fleet.run(await fleet.job())
    another, _ = fleet.new_server()
    fleet.taker.connect(another)
    await fleet.dispatcher.step()
    fleet.clock.advance(250)
    await fleet.publisher.step()
    await fleet.get()

    assert [one.run.run_id for one in fleet.remote_runner.started.values()] == [run.run_id]


async def test_a_waiting_task_can_still_be_cancelled(fleet: FleetHarness) -> None:
    job = await fleet.job()
    runs = [await fleet.run(job, f"{number:02}") for number in range(11)]
    await fleet.send()
    await fleet.store.runs.cancel(runs[-1].run_id, reason="not needed", now=fleet.clock.now())

    assert (await fleet.now(runs[-1])).status is RunStatus.CANCELLED


async def test_without_a_worker_nothing_is_sent(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.dispatcher.step()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.publisher.step()

    assert not fleet.bus.work["default"].messages
    assert await fleet.attempts_of(run) == []


async def test_only_the_slots_of_workers_on_the_bus_are_sent_to(fleet: FleetHarness) -> None:
    job = await fleet.job()
    for number in range(25):
        await fleet.run(job, f"{number:02}")
    await fleet.worker.step()
    await fleet.send()

    assert len(fleet.bus.work["default"].messages) == 10


# ---- the bus does as it likes --------------------------------------------------------------------


@pytest.mark.guarantee("C5", "S9")
async def test_an_uncertain_message_is_sent_again_under_the_same_id(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.dispatcher.step()
    fleet.bus.away = True
    await fleet.publisher.step()
    fleet.bus.away = False
    fleet.clock.advance(2_000)
    await fleet.publisher.step()
    await fleet.publisher.step()
    await fleet.publisher.step()

    assert [one.name.rpartition(":")[2] for one in fleet.bus.work["default"].messages.values()] == ["1"]
    await fleet.get()
    assert len(fleet.remote_runner.started) == 1


@pytest.mark.guarantee("C5", "S9")
async def test_while_the_bus_is_away_nothing_more_is_taken_from_the_store(fleet: FleetHarness) -> None:
    job = await fleet.job()
    await fleet.run(job, "a")
    await fleet.send()
    fleet.bus.away = True
    late = await fleet.run(job, "b")
    await fleet.dispatcher.step()
    for _ in range(5):
        fleet.clock.advance(1_000)
        await fleet.publisher.step()

    assert len(await fleet.attempts_of(late)) <= 1
    assert "bus_unavailable" in fleet.events.names()


@pytest.mark.guarantee("S7", "S9", "C5")
async def test_every_report_twice_and_in_any_order_changes_nothing(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    [(_, message)] = fleet.bus.reports.messages.items()
    await fleet.collect_reports()
    before = await fleet.attempts_of(run)

    [task] = await fleet.store.history.tasks([run])
    for number, reports in enumerate(
        (
            WorkerReport(worker="field_1", started=(StartedReport(task.task_id, 1),)),
            WorkerReport(worker="field_1", ended=(EndedReport(task_id=task.task_id, fence=1, result=Result.FAILED),)),
            WorkerReport(worker="field_9", started=(StartedReport(task.task_id, 2),)),
            WorkerReport(
                worker="field_9", ended=(EndedReport(task_id=task.task_id, fence=7, result=Result.SUCCEEDED),)
            ),
        )
    ):
        body = encode_worker_report(reports, message_id=f"{reports.worker}:again {number}", now=0)
        fleet.bus.reports.add(f"again {number}", body, sender=reports.worker)
    fleet.bus.reports.add("again", message.body, sender=message.sender)
    await fleet.collect_reports()

    assert (await fleet.attempts_of(run), (await fleet.now(run)).status) == (before, RunStatus.COMPLETED)
    # Twice about the first attempt is once; and one of an attempt that there never was.
    assert fleet.events.names().count("late_result") == 2
    assert not fleet.bus.reports.messages


async def test_an_end_that_is_heard_before_its_beginning_counts(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.get()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    first, second = fleet.bus.reports.messages
    messages = fleet.bus.reports.messages
    messages[first], messages[second] = messages[second], messages[first]
    await fleet.collect_reports()

    assert (await fleet.now(run)).status is RunStatus.COMPLETED


@pytest.mark.guarantee("S9")
@pytest.mark.req("R-17")
async def test_a_redelivered_task_is_not_started_twice_by_any_worker(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.get()
    await fleet.collect_reports()
    fleet.clock.advance(LEASE_MS + 1)
    other = fleet.new_remote_worker("field_2", remote_runner := FakeRunner())
    await other.heartbeat.send()
    await fleet.get(other)

    assert (len(fleet.remote_runner.started), remote_runner.started) == (1, {})
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S9")
async def test_a_worker_that_receives_its_own_task_again_continues_it(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.bus.work["default"].messages[1].visible_at = 0
    await fleet.get()
    assert len(fleet.remote_runner.started) == 1

    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    assert (await fleet.now(run)).status is RunStatus.COMPLETED
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S4", "S9")
async def test_a_task_of_a_dead_worker_goes_to_another_once_its_lease_has_expired(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.clock.advance(LEASE_MS + 1)
    other = fleet.new_remote_worker("field_2", remote_runner := FakeRunner())
    await other.heartbeat.send()
    await fleet.reconciler.step()
    fleet.clock.advance(1_000)
    await fleet.send()
    await fleet.get(other)
    remote_runner.end_all()
    await other.step()
    await fleet.collect_reports()

    assert [(one.worker, one.result) for one in await fleet.attempts_of(run)] == [
        ("field_1", Result.LOST),
        ("field_2", Result.SUCCEEDED),
    ]


@pytest.mark.guarantee("S9")
async def test_a_worker_that_has_reported_very_much_is_heard_all_the_same(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_worker.heartbeat.record_reported((TaskId(f"task_{number:055}"), 1) for number in range(100_000))
    for _ in range(9):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.remote_worker.heartbeat.send()
    await fleet.reconciler.step()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("S9")
async def test_a_task_reported_just_now_is_not_lost_before_the_report_is_written(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.clock.advance(LEASE_MS // 3 * 2)
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.remote_worker.heartbeat.send()
    fleet.clock.advance(LEASE_MS // 2)
    await fleet.reconciler.step()
    await fleet.collect_reports()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("S7")
async def test_a_report_of_a_worker_that_was_given_up_is_too_late(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.reconciler.step()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.LOST]
    assert "late_result" in fleet.events.names()


@pytest.mark.guarantee("S9")
async def test_a_task_that_arrives_after_its_deadline_is_not_started(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    fleet.clock.advance(LEASE_MS - 1)
    await fleet.remote_worker.heartbeat.send()
    await fleet.get()
    await fleet.collect_reports()

    assert not fleet.remote_runner.started
    assert [one.result for one in await fleet.attempts_of(run)] == [Result.NEVER_STARTED]


@pytest.mark.guarantee("S9")
@pytest.mark.parametrize(("on_its_way", "set_back_ms"), [(4, 0), (0, LEASE_MS)])
async def test_a_task_that_waited_too_long_at_its_worker_is_not_started_whatever_the_clock(
    fleet: FleetHarness, on_its_way: int, set_back_ms: int
) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    fleet.clock.advance(LEASE_MS * on_its_way // 10)
    await fleet.remote_worker.pull()
    fleet.clock.advance(LEASE_MS * (6 - on_its_way) // 10)
    fleet.clock.shift_wall_clock(-set_back_ms)
    await fleet.remote_worker.heartbeat.send()
    await fleet.remote_worker.step()

    assert not fleet.remote_runner.started


@pytest.mark.guarantee("S9")
async def test_a_task_that_could_not_be_sent_in_time_is_not_sent(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.publisher.step()
    await fleet.dispatcher.step()
    await fleet.publisher.take_with_admission()
    assert len(await fleet.attempts_of(run)) == 1
    fleet.bus.away = True
    for _ in range(16):
        await fleet.publisher.step()
        fleet.clock.advance(1_000)
    fleet.bus.away = False
    await fleet.publisher.step()

    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S4")
async def test_a_reported_task_is_not_lost_while_servers_are_slow(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    fleet.clock.advance(LEASE_MS * 2 // 3)
    await fleet.remote_worker.heartbeat.send()
    fleet.clock.advance(LEASE_MS * 2 // 3)
    await fleet.reconciler.step()
    await fleet.collect_reports()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.req("R-17")
async def test_a_running_task_is_not_given_to_others(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.run_cycle()
    for _ in range(4):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.remote_worker.heartbeat.send()

    assert not await MemoryWorkerBus(fleet.bus).pull(limit=1, wait_ms=0)


async def test_when_reports_cannot_be_had_what_keeps_them_is_made_again(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[bool] = []
    monkeypatch.setattr(fleet.publisher, "rebuild_streams", lambda: rebuilt.append(True))
    fleet.bus.away = True
    await fleet.consumer.step()

    assert rebuilt == [True]


@pytest.mark.guarantee("S4")
async def test_a_server_that_has_forgotten_what_was_sent_reads_it_again(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job(workflow(retry=RetryPolicy(max_attempts=3))))
    await fleet.send()
    await fleet.get()
    fleet.remote_runner.end_all(Result.FAILED, error="broken")
    await fleet.remote_worker.step()
    _, result_consumer = fleet.new_server()
    await result_consumer.step()

    [task] = await fleet.store.history.tasks([run])
    assert (task.state, task.attempts, task.note) == (TaskState.PENDING, 1, "broken")


@at_once
async def test_while_the_store_is_away_reports_are_kept_and_come_again(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnomon.errors import StoreUnavailable

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    with monkeypatch.context() as patched:
        patched.setattr(fleet.store.attempts, "report", away)
        assert await fleet.consumer.step() > 0
    assert (await fleet.now(run)).status is RunStatus.RUNNING
    fleet.clock.advance(1_001)
    await fleet.collect_reports()

    assert (await fleet.now(run)).status is RunStatus.COMPLETED


@pytest.mark.req("R-17")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "hanzo.mq.v2"}',
        encode_worker_report(WorkerReport(worker="field_1"), message_id="field_1:1", now=0).replace(
            b"scheduler.report", b"other"
        ),
        encode_worker_report(WorkerReport(worker="field_1"), message_id="field_1:1", now=0).replace(
            b'"source":"field_1"', b'"source":""'
        ),
        b'{"py/object": "os.system"}',
    ],
)
async def test_a_report_that_nobody_can_read_is_put_away_and_the_next_is_heard(
    fleet: FleetHarness, body: bytes
) -> None:
    run = await fleet.run(await fleet.job())
    fleet.bus.reports.add("bad", body, sender="field_1")
    await fleet.run_cycle()

    assert [one[1] for one in fleet.bus.dead] == [body]
    assert (await fleet.now(run)).status is RunStatus.RUNNING


@pytest.mark.req("R-17")
async def test_a_task_that_a_worker_cannot_read_is_kept_for_people(fleet: FleetHarness) -> None:
    fleet.bus.of("default").add("bad", b"{")
    await fleet.get()
    await fleet.collect_reports()

    assert [one[1] for one in fleet.bus.dead] == [b"{"]
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("C5", "S9")
async def test_after_the_bus_has_forgotten_whom_it_gave_what_workers_ask_before_they_begin(fleet: FleetHarness) -> None:
    job = await fleet.job()
    await fleet.run(job, "a")
    await fleet.send()
    await fleet.get()
    other = fleet.new_remote_worker("field_2", remote_runner := FakeRunner())
    await other.heartbeat.send()
    fleet.bus.forgetful = True
    fleet.bus.work["default"].forget()
    await fleet.run(job, "b")
    await fleet.send()
    await other.pull()
    await other.step()
    assert not remote_runner.started, "the first one's beginning has not been heard yet"
    await fleet.collect_reports()
    await other.step()

    assert ([one.run.run_id for one in remote_runner.started.values()], len(fleet.remote_runner.started)) == (
        ["run_b"],
        1,
    )


# ---- at most once --------------------------------------------------------------------------------


@pytest.mark.guarantee("S5")
async def test_an_at_most_once_task_starts_once_it_is_granted(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    await fleet.get()

    assert len(fleet.remote_runner.started) == 1
    [attempt] = await fleet.attempts_of(run)
    assert (attempt.worker, (await fleet.now(run)).status) == ("field_1", RunStatus.RUNNING)


@pytest.mark.guarantee("S5")
async def test_without_a_server_what_must_not_start_twice_does_not_start(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    fleet.bus.grants = None
    await fleet.remote_worker.pull()
    await fleet.remote_worker.step()

    assert not fleet.remote_runner.started


@pytest.mark.guarantee("S5")
async def test_of_two_workers_who_ask_one_is_granted(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    other = fleet.new_remote_worker("field_2", remote_runner := FakeRunner())
    await other.heartbeat.send()
    await fleet.remote_worker.pull()
    fleet.bus.work["default"].messages[1].visible_at = 0
    await fleet.get(other)
    await fleet.remote_worker.step()

    assert (len(remote_runner.started), fleet.remote_runner.started) == (1, {})


@pytest.mark.guarantee("S5")
async def test_a_message_that_a_bus_delivers_twice_without_knowing_starts_once(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    other = fleet.new_remote_worker("field_2", remote_runner := FakeRunner())
    await other.heartbeat.send()
    await fleet.get()
    # A power cut took the delivery back that was not yet on its disk, and nobody has noticed an outage.
    message = fleet.bus.work["default"].messages[1]
    message.tries, message.visible_at = 0, 0
    await fleet.get(other)

    assert (len(fleet.remote_runner.started), remote_runner.started) == (1, {})
    assert other.in_hand == 0


async def sent_with_care(fleet: FleetHarness) -> RequestHandler:
    """An at-most-once task waits at a worker; a server grants it with the answer that this returns."""
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    assert fleet.bus.grants is not None
    return fleet.bus.grants


@pytest.mark.guarantee("S5")
async def test_a_grant_whose_answer_was_lost_is_given_again_to_the_same_worker(fleet: FleetHarness) -> None:
    answer = await sent_with_care(fleet)

    async def lost(sender: str, body: bytes) -> bytes:
        from gnomon.errors import BusUnavailable

        await answer(sender, body)
        raise BusUnavailable("the answer was lost")

    fleet.bus.grants = lost
    await fleet.remote_worker.pull()
    await fleet.remote_worker.step()
    assert not fleet.remote_runner.started
    fleet.bus.grants = answer
    await fleet.remote_worker.step()

    assert len(fleet.remote_runner.started) == 1


@pytest.mark.guarantee("S5", "S9")
async def test_a_task_redelivered_while_it_is_granted_starts_once(fleet: FleetHarness) -> None:
    answer = await sent_with_care(fleet)

    async def slow(sender: str, body: bytes) -> bytes:
        fleet.bus.work["default"].messages[1].visible_at = 0
        await fleet.remote_worker.pull()
        return await answer(sender, body)

    fleet.bus.grants = slow
    await fleet.get()
    await fleet.get()

    assert len(fleet.remote_runner.started) == 1


@pytest.mark.guarantee("S9")
async def test_a_task_lost_while_it_is_granted_does_not_start(fleet: FleetHarness) -> None:
    answer = await sent_with_care(fleet)

    async def too_late(sender: str, body: bytes) -> bytes:
        granted = await answer(sender, body)
        await fleet.reconciler.recover(alive={"nobody"})
        await fleet.remote_worker.heartbeat.send(at_once=True)
        return granted

    fleet.bus.grants = too_late
    await fleet.get()

    assert not fleet.remote_runner.started


@pytest.mark.guarantee("S5")
async def test_a_lost_attempt_of_what_must_not_start_twice_is_not_repeated(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    await fleet.get()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.reconciler.step()

    assert (await fleet.now(run)).status is RunStatus.FAILED
    assert [one.result for one in await fleet.attempts_of(run)] == [Result.LOST]


# ---- being alive ---------------------------------------------------------------------------------


@pytest.mark.req("R-18")
async def test_a_worker_that_beats_keeps_what_it_has(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    for _ in range(6):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.remote_worker.heartbeat.send()
        await fleet.reconciler.step()

    assert (await fleet.now(run)).status is RunStatus.RUNNING
    assert [one.worker for one in await fleet.store.workers.alive()] == ["field_1"]
    assert not fleet.remote_runner.stopped


@pytest.mark.guarantee("C4")
async def test_a_worker_that_nobody_hears_stops_by_itself_before_its_lease_is_over(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.run_cycle()
    [held] = fleet.remote_runner.started
    fleet.bus.away = True
    fleet.clock.advance(LEASE_MS // 2)
    await fleet.remote_worker.heartbeat.send()
    assert not fleet.remote_runner.stopped
    fleet.clock.advance(LEASE_MS * 3 // 10)
    await fleet.remote_worker.heartbeat.send()

    assert fleet.remote_runner.stopped == [(held, Result.LOST)]


@pytest.mark.guarantee("C4")
async def test_a_worker_that_was_frozen_begins_nothing_when_it_wakes(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.remote_worker.pull()
    fleet.clock.advance(LEASE_MS * 9 // 10)
    await fleet.remote_worker.step()

    assert not fleet.remote_runner.started


@pytest.mark.guarantee("S11")
async def test_a_cancel_reaches_the_worker_with_the_next_beat(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    await fleet.store.runs.cancel(run.run_id, reason="enough", now=fleet.clock.now())
    fleet.clock.advance(1_000)
    await fleet.remote_worker.heartbeat.send()
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    assert (await fleet.now(run)).status is RunStatus.CANCELLED


@pytest.mark.guarantee("S26")
async def test_a_worker_that_stops_gives_back_what_it_has_and_is_forgotten(fleet: FleetHarness) -> None:
    job = await fleet.job()
    running, waiting = await fleet.run(job, "a"), await fleet.run(job, "b")
    await fleet.send()
    await fleet.remote_worker.pull()
    await fleet.remote_worker.drain()
    await fleet.collect_reports()

    assert not fleet.remote_runner.started
    for run in (running, waiting):
        [attempt] = await fleet.attempts_of(run)
        assert attempt.result is Result.NEVER_STARTED
    assert await fleet.store.workers.alive() == []


async def test_a_function_that_a_worker_does_not_have_is_given_back(fleet: FleetHarness) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    other = fleet.new_remote_worker("field_2", FakeRunner("something.else"))
    await other.heartbeat.send()
    await fleet.get(other)
    await fleet.collect_reports()

    [attempt] = await fleet.attempts_of(run)
    assert attempt.result is Result.NEVER_STARTED
    assert "no function 'reports.make'" in (attempt.error or "")


@pytest.mark.parametrize("slots", [-5, 10**9])
async def test_nobody_has_more_slots_than_there_can_be(slots: int) -> None:
    fleet = FleetHarness()
    await fleet.consumer.answer()
    card = {"worker": "field_1", "functions": [], "slots": slots, "started_at": 0}
    assert fleet.bus.heartbeats is not None
    await fleet.bus.heartbeats("field_1", msgspec.json.encode({"card": card, "from a newer version": True}))

    [known] = await fleet.store.workers.alive()
    assert 0 <= known.slots <= 100_000


async def test_an_output_passes_the_gate_at_the_server(fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def held_back(*_: object) -> OutputRelease:
        return OutputRelease(output=None, quarantine="looks like a secret")

    monkeypatch.setattr(fleet.gate, "release_now", held_back)
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all(output=b'"xyz"')
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    [task] = await fleet.store.history.tasks([run])
    assert task.state is TaskState.OUTPUT_QUARANTINED


# ---- what comes again ----------------------------------------------------------------------------


async def reported(fleet: FleetHarness, run: Run) -> None:
    """A worker has begun the run, and servers have not heard of it."""
    await fleet.send()
    await fleet.get()
    assert (await fleet.now(run)).status is RunStatus.PENDING


@pytest.mark.req("R-17")
async def test_a_report_that_was_written_down_is_not_written_down_again_by_another_server(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fleet.run(await fleet.job())
    await reported(fleet, run)
    said = {one.name: one.body for one in fleet.bus.reports.messages.values()}
    await fleet.collect_reports()
    for name, body in said.items():
        fleet.bus.reports.add(f"again {name}", body)

    written: list[Collection[AttemptRef]] = []

    async def begin(held: Collection[AttemptRef], **_: object) -> frozenset[AttemptRef]:
        written.append(held)
        return frozenset()

    _, other = fleet.new_server()
    monkeypatch.setattr(fleet.store.attempts, "begin", begin)
    assert await other.step() == 0
    assert (written, fleet.bus.reports.messages) == ([], {})


@pytest.mark.req("R-17")
async def test_a_report_that_another_server_is_dealing_with_is_left_to_it_while_the_bus_would(
    fleet: FleetHarness,
) -> None:
    run = await fleet.run(await fleet.job())
    await reported(fleet, run)
    await fleet.deduplicator.begin("schedulers", "field_1:1", ttl_ms=LEASE_MS // 6)

    await fleet.collect_reports()
    assert (await fleet.now(run)).status is RunStatus.PENDING
    fleet.clock.advance(LEASE_MS // 6 + 1)
    await fleet.collect_reports()

    assert (await fleet.now(run)).status is RunStatus.RUNNING


@pytest.mark.req("R-17")
async def test_a_report_that_cannot_be_processed_blocks_no_other_and_ends_as_a_dead_letter(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnomon.services.remote import result_consumer

    monkeypatch.setattr(result_consumer, "_MAX_DELIVERIES", 2)
    run = await fleet.run(await fleet.job())
    poison = encode_worker_report(
        WorkerReport(worker="field_9", started=(StartedReport(TaskId("poison"), 1),)), message_id="field_9:1", now=0
    )
    known = fleet.store.attempts.assigned_tasks

    async def breaks(held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        if any(name == "poison" for name, _ in held):
            raise ValueError("boom")
        return await known(held)

    monkeypatch.setattr(fleet.store.attempts, "assigned_tasks", breaks)
    await reported(fleet, run)
    fleet.bus.reports.add("bad", poison, sender="field_9")

    await fleet.collect_reports()
    assert ((await fleet.now(run)).status, fleet.bus.dead) == (RunStatus.RUNNING, [])
    fleet.clock.advance(5_001)
    await fleet.collect_reports()

    assert [one[1] for one in fleet.bus.dead] == [poison]
    assert not fleet.bus.reports.messages
