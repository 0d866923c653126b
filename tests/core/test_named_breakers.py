"""Breakers by name: several users, each with a definition of its own."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gnomon.core.breakers import BreakerLimits, BreakerState
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    RequestOutcome,
    ask_permission,
    closed_by_hand,
    defined,
    record_outcome,
    strictest,
)

KEY = BreakerKey("default", "stripe")
LAX, STRICT = BreakerLimits(failures=5, open_ms=1_000), BreakerLimits(failures=2, open_ms=60_000, probes=1)


def use(user: str, limits: BreakerLimits, request: str = "r") -> BreakerUse:
    return BreakerUse(key=KEY, limits=limits, user=user, request=request)


def used(*uses: BreakerUse) -> NamedBreaker:
    named = None
    for one in uses:
        named = defined(named, one)
    assert named is not None
    return named


limits = st.builds(
    BreakerLimits,
    failures=st.integers(1, 9),
    open_ms=st.integers(1, 99),
    probes=st.integers(1, 9),
    successes=st.integers(1, 9),
    probe_ms=st.integers(1, 99),
)


@given(limits, limits)
def test_the_strictest_allows_no_more_than_either(one: BreakerLimits, other: BreakerLimits) -> None:
    found = strictest(one, other)
    for each in (one, other):
        assert found.failures <= each.failures
        assert found.open_ms >= each.open_ms
        assert found.probes <= each.probes
        assert found.successes >= each.successes
    assert found == strictest(other, one)


def test_users_with_equal_definitions_share_one() -> None:
    assert used(use("a", LAX), use("b", LAX), use("c", STRICT), use("d", STRICT)).definitions == {
        "a": LAX,
        "c": STRICT,
    }


def test_a_repeated_definition_changes_nothing_that_had_to_be_stored() -> None:
    named = used(use("a", LAX), use("b", STRICT))
    assert defined(named, use("z", STRICT)) is named


def test_an_edited_definition_replaces_the_one_before() -> None:
    named = used(use("a", LAX), use("b", STRICT), use("b", LAX))
    assert named.limits == LAX


def test_a_definition_that_another_user_still_has_comes_back_with_its_next_request() -> None:
    named = used(use("a", STRICT), use("b", LAX), use("a", LAX))
    assert named.limits == LAX
    assert used(use("a", STRICT), use("b", LAX), use("a", LAX), use("c", STRICT)).limits == strictest(LAX, STRICT)


def test_however_many_definitions_there_are_only_some_are_kept() -> None:
    named = used(*(use(f"u{number}", replace(LAX, open_ms=number + 1)) for number in range(100)))
    assert len(named.definitions) == 20


def test_it_says_which_request_has_opened_it_and_when() -> None:
    named = record_outcome(None, use("a", STRICT, "first"), RequestOutcome.FAILED, now=5)
    assert (named.opened_by, named.changed_at) == ("", 0)
    named = record_outcome(named, use("b", STRICT, "second"), RequestOutcome.FAILED, now=7)
    assert (named.state(7), named.opened_by, named.changed_at) == (BreakerState.OPEN, "second", 7)


def test_closed_by_an_operator_it_counts_from_the_beginning() -> None:
    named = record_outcome(None, use("a", BreakerLimits(failures=1), "r"), RequestOutcome.FAILED, now=1)
    closed = closed_by_hand(named, now=9)
    assert ask_permission(closed, use("a", LAX), now=9).granted
    assert (closed.breaker.failures, closed.opened_by, closed.changed_at) == (0, "", 9)
