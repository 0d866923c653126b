"""A copy of a task message starts nothing: one worker starts an attempt, whoever repeats its message."""

import pytest
from msgspec.structs import replace

from gnomon.core.messages import decode_task_message, encode_task_message
from gnomon.core.model import RunStatus
from gnomon.ports.messaging import InboundMessage
from gnomon.services.remote.remote_worker import RemoteWorker
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness


@pytest.fixture
async def fleet() -> FleetHarness:
    fleet = FleetHarness()
    await fleet.open()
    return fleet


@pytest.fixture
async def other(fleet: FleetHarness) -> RemoteWorker:
    """A second worker, which messages sent from now on do not make doubt."""
    worker = fleet.new_remote_worker("field_2", FakeRunner())
    await worker.heartbeat.send()
    fleet.clock.advance(1_001)
    return worker


@pytest.mark.guarantee("S9")
async def test_a_copy_under_another_name_is_not_begun_and_is_kept_for_people(
    fleet: FleetHarness, other: RemoteWorker
) -> None:
    run = await fleet.run(await fleet.job())
    await fleet.send()
    work = fleet.bus.work["default"]
    [message] = work.messages.values()
    await fleet.get()
    work.add("another name", message.body)
    await fleet.get(other)
    work.add("a third name", message.body)
    await fleet.get()

    assert (len(fleet.remote_runner.started), other.in_hand) == (1, 0)
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    assert (await fleet.now(run)).status is RunStatus.COMPLETED
    assert [body for _, body, _ in fleet.bus.dead] == [message.body] * 2
    assert len(await fleet.attempts_of(run)) == 1


@pytest.mark.guarantee("S9")
@pytest.mark.parametrize(("to", "begun"), [("", 0), ("field_1", 0), ("field_2", 1), (None, 1)])
async def test_a_directed_message_starts_only_on_its_worker(
    fleet: FleetHarness, other: RemoteWorker, to: str | None, begun: int
) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    order = replace(decode_task_message(message.body), to=to)
    copied = encode_task_message(order, now=fleet.clock.now())
    fleet.bus.work["default"].messages.clear()
    fleet.bus.direct["field_2"].append(InboundMessage(copied, 1, None))
    await fleet.get(other)

    assert other.in_hand == begun


@pytest.mark.guarantee("S9")
async def test_a_directed_task_does_not_start_from_a_pool(fleet: FleetHarness) -> None:
    await fleet.run(await fleet.job())
    await fleet.send()
    [message] = fleet.bus.work["default"].messages.values()
    order = replace(decode_task_message(message.body), to="field_2")
    message.body = encode_task_message(order, now=fleet.clock.now())
    await fleet.get()

    assert not fleet.remote_runner.started
