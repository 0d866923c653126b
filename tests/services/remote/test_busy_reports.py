"""A mark that says that a server is processing a report is believed for as long as a server may take, and no longer."""

import pytest

from contracts.store import NOON
from gnomon.core.model import RunStatus
from gnomon.ports.coordination import PROCESSED_MS, DedupState
from gnomon.services.remote.busy_reports import BusyReports
from gnomon.testing.clock import VirtualClock
from support.fleet_harness import FleetHarness

pytestmark = pytest.mark.guarantee("C6")

IN_FLIGHT_MS = 5_000


def busy_reports(clock: VirtualClock, *, retry_ms: int = 500, most: int = 100) -> BusyReports:
    return BusyReports(clock, in_flight_ms=IN_FLIGHT_MS, retry_ms=retry_ms, most=most)


@pytest.mark.parametrize("retry_ms", [10, 500, 5_000])
@pytest.mark.parametrize("steps_ms", [250, 1_000, 2_500])
async def test_a_false_mark_is_believed_for_its_time_however_often_the_report_came(
    retry_ms: int, steps_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetHarness(flags={"nats.in_flight_ms": IN_FLIGHT_MS, "nats.busy_retry_ms": retry_ms})
    await fleet.open()

    async def begin(*_: object, **__: object) -> DedupState:
        return DedupState.IN_FLIGHT

    monkeypatch.setattr(fleet.deduplicator, "begin", begin)
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    began = fleet.clock.elapsed()
    while (await fleet.now(run)).status is RunStatus.PENDING:
        assert fleet.clock.elapsed() - began <= IN_FLIGHT_MS / 1000
        fleet.clock.advance(steps_ms)
        await fleet.collect_reports()

    assert fleet.clock.elapsed() - began == IN_FLIGHT_MS / 1000
    assert not fleet.bus.reports.messages


def test_the_time_begins_again_after_a_report_was_not_in_flight() -> None:
    clock = VirtualClock(NOON)
    busy = busy_reports(clock)
    assert not busy.is_overdue("w:1", 1)
    clock.advance(IN_FLIGHT_MS - 1)
    assert not busy.is_overdue("w:1", 2)
    busy.forget("w:1")
    clock.advance(1)

    assert not busy.is_overdue("w:1", 3)


def test_a_report_that_mostly_others_get_is_overdue_after_so_many_deliveries() -> None:
    found = [busy_reports(VirtualClock(NOON)).is_overdue("w:1", tries) for tries in (12, 13)]

    assert found == [False, True]


def test_of_too_many_reports_the_first_are_remembered_and_the_others_follow() -> None:
    clock = VirtualClock(NOON)
    busy = busy_reports(clock, most=2)
    names = ("w:1", "w:2", "w:3")
    assert not any(busy.is_overdue(name, 1) for name in names)
    clock.advance(IN_FLIGHT_MS)
    assert [busy.is_overdue(name, 2) for name in names] == [True, True, False]
    busy.forget("w:1")
    assert not busy.is_overdue("w:3", 3)
    clock.advance(IN_FLIGHT_MS)

    assert busy.is_overdue("w:3", 4)


def test_reports_that_never_come_again_are_forgotten() -> None:
    clock = VirtualClock(NOON)
    busy = busy_reports(clock, most=1)
    assert not busy.is_overdue("w:1", 1)
    clock.advance(IN_FLIGHT_MS + PROCESSED_MS)
    assert not busy.is_overdue("w:2", 1)
    clock.advance(IN_FLIGHT_MS)

    assert busy.is_overdue("w:2", 2)
