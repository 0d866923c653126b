"""Circuit breakers: closed, open and half-open, as a pure table over outcomes and time."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.breakers import (
    CLOSED_BREAKER,
    Breaker,
    BreakerLimits,
    BreakerState,
    record_failure,
    record_success,
    release,
    request_permission,
)

pytestmark = pytest.mark.req("R-12")

LIMITS = BreakerLimits(failures=3, open_ms=30_000, probes=3, successes=2, probe_ms=5_000)


def failed(times: int, *, now: int = 0, breaker: Breaker = CLOSED_BREAKER) -> Breaker:
    for number in range(times):
        breaker = record_failure(breaker, LIMITS, f"failing-{number}", now=now)
    return breaker


def half_open(*probes: str, now: int = 30_000) -> Breaker:
    breaker = failed(3)
    for probe in probes:
        permission = request_permission(breaker, LIMITS, probe, now=now)
        assert permission.granted
        breaker = permission.breaker
    return breaker


def test_the_limits_of_the_seed_are_the_defaults() -> None:
    limits = BreakerLimits()
    assert (limits.failures, limits.open_ms, limits.probes, limits.successes) == (3, 30_000, 3, 2)


def test_failures_in_a_row_open_it() -> None:
    assert failed(2).state(0) is BreakerState.CLOSED
    assert failed(3).state(0) is BreakerState.OPEN


def test_a_success_begins_the_count_of_failures_again() -> None:
    breaker = record_success(failed(2), LIMITS, "works")
    assert breaker is CLOSED_BREAKER
    assert failed(2, breaker=breaker).state(0) is BreakerState.CLOSED


def test_a_success_without_failures_before_changes_nothing_that_had_to_be_stored() -> None:
    assert record_success(CLOSED_BREAKER, LIMITS, "works") is CLOSED_BREAKER


def test_an_open_breaker_grants_nothing_and_says_when_to_ask_again() -> None:
    permission = request_permission(failed(3, now=1_000), LIMITS, "next", now=30_999)
    assert not permission.granted
    assert permission.ask_again_at == 31_000


def test_the_open_time_runs_from_the_failure_that_opened_it() -> None:
    breaker = failed(3, now=1_000)
    for at in (2_000, 20_000, 30_999):
        assert not request_permission(breaker, LIMITS, f"asks at {at}", now=at).granted
        breaker = record_failure(breaker, LIMITS, f"sent before, failed at {at}", now=at)
    assert breaker.state(30_999) is BreakerState.OPEN
    assert breaker.state(31_000) is BreakerState.HALF_OPEN


def test_a_success_that_was_sent_before_it_opened_does_not_close_it() -> None:
    breaker = failed(3)
    assert record_success(breaker, LIMITS, "sent before") is breaker


def test_half_open_it_grants_as_many_probes_as_there_are_slots() -> None:
    breaker = half_open("a", "b", "c")
    refused = request_permission(breaker, LIMITS, "d", now=30_001)
    assert not refused.granted
    assert refused.ask_again_at == 35_000


def test_a_probe_that_asks_again_keeps_its_slot() -> None:
    assert request_permission(half_open("a", "b", "c"), LIMITS, "b", now=30_001).granted


def test_enough_successful_probes_close_it() -> None:
    breaker = record_success(half_open("a", "b"), LIMITS, "a")
    assert breaker.state(30_001) is BreakerState.HALF_OPEN
    assert record_success(breaker, LIMITS, "b") is CLOSED_BREAKER


def test_a_successful_probe_frees_its_slot() -> None:
    breaker = record_success(half_open("a", "b", "c"), LIMITS, "a")
    assert request_permission(breaker, LIMITS, "d", now=30_001).granted


def test_a_failed_probe_opens_it_again_from_that_failure() -> None:
    breaker = record_failure(half_open("a", "b"), LIMITS, "a", now=31_000)
    assert breaker.state(60_999) is BreakerState.OPEN
    assert breaker.state(61_000) is BreakerState.HALF_OPEN


def test_probes_of_an_earlier_half_open_time_count_no_more() -> None:
    breaker = record_failure(half_open("a", "b"), LIMITS, "a", now=31_000)
    assert record_failure(breaker, LIMITS, "b", now=62_000) is breaker
    assert record_success(breaker, LIMITS, "b") is breaker


def test_outcomes_of_requests_that_were_no_probes_count_only_while_it_is_closed() -> None:
    breaker = half_open("a")
    assert record_failure(breaker, LIMITS, "sent before it opened", now=30_001) is breaker
    assert record_success(breaker, LIMITS, "sent before it opened") is breaker


def test_a_cancelled_probe_frees_its_slot_and_counts_neither_way() -> None:
    breaker = release(half_open("a", "b", "c"), "a")
    assert (breaker.failures, breaker.successes) == (3, 0)
    assert request_permission(breaker, LIMITS, "d", now=30_001).granted


def test_a_probe_without_an_outcome_loses_its_slot_in_time() -> None:
    breaker = half_open("a", "b", "c")
    assert not request_permission(breaker, LIMITS, "d", now=34_999).granted
    assert request_permission(breaker, LIMITS, "d", now=35_000).granted


def test_one_breaker_of_one_failure_one_probe_and_one_success() -> None:
    limits = BreakerLimits(failures=1, open_ms=10, probes=1, successes=1, probe_ms=5)
    breaker = record_failure(CLOSED_BREAKER, limits, "a", now=0)
    assert not request_permission(breaker, limits, "b", now=9).granted
    probing = request_permission(breaker, limits, "b", now=10)
    assert probing.granted
    assert not request_permission(probing.breaker, limits, "c", now=10).granted
    assert record_success(probing.breaker, limits, "b") is CLOSED_BREAKER


def test_it_survives_being_stored_as_json() -> None:
    breaker = half_open("a", "b")
    assert msgspec.json.decode(msgspec.json.encode(breaker), type=Breaker) == breaker


actions = st.lists(
    st.tuples(st.sampled_from(["ask", "succeed", "fail", "release"]), st.sampled_from("abcde"), st.integers(0, 12_000)),
    max_size=60,
)


@given(actions)
def test_a_breaker_has_at_most_its_probes_and_never_stays_open_for_longer(
    history: list[tuple[str, str, int]],
) -> None:
    breaker, now = CLOSED_BREAKER, 0
    for action, request, passed in history:
        now += passed
        before = breaker
        match action:
            case "ask":
                permission = request_permission(breaker, LIMITS, request, now=now)
                breaker = permission.breaker
                assert permission.granted is (breaker.open_until is None or request in breaker.probes)
                if permission.ask_again_at is not None:
                    assert permission.ask_again_at > now
            case "succeed":
                breaker = record_success(breaker, LIMITS, request)
            case "fail":
                breaker = record_failure(breaker, LIMITS, request, now=now)
            case _:
                breaker = release(breaker, request)
        assert sum(until > now for until in breaker.probes.values()) <= LIMITS.probes
        if before.state(now) is BreakerState.OPEN:
            assert breaker == before
        if breaker.open_until is not None:
            assert breaker.open_until <= now + LIMITS.open_ms
