"""Deciding ticks: what becomes of each, and why."""

from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gnomon.core.cron import Cron
from gnomon.core.ids import run_id, shard_of, task_id, tick_key
from gnomon.core.instants import instant_of
from gnomon.core.ledger.edits import verdict_before_edit
from gnomon.core.ledger.plan import CatchupLimit, paused_range, plan, run_record, schedule_after
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Schedule, ScheduleUid, Spec, TickKind
from gnomon.core.runs.launch import first_tasks
from gnomon.core.runs.states import WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import At, Every

pytestmark = pytest.mark.req("C-04", "C-06")

NOON = 1_772_452_800_000  # 2026-03-02T12:00:00Z
SECOND, MINUTE = 1000, 60_000
HOUR = 60 * MINUTE
UID = ScheduleUid("sch_0123")


def minutely(*, active: int = 0, queued: int = 0, mark: int = NOON, **spec: Any) -> Schedule:  # noqa: ANN401
    """A schedule that fires each minute, decided up to noon."""
    said: dict[str, Any] = {"trigger": Cron("* * * * *"), "workflow_id": "report"}
    return Schedule(
        uid=UID,
        schedule_id="report",
        spec=Spec(**(said | spec)),
        shard=shard_of(UID),
        mark_at=mark,
        next_fire_at=None,
        active_runs=active,
        queued_runs=queued,
        created_at=NOON,
        updated_at=NOON,
    )


def reported(decision: Decision) -> tuple[str, str, int, int, int]:
    """Kind, reason, first and last minute after noon, count."""
    first, last = ((at - NOON) / MINUTE for at in (decision.planned_at, decision.last_at))
    return decision.kind, decision.reason, int(first), int(last), decision.count


def decisions(schedule: Schedule, minutes: float) -> list[tuple[str, str, int, int, int]]:
    return [reported(decision) for decision in plan(schedule, now=NOON + int(minutes * MINUTE)).decisions]


# ---- when nothing or one thing is due ------------------------------------------------------------


def test_nothing_is_decided_before_its_time() -> None:
    verdict = plan(minutely(), now=NOON + MINUTE - 1)

    assert (verdict.decisions, verdict.mark_at, verdict.next_fire_at) == ((), NOON, NOON + MINUTE)


def test_a_tick_fires_when_its_time_has_come() -> None:
    verdict = plan(minutely(), now=NOON + MINUTE)

    assert [reported(d) for d in verdict.decisions] == [("fired", "on_time", 1, 1, 1)]
    assert (verdict.mark_at, verdict.next_fire_at, verdict.active_runs) == (NOON + MINUTE, NOON + 2 * MINUTE, 1)


@pytest.mark.guarantee("S2")
def test_a_decided_tick_is_not_decided_again() -> None:
    once = schedule_after(plan(minutely(), now=NOON + MINUTE))

    assert plan(once, now=NOON + MINUTE).decisions == ()


@pytest.mark.guarantee("S16")
def test_a_clock_that_was_put_back_decides_nothing_anew() -> None:
    ahead = schedule_after(plan(minutely(catchup=Catchup.LATEST), now=NOON + 30 * MINUTE))

    verdict = plan(ahead, now=NOON + 5 * MINUTE)

    assert (verdict.decisions, verdict.mark_at) == ((), NOON + 30 * MINUTE)


def test_the_last_tick_leaves_nothing_to_come() -> None:
    verdict = plan(minutely(trigger=At(instant_of(NOON + MINUTE))), now=NOON + MINUTE)

    assert len(verdict.decisions) == 1
    assert verdict.next_fire_at is None


# ---- catch-up ------------------------------------------------------------------------------------


@pytest.mark.guarantee("S10")
@pytest.mark.parametrize(
    ("catchup", "minutes", "expected"),
    [
        pytest.param("none", 1.9, [("fired", "late", 1, 1, 1)], id="none: late within the grace fires"),
        pytest.param(
            "none",
            10.5,
            [("missed", "catchup_none", 1, 9, 9), ("fired", "late", 10, 10, 1)],
            id="none: the newest within the grace fires, the others are missed",
        ),
        pytest.param(
            "latest",
            10.5,
            [("coalesced", "newer_tick", 1, 9, 9), ("fired", "late", 10, 10, 1)],
            id="latest: the newest fires for all",
        ),
        pytest.param(
            "all",
            3.5,
            [("fired", "caught_up", 1, 1, 1), ("fired", "caught_up", 2, 2, 1), ("fired", "late", 3, 3, 1)],
            id="all: each one fires",
        ),
    ],
)
def test_the_policy_chooses_among_ticks_that_came_due_together(
    catchup: str, minutes: float, expected: list[tuple[str, str, int, int, int]]
) -> None:
    assert decisions(minutely(catchup=Catchup(catchup), overlap=Overlap.ALLOW), minutes) == expected


