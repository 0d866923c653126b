"""How long the bus waits for acknowledgements."""

import pytest

from gnomon.config.settings import load
from gnomon.core.subjects import delivery_times, report_ack_wait_ms
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS

LEASE = 30_000


@pytest.mark.req("R-17")
def test_without_settings_the_bus_waits_for_as_long_as_a_lease_lasts() -> None:
    times = delivery_times(LEASE, longest_ms=IN_FLIGHT_MS)

    assert (times.tasks, times.reports) == (LEASE, report_ack_wait_ms(LEASE))
    assert times.in_flight == times.reports < IN_FLIGHT_MS
    assert delivery_times(600_000, longest_ms=IN_FLIGHT_MS).in_flight <= IN_FLIGHT_MS


@pytest.mark.req("R-17")
def test_the_settings_can_ask_for_ten_and_two_minutes() -> None:
    nats = load(flags={"nats.ack_wait": "10m", "nats.in_flight": "2m"}).nats

    times = delivery_times(LEASE, ack_wait_ms=nats.ack_wait_ms, in_flight_ms=nats.in_flight_ms, longest_ms=IN_FLIGHT_MS)

    assert (times.tasks, times.reports, times.in_flight) == (600_000, 600_000, 120_000)
    assert PROCESSED_MS == 600_000
