"""Exceptions: one coming tick is skipped or moved, and all others are decided as if nothing had been said."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.cron import Cron
from gnomon.core.ledger.edits import (
    MAX_EXCEPTIONS,
    edited_schedule,
    keep_interval_anchor,
    resumed_schedule,
    same_spec,
    verdict_before_edit,
    with_exception,
    without_exception,
)
from gnomon.core.ledger.plan import CatchupLimit, plan, schedule_after
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Schedule, Spec, TickException, TickKind, TickVerdict
from gnomon.core.triggers import Every
from gnomon.errors import FieldError


def hourly(*exceptions: TickException, **changes: object) -> Schedule:
    spec = replace(minutely(trigger=Cron("0 * * * *")).spec, exceptions=exceptions, **changes)
    return replace(minutely(), spec=spec, next_fire_at=Ticks("report", spec).next_fire_at(NOON))


def said(verdict: TickVerdict) -> list[tuple[int, int, TickKind, Reason]]:
    return [((d.planned_at - NOON) // MINUTE, d.count, d.kind, d.reason) for d in verdict.decisions]


def test_a_skipped_tick_is_decided_as_such_at_its_time() -> None:
    schedule = hourly(TickException(NOON + HOUR))

    verdict = plan(schedule, now=NOON + HOUR)

    assert said(verdict) == [(60, 1, TickKind.SKIPPED, Reason.SKIPPED_ONCE)]
    assert (verdict.mark_at, verdict.next_fire_at) == (NOON + HOUR, NOON + 2 * HOUR)


def test_a_moved_tick_fires_at_the_time_that_was_said() -> None:
    schedule = hourly(TickException(NOON + HOUR, NOON + HOUR + 20 * MINUTE))

    first = plan(schedule, now=NOON + HOUR)
    second = plan(schedule_after(first), now=NOON + HOUR + 20 * MINUTE)

    assert said(first) == [(60, 1, TickKind.SKIPPED, Reason.MOVED)]
    assert first.next_fire_at == NOON + HOUR + 20 * MINUTE
    assert said(second) == [(80, 1, TickKind.FIRED, Reason.ON_TIME)]


def test_a_moved_tick_has_no_jitter() -> None:
    moved = NOON + HOUR + 20 * MINUTE
    ticks = Ticks("report", hourly(TickException(NOON + HOUR, moved), jitter_ms=10 * MINUTE).spec)

    assert ticks.fire_at(moved) == moved


@pytest.mark.parametrize(
    ("catchup", "others"),
    [
        (Catchup.LATEST, [(60, 1, TickKind.COALESCED), (180, 1, TickKind.FIRED)]),
        (Catchup.NONE, [(60, 1, TickKind.MISSED), (180, 1, TickKind.MISSED)]),
        (Catchup.ALL, [(60, 1, TickKind.FIRED), (180, 1, TickKind.FIRED)]),
    ],
)
def test_after_an_outage_a_skipped_tick_stays_skipped_and_never_stands_for_others(
    catchup: Catchup, others: list[tuple[int, int, TickKind]]
) -> None:
    skipped = (TickException(NOON + 2 * HOUR), TickException(NOON + 4 * HOUR))
    schedule = hourly(*skipped, catchup=catchup, overlap=Overlap.ALLOW)

    verdict = plan(schedule, now=NOON + 4 * HOUR + 30 * MINUTE)

    found = [one[:3] for one in said(verdict)]
    skips = [(120, 1, TickKind.SKIPPED), (240, 1, TickKind.SKIPPED)]
    assert found == sorted([*others, *skips], key=lambda one: one[0])
    assert verdict.mark_at == NOON + 4 * HOUR


def test_a_run_that_replaces_is_the_newest_even_if_a_skipped_tick_comes_after_it() -> None:
    schedule = hourly(TickException(NOON + 2 * HOUR), overlap=Overlap.REPLACE, catchup=Catchup.LATEST)

    verdict = plan(replace(schedule, active_runs=1), now=NOON + 2 * HOUR)

    assert verdict.replaces
    assert verdict.newest_run_at == NOON + HOUR


def test_a_pause_swallows_all_but_what_was_skipped_anyway() -> None:
    schedule = replace(hourly(TickException(NOON + 2 * HOUR)), paused_at=NOON, next_fire_at=None)

    verdict = verdict_before_edit(schedule, now=NOON + 3 * HOUR)

    assert said(verdict) == [
        (60, 1, TickKind.SKIPPED, Reason.PAUSED),
        (120, 1, TickKind.SKIPPED, Reason.SKIPPED_ONCE),
        (180, 1, TickKind.SKIPPED, Reason.PAUSED),
    ]
    assert resumed_schedule(verdict, now=NOON + 3 * HOUR).next_fire_at == NOON + 4 * HOUR


# ---- saying so -----------------------------------------------------------------------------------


def test_a_time_that_is_no_tick_is_refused_with_its_neighbours() -> None:
    with pytest.raises(FieldError, match=r"the one before is at 2026-03-02T13:00.*the next is at 2026-03-02T14:00"):
        with_exception(hourly(), NOON + 90 * MINUTE, move_to=None, now=NOON)


def test_a_tick_that_is_over_cannot_be_skipped() -> None:
    with pytest.raises(FieldError, match="is over"):
        with_exception(hourly(), NOON, move_to=None, now=NOON)


@pytest.mark.parametrize(
    ("move_to", "reason"),
    [(NOON - 1, "is over"), (NOON + 2 * HOUR, "is a planned time already"), (NOON + 30 * HOUR, "outside the time")],
)
def test_a_tick_cannot_be_moved_to_where_it_cannot_be(move_to: int, reason: str) -> None:
    with pytest.raises(FieldError, match=reason):
        with_exception(hourly(end_at=NOON + 24 * HOUR), NOON + HOUR, move_to=move_to, now=NOON)


def test_saying_it_again_says_nothing_new_and_saying_otherwise_is_refused() -> None:
    schedule = hourly(TickException(NOON + HOUR))

    assert with_exception(schedule, NOON + HOUR, move_to=None, now=NOON) == schedule.spec
    with pytest.raises(FieldError, match="undo that first"):
        with_exception(schedule, NOON + HOUR, move_to=NOON + 90 * MINUTE, now=NOON)


def test_there_are_only_so_many_and_those_that_are_over_are_forgotten() -> None:
    full = hourly(*(TickException(NOON + hour * HOUR) for hour in range(1, MAX_EXCEPTIONS + 1)))

    with pytest.raises(FieldError, match="one too many"):
        with_exception(full, NOON + 200 * HOUR, move_to=None, now=NOON)
    later = with_exception(full, NOON + 200 * HOUR, move_to=None, now=NOON + 50 * HOUR)

    assert len(later.exceptions) == MAX_EXCEPTIONS - 50 + 1


def test_an_exception_of_a_tick_can_be_undone_before_its_time() -> None:
    schedule = hourly(TickException(NOON + HOUR, NOON + 90 * MINUTE))

    assert without_exception(schedule, NOON + HOUR, now=NOON).exceptions == ()
    with pytest.raises(FieldError, match="has been decided"):
        without_exception(replace(schedule, mark_at=NOON + HOUR), NOON + HOUR, now=NOON + HOUR)
    with pytest.raises(FieldError, match="neither"):
        without_exception(schedule, NOON + 2 * HOUR, now=NOON)


def test_a_moved_tick_can_be_moved_again_and_is_undone_from_the_last() -> None:
    spec = with_exception(hourly(), NOON + HOUR, move_to=NOON + 90 * MINUTE, now=NOON)
    schedule = replace(hourly(), spec=spec)
    twice = replace(schedule, spec=with_exception(schedule, NOON + 90 * MINUTE, move_to=NOON + 95 * MINUTE, now=NOON))

    assert Ticks("report", twice.spec).unskipped.after(NOON) == NOON + 95 * MINUTE
    with pytest.raises(FieldError, match="undo that first"):
        without_exception(twice, NOON + HOUR, now=NOON)


def test_applying_the_same_file_again_keeps_exceptions() -> None:
    spec = hourly(TickException(NOON + HOUR)).spec

    assert same_spec(spec, replace(spec, exceptions=()))


def test_a_change_of_the_trigger_keeps_only_those_that_still_fit() -> None:
    spec = hourly(TickException(NOON + HOUR), TickException(NOON + 2 * HOUR, NOON + 130 * MINUTE)).spec

    every_two_hours = keep_interval_anchor(spec, replace(spec, trigger=Cron("0 */2 * * *"), exceptions=()))
    every_ten_minutes = keep_interval_anchor(spec, replace(spec, trigger=Cron("*/10 * * * *"), exceptions=()))

    assert every_two_hours.exceptions == (TickException(NOON + 2 * HOUR, NOON + 130 * MINUTE),)
    assert every_ten_minutes.exceptions == (TickException(NOON + HOUR),)


# ---- laws ----------------------------------------------------------------------------------------

TRIGGERS = [Cron("*/10 * * * *"), Cron("30 2 * * *", "Europe/Berlin"), Every(timedelta(minutes=7))]
END = NOON + 30 * HOUR


def scanned(spec: Spec) -> list[int]:
    """Every tick of the plain schedule, one by one."""
    plain, found = Ticks("report", replace(spec, exceptions=())), list[int]()
    while (at := plain.after(found[-1] if found else NOON)) is not None and at <= END:
        found.append(at)
    return found


@st.composite
def excepted_schedules(draw: st.DrawFn) -> Schedule:
    spec = minutely(trigger=draw(st.sampled_from(TRIGGERS)), jitter_ms=draw(st.sampled_from([0, 90_000]))).spec
    policies = {"catchup": draw(st.sampled_from(Catchup)), "overlap": draw(st.sampled_from(Overlap))}
    schedule = replace(minutely(), spec=replace(spec, **policies))
    for _ in range(draw(st.integers(0, 8))):
        every = Ticks("report", schedule.spec)
        extras = [one.moved_to for one in schedule.spec.exceptions if one.moved_to is not None]
        left = [at for at in [*scanned(spec), *extras] if at not in every.skipped]
        if not left:
            break
        at = draw(st.sampled_from(left))
        to = draw(st.none() | st.integers(NOON + 1, END))
        if to is None or every.up_to(to) != to:
            schedule = replace(schedule, spec=with_exception(schedule, at, move_to=to, now=NOON))
    return schedule


@given(excepted_schedules(), st.integers(NOON, END), st.integers(NOON, END))
def test_ticks_with_exceptions_are_those_of_a_naive_scan(schedule: Schedule, one: int, other: int) -> None:
    spec, (low, high) = schedule.spec, sorted((one, other))
    moved = [said.moved_to for said in spec.exceptions if said.moved_to is not None]
    every = sorted({*scanned(spec), *moved})
    left = [at for at in every if at not in {said.planned_at for said in spec.exceptions}]
    ticks = Ticks("report", spec)

    for asked, known in ((ticks, every), (ticks.unskipped, left)):
        assert asked.count(after=low, until=high) == len([at for at in known if low < at <= high])
        assert asked.up_to(high) == max([at for at in known if at <= high], default=asked.up_to(NOON))
        assert asked.after(low) == min([at for at in known if at > low], default=asked.after(END))


@pytest.mark.guarantee("S1")
@given(
    excepted_schedules(),
    st.lists(st.integers(0, 20_000_000), min_size=1, max_size=6),
    st.sampled_from([plan, verdict_before_edit]),
    st.sampled_from([1, 5, 100]),
)
def test_every_tick_is_decided_once_and_every_skipped_one_as_such(
    schedule: Schedule, steps: list[int], decide: Callable[..., TickVerdict], most: int
) -> None:
    first, now, decisions = schedule.mark_at, NOON, list[Decision]()
    for step in steps:
        now += step
        verdict = decide(schedule, now=now, limit=CatchupLimit(ticks=most))
        decisions += verdict.decisions
        schedule = schedule_after(verdict)
    ticks = Ticks("report", schedule.spec)

    covered = [(d.planned_at, d.last_at, d.count) for d in decisions]
    assert covered == sorted(covered)
    assert all(ticks.count(after=low - 1, until=high) == count for low, high, count in covered)
    assert sum(count for _, _, count in covered) == ticks.count(after=first, until=schedule.mark_at)
    reported = {d.planned_at: d.reason for d in decisions if d.planned_at in ticks.skipped}
    assert reported == {at: why for at, why in ticks.skipped.items() if at <= schedule.mark_at}


def test_an_edit_keeps_the_next_exception() -> None:
    schedule = hourly()
    verdict = verdict_before_edit(schedule, now=NOON)

    changed = edited_schedule(
        verdict, with_exception(schedule, NOON + HOUR, move_to=NOON + 30 * MINUTE, now=NOON), now=NOON
    )

    assert changed.next_fire_at == NOON + 30 * MINUTE
