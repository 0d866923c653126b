"""When a node is well: pure judgements about what was seen."""

import pytest

from gnomon.core.health import (
    Component,
    Condition,
    Report,
    Sign,
    Stall,
    components_of,
    hung,
    ledger_sign,
    longest_silence_ms,
    stall,
    ticker_sign,
)

NOW = 1_000_000
LIMIT = 7_000


def test_two_ticks_and_five_seconds_may_pass() -> None:
    assert longest_silence_ms(1000) == LIMIT


def test_nothing_due_is_no_stall() -> None:
    assert stall(Stall(NOW, NOW), None, NOW) is None


def test_a_mark_that_moves_begins_a_stall_anew() -> None:
    assert stall(Stall(NOW - 9_000, NOW - 8_000), NOW - 100, NOW) == Stall(NOW - 100, NOW)


def test_a_mark_that_does_not_move_makes_the_stall_older() -> None:
    before = Stall(NOW - 9_000, NOW - 8_000)

    assert stall(before, NOW - 9_000, NOW) is before


@pytest.mark.req("Z-11")
@pytest.mark.guarantee("S21")
@pytest.mark.parametrize(
    ("found", "overdue", "set_aside", "expected"),
    [
        (None, 0, 0, Condition.OK),
        (Stall(NOW - 60_000, NOW - LIMIT), 1, 0, Condition.OK),
        (Stall(NOW - 60_000, NOW - LIMIT - 1), 1, 0, Condition.ERROR),
        (Stall(NOW - 60_000, NOW - LIMIT - 1), 2, 2, Condition.OK),
        (Stall(NOW - 60_000, NOW - LIMIT - 1), 3, 2, Condition.ERROR),
    ],
    ids=["nothing due", "not for long", "for too long", "only what cannot be planned", "others, too"],
)
def test_a_ledger_is_ill_if_no_mark_moves_for_too_long(
    found: Stall | None, overdue: int, set_aside: int, expected: Condition
) -> None:
    assert ledger_sign(found, overdue, set_aside=set_aside, now=NOW, limit_ms=LIMIT).condition is expected


def test_an_ill_ledger_says_how_many_are_overdue_and_by_how_much() -> None:
    sign = ledger_sign(Stall(NOW - 60_000, NOW - 50_000), 3, set_aside=1, now=NOW, limit_ms=LIMIT)

    assert sign.message == "2 schedules are overdue, by up to 60 s, and none is decided"


@pytest.mark.parametrize(
    ("condition", "silent", "expected"),
    [
        (Condition.OK, 0.5, Condition.OK),
        (Condition.IDLE, 0.5, Condition.IDLE),
        (Condition.ERROR, 0.5, Condition.ERROR),
        (Condition.OK, 7.1, Condition.ERROR),
    ],
)
def test_a_ticker_is_ill_if_it_fails_or_falls_silent(condition: Condition, silent: float, expected: Condition) -> None:
    assert ticker_sign(condition, silent, limit_ms=LIMIT).condition is expected


def test_only_silence_without_a_failure_is_worth_a_new_process() -> None:
    assert hung(Condition.OK, 61)
    assert not hung(Condition.OK, 59)
    assert not hung(Condition.ERROR, 3600)


def test_a_condition_that_stays_keeps_its_time() -> None:
    before = (Component(name="store", condition=Condition.ERROR, message="away", since_at=5),)

    [same] = components_of(before, [("store", Sign(Condition.ERROR, "still away"))], now=NOW)
    [other] = components_of(before, [("store", Sign(Condition.OK))], now=NOW)

    assert (same.since_at, same.message) == (5, "still away")
    assert other.since_at == NOW


def test_one_that_is_ill_makes_the_whole_ill_and_one_without_work_does_not() -> None:
    idle = Component(name="ticker", condition=Condition.IDLE, since_at=0)
    ill = Component(name="store", condition=Condition.ERROR, since_at=0)

    assert Report(at=NOW, components=(idle,), ready=True, alive=True).condition is Condition.OK
    assert Report(at=NOW, components=(idle, ill), ready=True, alive=True).condition is Condition.ERROR