def test_none_misses_even_the_newest_once_the_grace_is_over() -> None:
    hourly = minutely(trigger=Cron("0 * * * *"))

    assert decisions(hourly, 125) == [("missed", "catchup_none", 60, 120, 2)]


@pytest.mark.parametrize("late", [0, 60_000])
def test_the_grace_includes_its_last_millisecond(late: int) -> None:
    [decision] = plan(minutely(trigger=Cron("0 * * * *")), now=NOON + HOUR + late).decisions

    assert decision.kind is TickKind.FIRED


def test_one_millisecond_past_the_grace_is_missed() -> None:
    [decision] = plan(minutely(trigger=Cron("0 * * * *")), now=NOON + HOUR + 60_001).decisions

    assert (decision.kind, decision.reason) == (TickKind.MISSED, Reason.CATCHUP_NONE)


def test_several_ticks_within_the_grace_are_coalesced_into_the_newest() -> None:
    by_seconds = minutely(trigger=Cron("*/20 * * * * *"))

    kinds = [(d.kind, d.count) for d in plan(by_seconds, now=NOON + 59 * SECOND).decisions]

    assert kinds == [(TickKind.COALESCED, 1), (TickKind.FIRED, 1)]


def test_latest_fires_however_late() -> None:
    hourly = minutely(trigger=Cron("0 * * * *"), catchup=Catchup.LATEST)

    assert decisions(hourly, 3 * 24 * 60 + 30) == [
        ("coalesced", "newer_tick", 60, 4260, 71),
        ("fired", "caught_up", 4320, 4320, 1),
    ]


def test_all_lets_go_what_is_older_than_the_window() -> None:
    hourly = minutely(trigger=Cron("0 * * * *"), catchup=Catchup.ALL, catchup_window_ms=3 * HOUR, overlap=Overlap.ALLOW)

    found = decisions(hourly, 10 * 60 + 30)

    assert found[0] == ("missed", "window", 60, 420, 7)
    assert [tick[2] for tick in found[1:]] == [480, 540, 600]


def test_all_fires_no_more_than_the_cap_in_one_pass() -> None:
    many = minutely(catchup=Catchup.ALL, overlap=Overlap.ALLOW)

    verdict = plan(many, now=NOON + 250 * MINUTE)

    assert len(verdict.decisions) == 100
    assert (verdict.mark_at, verdict.next_fire_at) == (NOON + 100 * MINUTE, NOON + 250 * MINUTE + SECOND)


def test_ticks_beyond_the_cap_are_decided_in_the_next_passes() -> None:
    schedule, fired = minutely(catchup=Catchup.ALL, overlap=Overlap.ALLOW), 0
    for _ in range(3):
        verdict = plan(schedule, now=NOON + 250 * MINUTE)
        schedule, fired = schedule_after(verdict), fired + len(verdict.decisions)

    assert (fired, schedule.mark_at) == (250, NOON + 250 * MINUTE)


def test_spread_lays_what_was_missed_over_the_lookahead() -> None:
    now = NOON + 4 * MINUTE + 30 * SECOND
    verdict = plan(minutely(catchup=Catchup.SPREAD, overlap=Overlap.ALLOW, lookahead_ms=60_000), now=now)

    # Also the tick within its grace, and with room for the one that comes due meanwhile.
    assert [d.fire_at for d in verdict.decisions] == [now, now + 12_000, now + 24_000, now + 36_000]
    assert (verdict.next_fire_at, verdict.spread_until) == (now + 48_000, now + 60_000)


def test_a_tick_that_comes_due_while_others_are_spread_starts_in_its_turn() -> None:
    now = NOON + 4 * MINUTE + 30 * SECOND
    spread = minutely(catchup=Catchup.SPREAD, overlap=Overlap.ALLOW, lookahead_ms=60_000)
    after = schedule_after(plan(spread, now=now))

    verdict = plan(after, now=now + 48_000)

    assert [(d.planned_at, d.reason) for d in verdict.decisions] == [(NOON + 5 * MINUTE, Reason.LATE)]
    assert verdict.next_fire_at == NOON + 6 * MINUTE


def test_ticks_within_their_grace_are_not_spread() -> None:
    often = minutely(trigger=Cron("*/20 * * * * *"), catchup=Catchup.SPREAD, overlap=Overlap.ALLOW)

    verdict = plan(often, now=NOON + 50 * SECOND)

    assert [d.fire_at for d in verdict.decisions] == [NOON + 20 * SECOND, NOON + 40 * SECOND]
    assert verdict.spread_until is None


