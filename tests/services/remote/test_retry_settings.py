"""The pauses before reports and tasks are sent again over the bus are settings."""

import pytest

from gnomon.core.model import Run, RunStatus
from gnomon.errors import BusUnavailable, StoreUnavailable
from gnomon.ports.coordination import DedupState
from support.fleet_harness import FleetHarness
from support.memory_bus import MemoryServerBus

pytestmark = pytest.mark.req("R-20")


@pytest.mark.parametrize("pause_ms", [1_000, 250])
async def test_a_report_that_the_store_could_not_take_comes_again_after_the_pause(
    pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.store_retry_ms": pause_ms})
    await fleet.open()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    with monkeypatch.context() as patched:
        patched.setattr(fleet.store.attempts, "report", away)
        await fleet.consumer.step()

    assert await statuses_around(fleet, run, pause_ms) == [RunStatus.RUNNING, RunStatus.COMPLETED]


@pytest.mark.parametrize("pause_ms", [500, 3_000])
async def test_a_report_that_another_server_is_processing_comes_again_after_the_pause(
    pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.busy_retry_ms": pause_ms})
    await fleet.open()

    async def busy(*_: object, **__: object) -> DedupState:
        return DedupState.IN_FLIGHT

    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    with monkeypatch.context() as patched:
        patched.setattr(fleet.deduplicator, "begin", busy)
        await fleet.consumer.step()

    assert await statuses_around(fleet, run, pause_ms) == [RunStatus.RUNNING, RunStatus.COMPLETED]


@pytest.mark.parametrize("pause_ms", [5_000, 300])
async def test_a_report_that_cannot_be_written_comes_again_after_the_pause(
    pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.letter_retry_ms": pause_ms})
    await fleet.open()

    async def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    with monkeypatch.context() as patched:
        patched.setattr(fleet.store.attempts, "report", broken)
        await fleet.consumer.step()

    assert await statuses_around(fleet, run, pause_ms) == [RunStatus.RUNNING, RunStatus.COMPLETED]


@pytest.mark.parametrize("pause_ms", [5_000, 300])
async def test_a_report_that_cannot_be_put_away_is_put_away_after_the_pause(
    pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.letter_retry_ms": pause_ms})
    await fleet.open()

    async def away(*_: object, **__: object) -> None:
        raise BusUnavailable("away")

    fleet.bus.reports.add("m1", b"no report")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryServerBus, "dead_letter_message", away)
        await fleet.consumer.step()
    letters = []
    for ms in (pause_ms - 1, 1):
        fleet.clock.advance(ms)
        await fleet.collect_reports()
        letters.append([body for _, body, _ in fleet.bus.dead])

    assert letters == [[], [b"no report"]]


async def statuses_around(fleet: FleetHarness, run: Run, pause_ms: int) -> list[RunStatus]:
    """The status of a run just before the pause has passed, and just after."""
    found = []
    for ms in (pause_ms - 1, 1):
        fleet.clock.advance(ms)
        await fleet.collect_reports()
        found.append((await fleet.now(run)).status)
    return found


@pytest.mark.parametrize("longest_ms", [2_000, 200])
async def test_the_pauses_after_failed_publishes_grow_up_to_the_setting(
    longest_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.publish_retry_ms": longest_ms})
    await fleet.open()

    async def away(*_: object, **__: object) -> None:
        raise BusUnavailable("away")

    monkeypatch.setattr(fleet.store.attempts, "take", away)
    await fleet.run(await fleet.job())
    pauses = []
    for _ in range(9):
        while not await fleet.dispatcher.step():
            pass
        fleet.publisher.tasks_admitted()
        pauses.append(await fleet.publisher.step())

    assert max(pauses) == longest_ms / 1000
