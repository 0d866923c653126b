"""From a server to workers that know only the bus, and back: whatever the bus does, every start has a reason."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest

from gnomon.adapters.memory.messaging import MemoryWorkerSide
from gnomon.core.messages import Ended, Reports, Started, read_order, reports_message
from gnomon.core.model import Result, Run, RunStatus, TaskId
from gnomon.core.runs.admission import Released, Waiting
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, Retry
from gnomon.ports.messaging import Respond
from gnomon.ports.tasks import Held
from support.crew import ToldRunner
from support.fleet import Fleet
from support.labour import workflow

LEASE_MS = 30_000


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet(flags={"worker.slots": 10})
    await fleet.open()
    return fleet


async def test_a_run_goes_to_a_worker_and_its_end_comes_back(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    assert (await fleet.now(run)).status is RunStatus.RUNNING
    fleet.hands.end_all(output=b'{"rows": 3}')
    await fleet.field.step()
    await fleet.hear()

    ended = await fleet.now(run)
    [task] = await fleet.store.tasks([run])
    assert (ended.status, task.state) == (RunStatus.COMPLETED, TaskState.SUCCEEDED)
    assert await fleet.store.payload(task.task_id, "output") == b'{"rows": 3}'
    assert "task_succeeded" in fleet.events.names()


async def test_the_attempt_is_known_by_the_worker_that_began_it(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    assert [one.worker for one in await fleet.attempts_of(run)] == ["courier_1"]
    await fleet.get()
    await fleet.hear()

    [attempt] = await fleet.attempts_of(run)
    assert (attempt.worker, attempt.started_at) == ("field_1", fleet.clock.now())


@pytest.mark.req("H-13")
async def test_what_travels_is_the_envelope_with_what_the_seed_names(fleet: Fleet) -> None:
    definition = workflow(timeout_ms=90_000, input={"day": "${secret:DAY}"})
    run = await fleet.run(await fleet.job(definition))
    await fleet.send()

    [message] = fleet.bus.work["default"].messages.values()
    written = msgspec.json.decode(message.body)
    assert (written["schema"], written["type"], written["source"]) == ("hanzo.mq.v1", "scheduler.execute", "courier_1")
    assert written["timestamp"].endswith("Z")
    data = written["data"]
    said = {key: data[key] for key in ("job_name", "execution_id", "function", "input", "timeout", "fence")}
    assert said == {
        "job_name": run.schedule_id,
        "execution_id": run.run_id,
        "function": "reports.make",
        # A secret is still a name.
        "input": {"day": "${secret:DAY}"},
        "timeout": 90.0,
        "fence": 1,
    }
    assert message.name == f"{data['task_id']}:1"
    assert read_order(message.body).deadline > fleet.clock.now()


async def test_no_more_is_sent_than_workers_have_slots(fleet: Fleet) -> None:
    job = await fleet.job()
    for number in range(25):
        await fleet.run(job, f"{number:02}")
    await fleet.send()
    await fleet.courier.step()
    assert len(fleet.bus.work["default"].messages) == 10

    await fleet.get()
    fleet.hands.end_all()
    await fleet.field.step()
    await fleet.hear()
    await fleet.courier.step()

    assert len(fleet.bus.work["default"].messages) == 10


async def test_what_was_taken_along_is_sent_without_another_look_at_the_store(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.all()
    job = await fleet.job()
    run = await fleet.run(job)
    fleet.dispatcher.meanwhile = fleet.courier.take_along
    await fleet.dispatcher.step()
    asked: list[str] = []
    take = fleet.store.take

    async def counted(worker: str, **told: Any) -> Sequence[Waiting]:  # noqa: ANN401 - as it is given
        asked.append(worker)
        return await take(worker, **told)

    monkeypatch.setattr(fleet.store, "take", counted)
    await fleet.courier.step()
    await fleet.get()

    assert [one.run.run_id for one in fleet.hands.started.values()] == [run.run_id]
    assert asked == []


async def test_what_another_server_let_through_is_found_soon(fleet: Fleet) -> None:
    await fleet.all()
    run = await fleet.run(await fleet.job())
    another, _ = fleet.another_server()
    fleet.dispatcher.meanwhile = another.take_along
    await fleet.dispatcher.step()
    fleet.clock.advance(250)
    await fleet.courier.step()
    await fleet.get()

    assert [one.run.run_id for one in fleet.hands.started.values()] == [run.run_id]


async def test_what_waits_in_the_store_can_still_be_cancelled(fleet: Fleet) -> None:
    job = await fleet.job()
    runs = [await fleet.run(job, f"{number:02}") for number in range(11)]
    await fleet.send()
    await fleet.store.cancel(runs[-1].run_id, reason="not needed", now=fleet.clock.now())

    assert (await fleet.now(runs[-1])).status is RunStatus.CANCELLED


async def test_without_a_worker_nothing_is_sent(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.dispatcher.step()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.courier.step()

    assert not fleet.bus.work["default"].messages
    assert await fleet.attempts_of(run) == []


async def test_only_the_slots_of_workers_on_the_bus_are_sent_to(fleet: Fleet) -> None:
    job = await fleet.job()
    for number in range(25):
        await fleet.run(job, f"{number:02}")
    await fleet.worker.step()
    await fleet.send()

    assert len(fleet.bus.work["default"].messages) == 10


# ---- the bus does as it likes --------------------------------------------------------------------


@pytest.mark.guarantee("C5", "S9")
async def test_what_may_not_have_arrived_is_sent_again_under_the_same_name(fleet: Fleet) -> None:
    await fleet.run(await fleet.job())
    await fleet.dispatcher.step()
    fleet.bus.away = True
    await fleet.courier.step()
    fleet.bus.away = False
    fleet.clock.advance(2_000)
    await fleet.courier.step()
    await fleet.courier.step()
    await fleet.courier.step()

    assert [one.name.rpartition(":")[2] for one in fleet.bus.work["default"].messages.values()] == ["1"]
    await fleet.get()
    assert len(fleet.hands.started) == 1


@pytest.mark.guarantee("C5", "S9")
async def test_while_the_bus_is_away_nothing_more_is_taken_from_the_store(fleet: Fleet) -> None:
    job = await fleet.job()
    await fleet.run(job, "a")
    await fleet.send()
    fleet.bus.away = True
    late = await fleet.run(job, "b")
    await fleet.dispatcher.step()
    for _ in range(5):
        fleet.clock.advance(1_000)
        await fleet.courier.step()

    assert len(await fleet.attempts_of(late)) <= 1
    assert "bus_unavailable" in fleet.events.names()


@pytest.mark.guarantee("S7", "S9", "C5")
async def test_every_report_twice_and_in_any_order_changes_nothing(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.hands.end_all()
    await fleet.field.step()
    [(_, message)] = fleet.bus.reports.messages.items()
    await fleet.hear()
    before = await fleet.attempts_of(run)

    [task] = await fleet.store.tasks([run])
    for number, reports in enumerate(
        (
            Reports(worker="field_1", started=(Started(task.task_id, 1),)),
            Reports(worker="field_1", ended=(Ended(task_id=task.task_id, fence=1, result=Result.FAILED),)),
            Reports(worker="field_9", started=(Started(task.task_id, 2),)),
            Reports(worker="field_9", ended=(Ended(task_id=task.task_id, fence=7, result=Result.SUCCEEDED),)),
        )
    ):
        body = reports_message(reports, message_id=str(number), now=0)
        fleet.bus.reports.add(f"again {number}", body)
    fleet.bus.reports.add("again", message.body)
    await fleet.hear()

    assert (await fleet.attempts_of(run), (await fleet.now(run)).status) == (before, RunStatus.COMPLETED)
    # Twice about the first attempt is once; and one of an attempt that there never was.
    assert fleet.events.names().count("late_result") == 2
    assert not fleet.bus.reports.messages


async def test_an_end_that_is_heard_before_its_beginning_counts(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.get()
    fleet.hands.end_all()
    await fleet.field.step()
    first, second = fleet.bus.reports.messages
    messages = fleet.bus.reports.messages
    messages[first], messages[second] = messages[second], messages[first]
    await fleet.hear()

    assert (await fleet.now(run)).status is RunStatus.COMPLETED


@pytest.mark.guarantee("S9")
@pytest.mark.req("R-17")
async def test_what_comes_again_is_not_begun_a_second_time_by_anybody(fleet: Fleet) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.get()
    await fleet.hear()
    fleet.clock.advance(LEASE_MS + 1)
    other = fleet.field_worker("field_2", hands := ToldRunner())
    await other.heart.beat()
    await fleet.get(other)

    assert (len(fleet.hands.started), hands.started) == (1, {})
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S9")
async def test_a_worker_to_whom_its_own_task_comes_again_goes_on_with_it(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.bus.work["default"].messages[1].visible_at = 0
    await fleet.get()
    assert len(fleet.hands.started) == 1

    fleet.hands.end_all()
    await fleet.field.step()
    await fleet.hear()
    assert (await fleet.now(run)).status is RunStatus.COMPLETED
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S4", "S9")
async def test_what_a_dead_worker_had_goes_to_another_once_its_lease_is_over(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.clock.advance(LEASE_MS + 1)
    other = fleet.field_worker("field_2", hands := ToldRunner())
    await other.heart.beat()
    await fleet.reconciler.step()
    fleet.clock.advance(1_000)
    await fleet.send()
    await fleet.get(other)
    hands.end_all()
    await other.step()
    await fleet.hear()

    assert [(one.worker, one.result) for one in await fleet.attempts_of(run)] == [
        ("field_1", Result.LOST),
        ("field_2", Result.SUCCEEDED),
    ]


@pytest.mark.req("R-19")
@pytest.mark.guarantee("S9")
async def test_a_worker_that_has_reported_very_much_is_heard_all_the_same(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.field.heart.lately.extend((TaskId(f"task_{number:055}"), 1) for number in range(100_000))
    for _ in range(9):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.field.heart.beat()
    await fleet.reconciler.step()
    fleet.hands.end_all()
    await fleet.field.step()
    await fleet.hear()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("S9")
async def test_what_was_reported_just_now_does_not_pass_for_lost_before_it_is_written_down(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.clock.advance(LEASE_MS // 3 * 2)
    fleet.hands.end_all()
    await fleet.field.step()
    await fleet.field.heart.beat()
    fleet.clock.advance(LEASE_MS // 2)
    await fleet.reconciler.step()
    await fleet.hear()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.guarantee("S7")
async def test_what_a_worker_says_after_it_was_given_up_is_too_late(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.reconciler.step()
    fleet.hands.end_all()
    await fleet.field.step()
    await fleet.hear()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.LOST]
    assert "late_result" in fleet.events.names()


@pytest.mark.guarantee("S9")
async def test_what_arrives_after_its_deadline_is_not_begun(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    fleet.clock.advance(LEASE_MS - 1)
    await fleet.field.heart.beat()
    await fleet.get()
    await fleet.hear()

    assert not fleet.hands.started
    assert [one.result for one in await fleet.attempts_of(run)] == [Result.NEVER_STARTED]


@pytest.mark.guarantee("S9")
@pytest.mark.parametrize(("on_its_way", "set_back_ms"), [(4, 0), (0, LEASE_MS)])
async def test_what_waits_at_its_worker_for_too_long_is_not_begun_whatever_its_clock_says(
    fleet: Fleet, on_its_way: int, set_back_ms: int
) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    fleet.clock.advance(LEASE_MS * on_its_way // 10)
    await fleet.field.pull()
    fleet.clock.advance(LEASE_MS * (6 - on_its_way) // 10)
    fleet.clock.set_back_or_forth(-set_back_ms)
    await fleet.field.heart.beat()
    await fleet.field.step()

    assert not fleet.hands.started


@pytest.mark.guarantee("S9")
async def test_what_could_not_be_sent_in_time_is_not_sent_at_all(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.courier.step()
    await fleet.dispatcher.step()
    await fleet.courier.take_along()
    assert len(await fleet.attempts_of(run)) == 1
    fleet.bus.away = True
    for _ in range(16):
        await fleet.courier.step()
        fleet.clock.advance(1_000)
    fleet.bus.away = False
    await fleet.courier.step()

    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("S4")
async def test_what_was_reported_does_not_pass_for_lost_while_servers_are_slow(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.hands.end_all()
    await fleet.field.step()
    fleet.clock.advance(LEASE_MS * 2 // 3)
    await fleet.field.heart.beat()
    fleet.clock.advance(LEASE_MS * 2 // 3)
    await fleet.reconciler.step()
    await fleet.hear()

    assert [one.result for one in await fleet.attempts_of(run)] == [Result.SUCCEEDED]


@pytest.mark.req("R-17")
async def test_what_is_being_worked_on_is_not_given_to_others(fleet: Fleet) -> None:
    await fleet.run(await fleet.job())
    await fleet.all()
    for _ in range(4):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.field.heart.beat()

    assert not await MemoryWorkerSide(fleet.bus).pull(limit=1, wait_ms=0)


async def test_when_reports_cannot_be_had_what_keeps_them_is_made_again(fleet: Fleet) -> None:
    troubles: list[str] = []
    fleet.collector.on_trouble = lambda: troubles.append("trouble")
    fleet.bus.away = True
    await fleet.collector.step()

    assert troubles == ["trouble"]


@pytest.mark.guarantee("S4")
async def test_a_server_that_has_forgotten_what_was_sent_reads_it_again(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job(workflow(retry=Retry(max_attempts=3))))
    await fleet.send()
    await fleet.get()
    fleet.hands.end_all(Result.FAILED, error="broken")
    await fleet.field.step()
    _, result_consumer = fleet.another_server()
    await result_consumer.step()

    [task] = await fleet.store.tasks([run])
    assert (task.state, task.attempts, task.note) == (TaskState.PENDING, 1, "broken")


async def test_while_the_store_is_away_reports_are_kept_and_come_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnomon.errors import StoreUnavailable

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.hands.end_all()
    await fleet.field.step()
    with monkeypatch.context() as patched:
        patched.setattr(fleet.store, "report", away)
        assert await fleet.collector.step() > 0
    assert (await fleet.now(run)).status is RunStatus.RUNNING
    fleet.clock.advance(1_001)
    await fleet.hear()

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
        reports_message(Reports(worker="field_1"), message_id="1", now=0).replace(b"scheduler.report", b"other"),
        reports_message(Reports(worker="field_1"), message_id="1", now=0).replace(
            b'"source":"field_1"', b'"source":""'
        ),
        b'{"py/object": "os.system"}',
    ],
)
async def test_a_report_that_nobody_can_read_is_put_away_and_the_next_is_heard(fleet: Fleet, body: bytes) -> None:
    run = await fleet.run(await fleet.job())
    fleet.bus.reports.add("bad", body)
    await fleet.all()

    assert [one[1] for one in fleet.bus.dead] == [body]
    assert (await fleet.now(run)).status is RunStatus.RUNNING


@pytest.mark.req("R-17")
async def test_a_task_that_a_worker_cannot_read_is_kept_for_people(fleet: Fleet) -> None:
    fleet.bus.of("default").add("bad", b"{")
    await fleet.get()
    await fleet.hear()

    assert [one[1] for one in fleet.bus.dead] == [b"{"]
    assert not fleet.bus.work["default"].messages


@pytest.mark.guarantee("C5", "S9")
async def test_after_the_bus_has_forgotten_whom_it_gave_what_workers_ask_before_they_begin(fleet: Fleet) -> None:
    job = await fleet.job()
    await fleet.run(job, "a")
    await fleet.send()
    await fleet.get()
    other = fleet.field_worker("field_2", hands := ToldRunner())
    await other.heart.beat()
    fleet.bus.forgetful = True
    fleet.bus.work["default"].forget()
    await fleet.run(job, "b")
    await fleet.send()
    await other.pull()
    await other.step()
    assert not hands.started, "the first one's beginning has not been heard yet"
    await fleet.hear()
    await other.step()

    assert ([one.run.run_id for one in hands.started.values()], len(fleet.hands.started)) == (["run_b"], 1)


# ---- at most once --------------------------------------------------------------------------------


@pytest.mark.guarantee("S5")
async def test_what_must_not_start_twice_starts_once_it_is_granted(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    await fleet.get()

    assert len(fleet.hands.started) == 1
    [attempt] = await fleet.attempts_of(run)
    assert (attempt.worker, (await fleet.now(run)).status) == ("field_1", RunStatus.RUNNING)


@pytest.mark.guarantee("S5")
async def test_without_a_server_what_must_not_start_twice_does_not_start(fleet: Fleet) -> None:
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    fleet.bus.grants = None
    await fleet.field.pull()
    await fleet.field.step()

    assert not fleet.hands.started


@pytest.mark.guarantee("S5")
async def test_of_two_workers_who_ask_one_is_granted(fleet: Fleet) -> None:
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    other = fleet.field_worker("field_2", hands := ToldRunner())
    await other.heart.beat()
    await fleet.field.pull()
    fleet.bus.work["default"].messages[1].visible_at = 0
    await fleet.get(other)
    await fleet.field.step()

    assert (len(hands.started), fleet.hands.started) == (1, {})


async def sent_with_care(fleet: Fleet) -> Respond:
    """What must not start twice waits for a worker; a server grants it with the answer that this gives back."""
    await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    assert fleet.bus.grants is not None
    return fleet.bus.grants


@pytest.mark.guarantee("S5")
async def test_a_grant_whose_answer_was_lost_is_given_again_to_the_same_worker(fleet: Fleet) -> None:
    answer = await sent_with_care(fleet)

    async def lost(body: bytes) -> bytes:
        from gnomon.errors import BusUnavailable

        await answer(body)
        raise BusUnavailable("the answer was lost")

    fleet.bus.grants = lost
    await fleet.field.pull()
    await fleet.field.step()
    assert not fleet.hands.started
    fleet.bus.grants = answer
    await fleet.field.step()

    assert len(fleet.hands.started) == 1


@pytest.mark.guarantee("S5", "S9")
async def test_what_comes_again_while_it_is_being_granted_starts_once(fleet: Fleet) -> None:
    answer = await sent_with_care(fleet)

    async def slow(body: bytes) -> bytes:
        fleet.bus.work["default"].messages[1].visible_at = 0
        await fleet.field.pull()
        return await answer(body)

    fleet.bus.grants = slow
    await fleet.get()
    await fleet.get()

    assert len(fleet.hands.started) == 1


@pytest.mark.guarantee("S9")
async def test_what_is_lost_while_it_is_being_granted_does_not_start(fleet: Fleet) -> None:
    answer = await sent_with_care(fleet)

    async def too_late(body: bytes) -> bytes:
        granted = await answer(body)
        await fleet.reconciler.recover(alive={"nobody"})
        await fleet.field.heart.beat(at_once=True)
        return granted

    fleet.bus.grants = too_late
    await fleet.get()

    assert not fleet.hands.started


@pytest.mark.guarantee("S5")
async def test_a_lost_attempt_of_what_must_not_start_twice_is_not_repeated(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await fleet.send()
    await fleet.get()
    fleet.clock.advance(LEASE_MS + 1)
    await fleet.reconciler.step()

    assert (await fleet.now(run)).status is RunStatus.FAILED
    assert [one.result for one in await fleet.attempts_of(run)] == [Result.LOST]


# ---- being alive ---------------------------------------------------------------------------------


@pytest.mark.req("R-18")
async def test_a_worker_that_beats_keeps_what_it_has(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    for _ in range(6):
        fleet.clock.advance(LEASE_MS // 3)
        await fleet.field.heart.beat()
        await fleet.reconciler.step()

    assert (await fleet.now(run)).status is RunStatus.RUNNING
    assert [one.worker for one in await fleet.store.workers()] == ["field_1"]
    assert not fleet.hands.stopped


@pytest.mark.guarantee("C4")
async def test_a_worker_that_nobody_hears_stops_by_itself_before_its_lease_is_over(fleet: Fleet) -> None:
    await fleet.run(await fleet.job())
    await fleet.all()
    [held] = fleet.hands.started
    fleet.bus.away = True
    fleet.clock.advance(LEASE_MS // 2)
    await fleet.field.heart.beat()
    assert not fleet.hands.stopped
    fleet.clock.advance(LEASE_MS * 3 // 10)
    await fleet.field.heart.beat()

    assert fleet.hands.stopped == [(held, Result.LOST)]


@pytest.mark.guarantee("C4")
async def test_a_worker_that_was_frozen_begins_nothing_when_it_wakes(fleet: Fleet) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    await fleet.field.pull()
    fleet.clock.advance(LEASE_MS * 9 // 10)
    await fleet.field.step()

    assert not fleet.hands.started


@pytest.mark.guarantee("S11")
async def test_a_cancel_reaches_the_worker_with_the_next_beat(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.all()
    await fleet.store.cancel(run.run_id, reason="enough", now=fleet.clock.now())
    fleet.clock.advance(1_000)
    await fleet.field.heart.beat()
    await fleet.field.step()
    await fleet.hear()

    assert (await fleet.now(run)).status is RunStatus.CANCELLED


@pytest.mark.guarantee("S26")
async def test_a_worker_that_stops_gives_back_what_it_has_and_is_forgotten(fleet: Fleet) -> None:
    job = await fleet.job()
    running, waiting = await fleet.run(job, "a"), await fleet.run(job, "b")
    await fleet.send()
    await fleet.field.pull()
    await fleet.field.drain()
    await fleet.hear()

    assert not fleet.hands.started
    for run in (running, waiting):
        [attempt] = await fleet.attempts_of(run)
        assert attempt.result is Result.NEVER_STARTED
    assert await fleet.store.workers() == []


async def test_a_function_that_a_worker_does_not_have_is_given_back(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    other = fleet.field_worker("field_2", ToldRunner("something.else"))
    await other.heart.beat()
    await fleet.get(other)
    await fleet.hear()

    [attempt] = await fleet.attempts_of(run)
    assert attempt.result is Result.NEVER_STARTED
    assert "no function 'reports.make'" in (attempt.error or "")


@pytest.mark.parametrize("slots", [-5, 10**9])
async def test_nobody_has_more_slots_than_there_can_be(slots: int) -> None:
    fleet = Fleet()
    await fleet.collector.answer()
    card = {"worker": "field_1", "functions": [], "slots": slots, "started_at": 0}
    assert fleet.bus.heartbeats is not None
    await fleet.bus.heartbeats(msgspec.json.encode({"card": card, "from a newer version": True}))

    [known] = await fleet.store.workers()
    assert 0 <= known.slots <= 100_000


async def test_what_comes_out_passes_the_gate_at_the_server(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def held_back(*_: object) -> Released:
        return Released(output=None, quarantine="looks like a secret")

    monkeypatch.setattr(fleet.gate, "release", held_back)
    run = await fleet.run(await fleet.job())
    await fleet.all()
    fleet.hands.end_all(output=b'"xyz"')
    await fleet.field.step()
    await fleet.hear()

    [task] = await fleet.store.tasks([run])
    assert task.state is TaskState.OUTPUT_QUARANTINED


# ---- what comes again ----------------------------------------------------------------------------


async def reported(fleet: Fleet, run: Run) -> None:
    """A worker has begun the run, and servers have not heard of it."""
    await fleet.send()
    await fleet.get()
    assert (await fleet.now(run)).status is RunStatus.PENDING


@pytest.mark.req("R-17")
async def test_a_report_that_was_written_down_is_not_written_down_again_by_another_server(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fleet.run(await fleet.job())
    await reported(fleet, run)
    said = {one.name: one.body for one in fleet.bus.reports.messages.values()}
    await fleet.hear()
    for name, body in said.items():
        fleet.bus.reports.add(f"again {name}", body)

    written: list[Collection[Held]] = []

    async def begin(held: Collection[Held], **_: object) -> frozenset[Held]:
        written.append(held)
        return frozenset()

    _, other = fleet.another_server()
    monkeypatch.setattr(fleet.store, "begin", begin)
    assert await other.step() == 0
    assert (written, fleet.bus.reports.messages) == ([], {})


@pytest.mark.req("R-17")
async def test_a_report_that_another_server_is_dealing_with_is_left_to_it_while_the_bus_would(fleet: Fleet) -> None:
    run = await fleet.run(await fleet.job())
    await reported(fleet, run)
    await fleet.guard.begin("schedulers", "field_1:1", ttl_ms=LEASE_MS // 6)

    await fleet.hear()
    assert (await fleet.now(run)).status is RunStatus.PENDING
    fleet.clock.advance(LEASE_MS // 6 + 1)
    await fleet.hear()

    assert (await fleet.now(run)).status is RunStatus.RUNNING


@pytest.mark.req("R-17")
async def test_a_report_that_cannot_be_dealt_with_holds_up_no_other_and_is_kept_for_people_in_the_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnomon.services.remote import result_consumer

    monkeypatch.setattr(result_consumer, "_MOST_TRIES", 2)
    run = await fleet.run(await fleet.job())
    poison = reports_message(
        Reports(worker="field_9", started=(Started(TaskId("poison"), 1),)), message_id="field_9:1", now=0
    )
    known = fleet.store.handed_out

    async def breaks(held: Collection[Held]) -> Sequence[Waiting]:
        if any(name == "poison" for name, _ in held):
            raise ValueError("boom")
        return await known(held)

    monkeypatch.setattr(fleet.store, "handed_out", breaks)
    await reported(fleet, run)
    fleet.bus.reports.add("bad", poison)

    await fleet.hear()
    assert ((await fleet.now(run)).status, fleet.bus.dead) == (RunStatus.RUNNING, [])
    fleet.clock.advance(5_001)
    await fleet.hear()

    assert [one[1] for one in fleet.bus.dead] == [poison]
    assert not fleet.bus.reports.messages