def test_more_ticks_than_the_limit_lets_start_are_spread_over_a_longer_time() -> None:
    often = minutely(trigger=Cron("* * * * * *"), catchup=Catchup.SPREAD, overlap=Overlap.ALLOW, lookahead_ms=60_000)
    now = NOON + HOUR

    verdict = plan(often, now=now, limit=CatchupLimit(ticks=10, interval_ms=1000))

    assert [d.fire_at for d in verdict.decisions] == [now + i * 100 for i in range(10)]
    assert verdict.spread_until == now + (3600 + 60) * 100


@pytest.mark.parametrize("catchup", Catchup)
def test_a_year_of_missed_seconds_is_decided_at_once(catchup: Catchup) -> None:
    schedule = minutely(trigger=Cron("* * * * * *"), catchup=catchup, overlap=Overlap.ALLOW)
    year = 365 * 24 * HOUR

    verdict = plan(schedule, now=NOON + year)

    counted = sum(decision.count for decision in verdict.decisions)
    assert counted == (verdict.mark_at - NOON) // SECOND
    assert len(verdict.decisions) <= 101


# ---- overlap -------------------------------------------------------------------------------------


@pytest.mark.req("C-05", "H-06")
@pytest.mark.guarantee("S8")
@pytest.mark.parametrize(
    ("overlap", "active", "queued", "expected"),
    [
        pytest.param("skip", 0, 0, ("fired", "on_time"), id="skip: nothing is under way"),
        pytest.param("skip", 1, 0, ("skipped", "overlap"), id="skip: a run is under way"),
        pytest.param("skip", 0, 1, ("skipped", "overlap"), id="skip: one that waits counts"),
        pytest.param("allow", 5, 0, ("fired", "on_time"), id="allow: always"),
        pytest.param("queue", 0, 0, ("fired", "on_time"), id="queue: nothing to wait for"),
        pytest.param("queue", 1, 0, ("queued", "behind_a_run"), id="queue: behind a run"),
        pytest.param("queue", 1, 99, ("queued", "behind_a_run"), id="queue: the last place"),
        pytest.param("queue", 1, 100, ("skipped", "queue_full"), id="queue: no place left"),
        pytest.param("replace", 0, 0, ("fired", "on_time"), id="replace: nothing to replace"),
        pytest.param("replace", 1, 0, ("queued", "replaces_a_run"), id="replace: waits for the end of the other"),
    ],
)
def test_the_overlap_policy_decides_while_an_earlier_run_is_active(
    overlap: str, active: int, queued: int, expected: tuple[str, str]
) -> None:
    [decision] = plan(minutely(overlap=Overlap(overlap), active=active, queued=queued), now=NOON + MINUTE).decisions

    assert (decision.kind, decision.reason) == expected


def test_all_with_skip_runs_one() -> None:
    found = decisions(minutely(catchup=Catchup.ALL, overlap=Overlap.SKIP), 3.5)

    assert [tick[0] for tick in found] == ["fired", "skipped", "skipped"]


def test_replacing_leaves_only_the_newest_to_wait() -> None:
    verdict = plan(minutely(overlap=Overlap.REPLACE, active=1, queued=1), now=NOON + MINUTE)

    assert (verdict.replaces, verdict.active_runs, verdict.queued_runs) == (True, 1, 1)


def test_of_several_ticks_that_replace_each_other_only_the_newest_waits() -> None:
    schedule = minutely(overlap=Overlap.REPLACE, catchup=Catchup.ALL, active=1)

    verdict = plan(schedule, now=NOON + 5 * MINUTE)

    assert [(*reported(d)[:2], d.count) for d in verdict.decisions] == [
        ("coalesced", "newer_tick", 4),
        ("queued", "replaces_a_run", 1),
    ]
    assert (verdict.active_runs, verdict.queued_runs) == (1, 1)


def test_a_tick_that_does_not_run_has_no_time_to_fire() -> None:
    [decision] = plan(minutely(active=1), now=NOON + MINUTE).decisions

    assert not decision.starts_run


# ---- the active window ---------------------------------------------------------------------------


def test_a_tick_at_the_start_is_the_first() -> None:
    assert decisions(minutely(start_at=NOON + 3 * MINUTE), 3) == [("fired", "on_time", 3, 3, 1)]


def test_a_tick_before_the_start_is_none() -> None:
    assert plan(minutely(start_at=NOON + 3 * MINUTE), now=NOON + 2 * MINUTE).decisions == ()


