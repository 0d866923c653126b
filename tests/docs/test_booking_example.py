"""The example of a trip whose third booking fails, on the scheduler for tests."""

from typing import Any

import pytest

import gnomon
from gnomon.testing.scheduler import VirtualScheduler


@pytest.mark.req("R-09")
async def test_the_bookings_before_the_one_that_fails_are_cancelled_backwards(scheduler: VirtualScheduler) -> None:
    for name in ("flight", "hotel"):
        scheduler.function(f"travel/book-{name}", returns={"id": f"{name}-1"})
    scheduler.function("travel/cancel-hotel")
    scheduler.function("travel/cancel-flight", raises=[ConnectionError("no route"), None])
    scheduler.function("travel/book-car", raises=gnomon.GiveUp("no car is left"))
    await scheduler.load("examples/booking.yaml")

    await scheduler.trigger("booking")
    await scheduler.run_for("10m")

    [run] = scheduler.runs("booking")
    assert run.status == "failed"
    found = [(call.step, call.input) for call in _cancellations(scheduler)]
    hotel = {"booking": "hotel-1"}
    assert [step for step, _ in found] == ["compensate:hotel"] * 2 + ["compensate:flight"] * 2
    assert [given for _, given in found][:2] == [hotel | {"city": "Oslo"}, hotel | {"city": "Rome"}]
    assert found[-1][1]["booking"] == "flight-1"


def _cancellations(scheduler: VirtualScheduler) -> list[Any]:
    calls = [*scheduler.calls("travel/cancel-hotel"), *scheduler.calls("travel/cancel-flight")]
    return sorted(calls, key=lambda call: call.at)
