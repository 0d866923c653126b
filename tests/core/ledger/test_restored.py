"""The decisions on ticks of which a restored store does not know whether they ran."""

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.core.ledger.restored import StoreRestore, doubtful_ticks, uncertain_verdict
from gnomon.core.model import Reason, Schedule, TickException, TickKind


def behind(minutes: int, **spec: object) -> Schedule:
    made = minutely()
    return replace(made, spec=replace(made.spec, **spec), mark_at=NOON - minutes * MINUTE)


@pytest.mark.guarantee("S5")
def test_all_ticks_since_the_mark_are_missed_as_one_range_and_the_next_one_comes() -> None:
    schedule = behind(5)
    doubtful = doubtful_ticks(schedule, now=NOON + 1000)
    assert doubtful is not None
    assert (doubtful.count, doubtful.first_at, doubtful.last_at) == (5, NOON - 4 * MINUTE, NOON)

    verdict = uncertain_verdict(schedule, doubtful, now=NOON + 1000)

    [decision] = verdict.decisions
    assert (decision.kind, decision.reason, decision.count) == (TickKind.MISSED, Reason.STORE_UNCERTAIN, 5)
    assert (decision.planned_at, decision.last_at) == (NOON - 4 * MINUTE, NOON)
    assert (verdict.mark_at, verdict.next_fire_at) == (NOON, NOON + MINUTE)


def test_a_tick_that_was_skipped_stays_skipped() -> None:
    skipped = TickException(planned_at=NOON - 2 * MINUTE)
    schedule = behind(5, exceptions=(skipped,))
    doubtful = doubtful_ticks(schedule, now=NOON)
    assert doubtful is not None

    verdict = uncertain_verdict(schedule, doubtful, now=NOON)

    assert [(one.reason, one.count) for one in verdict.decisions] == [
        (Reason.STORE_UNCERTAIN, 2),
        (Reason.SKIPPED_ONCE, 1),
        (Reason.STORE_UNCERTAIN, 2),
    ]


@pytest.mark.parametrize(
    "schedule", [behind(0), replace(behind(5), paused_at=NOON - 6 * MINUTE)], ids=["nothing due", "paused"]
)
def test_nothing_is_in_doubt_if_nothing_could_have_run(schedule: Schedule) -> None:
    assert doubtful_ticks(schedule, now=NOON + 1000) is None


@pytest.mark.parametrize(
    ("planned", "decided", "doubt"), [(4, 30, True), (20, 30, True), (21, 30, False), (10, 15, False)]
)
def test_a_tick_is_in_doubt_if_it_was_planned_before_the_restoration_and_decided_after(
    planned: int, decided: int, *, doubt: bool
) -> None:
    assert StoreRestore(backup_at=5, restored_at=20).in_doubt(planned, decided) is doubt