def test_a_tick_at_the_end_is_none() -> None:
    verdict = plan(minutely(end_at=NOON + 2 * MINUTE), now=NOON + 5 * MINUTE)

    assert [reported(d) for d in verdict.decisions] == [("missed", "catchup_none", 1, 1, 1)]
    assert verdict.next_fire_at is None


def test_ticks_of_a_pause_are_one_range() -> None:
    [decision] = paused_range(minutely(), until=NOON + 90 * MINUTE)

    assert reported(decision) == ("skipped", "paused", 1, 90, 90)


# ---- jitter --------------------------------------------------------------------------------------


@pytest.mark.req("C-07")
@given(st.integers(1, 10**7), st.integers(0, 500), st.sampled_from(["* * * * *", "0 * * * *", "*/7 3 * * *"]))
def test_jitter_keeps_within_its_bounds_and_the_order_of_ticks(jitter: int, skip: int, text: str) -> None:
    ticks = Ticks("report", minutely(trigger=Cron(text), jitter_ms=jitter).spec)
    first = ticks.after(NOON + skip * MINUTE)
    assert first is not None
    second = ticks.after(first)
    assert second is not None

    assert abs(ticks.fire_at(first) - first) <= jitter
    assert ticks.fire_at(first) <= ticks.fire_at(second)


@pytest.mark.req("C-07")
def test_jitter_moves_the_fire_not_the_tick() -> None:
    spread = minutely(trigger=Cron("0 * * * *"), jitter_ms=5 * MINUTE)
    fire_at = Ticks("report", spread.spec).fire_at(NOON + HOUR)

    [decision] = plan(spread, now=fire_at).decisions

    assert fire_at != NOON + HOUR
    assert (decision.planned_at, decision.fire_at) == (NOON + HOUR, fire_at)


def test_a_tick_is_not_decided_before_its_jittered_time() -> None:
    spread = minutely(trigger=Cron("0 * * * *"), jitter_ms=5 * MINUTE)
    fire_at = Ticks("report", spread.spec).fire_at(NOON + HOUR)

    verdict = plan(spread, now=fire_at - 1)

    assert (verdict.decisions, verdict.next_fire_at) == ((), fire_at)


def test_every_node_computes_the_same_jitter() -> None:
    spec = minutely(jitter_ms=30_000).spec

    assert Ticks("report", spec).fire_at(NOON) == Ticks("report", spec).fire_at(NOON)
    assert len({Ticks(f"report-{i}", spec).fire_at(NOON) for i in range(50)}) > 40


def early_by(minutes: int) -> tuple[Schedule, int]:
    """An hourly schedule whose next tick its jitter puts at least so much before the planned time, and that time."""
    for number in range(1000):
        name = f"report-{number}"
        schedule = replace(minutely(trigger=Cron("0 * * * *"), jitter_ms=10 * MINUTE), schedule_id=name)
        fire_at = Ticks(name, schedule.spec).fire_at(NOON + HOUR)
        if fire_at <= NOON + HOUR - minutes * MINUTE:
            return schedule, NOON + HOUR
    raise AssertionError


def test_a_tick_is_not_missed_before_its_planned_time() -> None:
    schedule, planned_at = early_by(7)

    [decision] = plan(schedule, now=planned_at - 2 * MINUTE).decisions

    assert (decision.kind, decision.reason) == (TickKind.FIRED, Reason.ON_TIME)


def test_the_grace_counts_from_the_planned_time_at_least() -> None:
    schedule, planned_at = early_by(7)

    assert [d.kind for d in plan(schedule, now=planned_at + MINUTE).decisions] == [TickKind.FIRED]
    assert [d.kind for d in plan(schedule, now=planned_at + MINUTE + 1).decisions] == [TickKind.MISSED]


def test_much_jitter_on_a_dense_schedule_is_decided_at_once() -> None:
    dense = minutely(trigger=Every(timedelta(milliseconds=100), instant_of(NOON)), jitter_ms=HOUR)

    verdict = plan(dense, now=NOON + HOUR)

    assert sum(decision.count for decision in verdict.decisions) in (36_000, 36_001)


