"""Failed authentications: each is counted, and they fill neither log nor memory."""

import pytest

from gnomon.errors import RefusalReason, TokenRefused, Unauthenticated
from gnomon.services.observability.login_failures import LoginFailures
from gnomon.services.observability.metrics import MetricsRecorder
from gnomon.services.observed_events import ThrottledEvents
from gnomon.testing.clock import Recorder, VirtualClock

EXPIRED = TokenRefused("it has expired", RefusalReason.EXPIRED)


class Setup:
    def __init__(self) -> None:
        self.clock = VirtualClock(0)
        self.reported = Recorder()
        self.metrics = MetricsRecorder(max_jobs=1)
        self.throttled = ThrottledEvents(self.reported, self.clock)
        self.failures = LoginFailures(self.throttled, self.clock, self.metrics)

    def lines(self) -> list[tuple[object, object, object]]:
        return [(facts["reason"], facts["address"], facts.get("left_out")) for _, facts in self.reported.seen]


@pytest.fixture
def at() -> Setup:
    return Setup()


def test_a_failure_is_logged_with_reason_and_address_and_counted(at: Setup) -> None:
    at.failures.record(EXPIRED, "10.0.0.7")
    at.failures.record(Unauthenticated("there are two Authorization headers"), "10.0.0.7")

    assert at.lines() == [("expired", "10.0.0.7", None), ("other", "10.0.0.7", None)]
    assert at.metrics.counters["auth_failures"]["expired",] == 1


def test_repeated_failures_are_one_line_a_second_with_their_number(at: Setup) -> None:
    for _ in range(1000):
        at.failures.record(EXPIRED, "10.0.0.7")
    at.clock.advance(1_000)
    at.failures.record(EXPIRED, "10.0.0.7")

    assert at.lines() == [("expired", "10.0.0.7", None), ("expired", "10.0.0.7", 999)]
    assert at.metrics.counters["auth_failures"]["expired",] == 1001


def test_a_flood_from_many_addresses_names_ten_of_them_and_counts_all(at: Setup) -> None:
    for number in range(5_000):
        at.failures.record(EXPIRED, f"2001:db8::{number:x}")

    assert len(at.lines()) == 11
    assert at.lines()[-1] == ("expired", "other addresses", None)
    assert at.metrics.counters["auth_failures"]["expired",] == 5_000


def test_every_reason_is_shown_from_the_start(at: Setup) -> None:
    assert set(at.metrics.counters["auth_failures"]) == {(reason.value,) for reason in RefusalReason}
