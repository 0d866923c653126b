"""When a node is well: pure judgements about what was seen."""

import pytest

from gnomon.core.health import (
    NO_WORKER_MS,
    ComponentHealth,
    ComponentStatus,
    HealthCondition,
    LedgerStall,
    NodeHealth,
    TaskBacklog,
    is_hung,
    ledger_stall_limit_ms,
    ledger_status,
    tasks_status,
    ticker_status,
    update_components,
    update_stall,
)

NOW = 1_000_000
LIMIT = 7_000


def test_two_ticks_and_five_seconds_may_pass() -> None:
    assert ledger_stall_limit_ms(1000) == LIMIT


def test_nothing_due_is_no_stall() -> None:
    assert update_stall(LedgerStall(NOW, NOW), None, NOW) is None


def test_a_mark_that_moves_begins_a_stall_anew() -> None:
    assert update_stall(LedgerStall(NOW - 9_000, NOW - 8_000), NOW - 100, NOW) == LedgerStall(NOW - 100, NOW)


def test_a_mark_that_does_not_move_makes_the_stall_older() -> None:
    before = LedgerStall(NOW - 9_000, NOW - 8_000)

    assert update_stall(before, NOW - 9_000, NOW) is before


@pytest.mark.req("Z-11")
@pytest.mark.guarantee("S21")
@pytest.mark.parametrize(
    ("found", "overdue", "set_aside", "expected"),
    [
        (None, 0, 0, HealthCondition.OK),
        (LedgerStall(NOW - 60_000, NOW - LIMIT), 1, 0, HealthCondition.OK),
        (LedgerStall(NOW - 60_000, NOW - LIMIT - 1), 1, 0, HealthCondition.ERROR),
        (LedgerStall(NOW - 60_000, NOW - LIMIT - 1), 2, 2, HealthCondition.OK),
        (LedgerStall(NOW - 60_000, NOW - LIMIT - 1), 3, 2, HealthCondition.ERROR),
    ],
    ids=["nothing due", "not for long", "for too long", "only what cannot be planned", "others, too"],
)
def test_a_ledger_is_ill_if_no_mark_moves_for_too_long(
    found: LedgerStall | None, overdue: int, set_aside: int, expected: HealthCondition
) -> None:
    assert ledger_status(found, overdue, set_aside=set_aside, now=NOW, limit_ms=LIMIT).condition is expected


def test_an_ill_ledger_says_how_many_are_overdue_and_by_how_much() -> None:
    sign = ledger_status(LedgerStall(NOW - 60_000, NOW - 50_000), 3, set_aside=1, now=NOW, limit_ms=LIMIT)

    assert sign.message == "2 schedules are overdue, by up to 60 s, and none is decided"


@pytest.mark.parametrize(
    ("condition", "silent", "expected"),
    [
        (HealthCondition.OK, 0.5, HealthCondition.OK),
        (HealthCondition.IDLE, 0.5, HealthCondition.IDLE),
        (HealthCondition.ERROR, 0.5, HealthCondition.ERROR),
        (HealthCondition.OK, 7.1, HealthCondition.ERROR),
    ],
)
def test_a_ticker_is_ill_if_it_fails_or_falls_silent(
    condition: HealthCondition, silent: float, expected: HealthCondition
) -> None:
    assert ticker_status(condition, silent, limit_ms=LIMIT).condition is expected


def test_only_silence_without_a_failure_is_worth_a_new_process() -> None:
    assert is_hung(HealthCondition.OK, 61)
    assert not is_hung(HealthCondition.OK, 59)
    assert not is_hung(HealthCondition.ERROR, 3600)


@pytest.mark.req("H-15", "Z-11")
@pytest.mark.parametrize(
    ("no_workers_since_at", "waiting_since_at", "condition"),
    [
        pytest.param(NOW, None, HealthCondition.OK, id="nothing waits, first look"),
        pytest.param(NOW, NOW - NO_WORKER_MS, HealthCondition.OK, id="a task waits for a minute, first look"),
        pytest.param(NOW, NOW - NO_WORKER_MS - 1, HealthCondition.ERROR, id="a task waits for longer, first look"),
        pytest.param(NOW - NO_WORKER_MS - 1, None, HealthCondition.ERROR, id="seen for longer than a minute"),
        pytest.param(
            None, NOW - NO_WORKER_MS - 1, HealthCondition.ERROR, id="not seen before, a task waits for longer"
        ),
    ],
)
def test_without_workers_what_waits_counts_from_before_the_first_look(
    no_workers_since_at: int | None, waiting_since_at: int | None, condition: HealthCondition
) -> None:
    found = TaskBacklog(
        workers=0, no_workers_since_at=no_workers_since_at, unroutable=1, unroutable_since_at=waiting_since_at
    )

    assert tasks_status(found, NOW) == ComponentStatus(condition, "no worker is alive")


def test_a_condition_that_stays_keeps_its_time() -> None:
    before = (ComponentHealth(name="store", condition=HealthCondition.ERROR, message="away", since_at=5),)

    [same] = update_components(before, [("store", ComponentStatus(HealthCondition.ERROR, "still away"))], now=NOW)
    [other] = update_components(before, [("store", ComponentStatus(HealthCondition.OK))], now=NOW)

    assert (same.since_at, same.message) == (5, "still away")
    assert other.since_at == NOW


def test_one_that_is_ill_makes_the_whole_ill_and_one_without_work_does_not() -> None:
    idle = ComponentHealth(name="ticker", condition=HealthCondition.IDLE, since_at=0)
    ill = ComponentHealth(name="store", condition=HealthCondition.ERROR, since_at=0)

    assert NodeHealth(at=NOW, components=(idle,), ready=True, alive=True).condition is HealthCondition.OK
    assert NodeHealth(at=NOW, components=(idle, ill), ready=True, alive=True).condition is HealthCondition.ERROR