@pytest.mark.parametrize("minutes", [1, 4])
def test_a_change_lets_only_the_newest_replace_a_run(minutes: int) -> None:
    mark = 1_780_000_020_000 - minutes * MINUTE
    crowded = minutely(mark=mark, overlap=Overlap.REPLACE, catchup=Catchup.ALL, jitter_ms=20_000, active=1)

    verdict = verdict_before_edit(replace(crowded, schedule_id="job-0"), now=1_780_000_081_000)

    assert [(d.kind, d.reason, d.count) for d in verdict.decisions] == [
        (TickKind.COALESCED, Reason.NEWER_TICK, minutes),
        (TickKind.QUEUED, Reason.REPLACES_A_RUN, 1),
    ]
    assert (verdict.active_runs, verdict.queued_runs, verdict.replaces) == (1, 1, True)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.req("C-02")
def test_the_key_is_the_digest_of_the_name_and_the_second() -> None:
    assert tick_key("billing", NOON) == sha256(b"billing:1772452800").digest()
    assert tick_key("billing", NOON + 250) == sha256(b"billing:1772452800.25").digest()


def test_a_tick_has_one_run_whoever_decides_it() -> None:
    assert run_id(UID, NOON) == run_id(UID, NOON)
    assert run_id(UID, NOON) != run_id(UID, NOON + 1)
    assert task_id(run_id(UID, NOON), "a") != task_id(run_id(UID, NOON), "b")


def test_runs_sort_by_their_planned_time() -> None:
    ids = [run_id(UID, NOON + minute * MINUTE) for minute in range(100)]

    assert ids == sorted(ids)


@pytest.mark.parametrize(
    ("overlap", "active", "wait"), [("allow", 1, WaitReason.READY), ("queue", 1, WaitReason.QUEUE)]
)
def test_the_first_tasks_say_what_they_wait_for(overlap: str, active: int, wait: WaitReason) -> None:
    schedule = minutely(overlap=Overlap(overlap), active=active, first_steps=("a", "b"))
    [decision] = plan(schedule, now=NOON + MINUTE).decisions
    made = run_record(schedule, decision, now=NOON + MINUTE)

    assert [(t.step, t.wait_reason) for t in first_tasks(made, schedule.spec.first_steps, now=NOON + MINUTE)] == [
        ("a", wait),
        ("b", wait),
    ]


def test_the_first_steps_of_a_workflow_wait_for_no_other() -> None:
    steps = (
        Step(name="load", function="etl.load", depends_on=("extract", "check")),
        Step(name="extract", function="etl.extract"),
        Step(name="check", function="etl.check"),
    )

    assert Workflow(workflow_id="etl", version=3, steps=steps).first_steps == ("extract", "check")


# ---- laws ----------------------------------------------------------------------------------------

triggers = st.sampled_from(
    [
        Cron("* * * * *"),
        Cron("*/7 2-3 * * *", "America/New_York"),
        Cron("30 2 * * *", "Europe/Berlin"),
        Cron("*/20 * * * * *"),
        Every(timedelta(minutes=7)),
    ]
)
specs = st.builds(
    Spec,
    trigger=triggers,
    workflow_id=st.just("w"),
    overlap=st.sampled_from(Overlap),
    catchup=st.sampled_from(Catchup),
    jitter_ms=st.sampled_from([0, 0, 500, 10_000, 600_000]),
    misfire_grace_ms=st.sampled_from([0, 1000, 60_000, 7_200_000]),
    catchup_window_ms=st.sampled_from([60_000, 86_400_000]),
)


@pytest.mark.guarantee("S1")
@given(specs, st.integers(0, 40_000_000), st.lists(st.integers(0, 30_000_000), max_size=6), st.integers(1, 100))
def test_every_tick_up_to_the_mark_is_covered_exactly_once(spec: Spec, start: int, steps: list[int], most: int) -> None:
    schedule = replace(minutely(mark=NOON + start), spec=spec)
    ticks, first, now = Ticks("report", spec), schedule.mark_at, NOON + start
    covered: list[tuple[int, int, int]] = []
    for step in steps:
        now += step
        verdict = plan(schedule, now=now, limit=CatchupLimit(ticks=most))
        covered += [(d.planned_at, d.last_at, d.count) for d in verdict.decisions]
        schedule = schedule_after(verdict)

    assert sum(count for _, _, count in covered) == ticks.count(after=first, until=schedule.mark_at)
    assert all(a[1] < b[0] for a, b in pairwise(covered))
    assert all(ticks.count(after=start_ - 1, until=end) == count for start_, end, count in covered)


@given(specs, st.integers(0, 40_000_000), st.integers(1, 100))
def test_nothing_due_is_left_without_a_decision(spec: Spec, late: int, most: int) -> None:
    verdict = plan(replace(minutely(), spec=spec), now=NOON + late, limit=CatchupLimit(ticks=most))

    capped = len(verdict.decisions) >= most
    assert capped or verdict.next_fire_at is None or verdict.next_fire_at > NOON + late
