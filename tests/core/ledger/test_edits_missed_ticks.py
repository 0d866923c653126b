"""The end of a pause: whoever ends it chooses which of the swallowed ticks run, and these all do."""

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.cron import Cron
from gnomon.core.ledger.edits import (
    MAX_RESUMED_TICKS,
    MissedTicks,
    ResumeChoice,
    ResumePolicy,
    missed_ticks,
    resume_verdict,
)
from gnomon.core.model import Overlap, Schedule, TickException, TickVerdict
from gnomon.errors import FieldError

NOW = NOON + 4 * HOUR + 30 * MINUTE
SINCE = ResumeChoice(ResumePolicy.SINCE, since_at=NOON + 3 * HOUR)
SPREAD = ResumeChoice(ResumePolicy.SPREAD, over_ms=40 * MINUTE)


def paused(*, overlap: Overlap = Overlap.SKIP, active: int = 0, queued: int = 0, **changes: object) -> Schedule:
    """An hourly schedule that rests since noon, and has swallowed the ticks of four hours."""
    spec = replace(minutely(trigger=Cron("0 * * * *"), overlap=overlap).spec, **changes)
    resting = replace(minutely(), spec=spec, paused_at=NOON, next_fire_at=None)
    return replace(resting, active_runs=active, queued_runs=queued)


def reported(verdict: TickVerdict) -> str:
    """Each decision in short: hours, kind and reason."""
    words = [
        f"{(d.planned_at - NOON) // HOUR}{f'-{(d.last_at - NOON) // HOUR}' if d.count > 1 else ''} {d.kind}({d.reason})"
        for d in verdict.decisions
    ]
    return ", ".join(words)


P13, P14, P12 = "1-3 skipped(paused)", "1-4 skipped(paused)", "1-2 skipped(paused)"
FIRED, BEHIND = "fired(caught_up)", "queued(behind_a_run)"
REPLACES = "queued(replaces_a_run)"


@pytest.mark.parametrize(
    ("choice", "overlap", "active", "became"),
    [
        *((ResumeChoice(), overlap, active, P14) for overlap in Overlap for active in (0, 1)),
        *((ResumeChoice(ResumePolicy.LATEST), overlap, 0, f"{P13}, 4 {FIRED}") for overlap in Overlap),
        (ResumeChoice(ResumePolicy.LATEST), Overlap.SKIP, 1, f"{P13}, 4 {BEHIND}"),
        (ResumeChoice(ResumePolicy.LATEST), Overlap.QUEUE, 1, f"{P13}, 4 {BEHIND}"),
        (ResumeChoice(ResumePolicy.LATEST), Overlap.ALLOW, 1, f"{P13}, 4 {FIRED}"),
        (ResumeChoice(ResumePolicy.LATEST), Overlap.REPLACE, 1, f"{P13}, 4 {REPLACES}"),
        *(
            (choice, overlap, 0, f"1 {FIRED}, 2 {BEHIND}, 3 {BEHIND}, 4 {BEHIND}")
            for choice in (ResumeChoice(ResumePolicy.ALL), SPREAD)
            for overlap in (Overlap.SKIP, Overlap.QUEUE)
        ),
        *(
            (choice, overlap, 1, f"1 {BEHIND}, 2 {BEHIND}, 3 {BEHIND}, 4 {BEHIND}")
            for choice in (ResumeChoice(ResumePolicy.ALL), SPREAD)
            for overlap in (Overlap.SKIP, Overlap.QUEUE)
        ),
        *(
            (choice, Overlap.ALLOW, active, f"1 {FIRED}, 2 {FIRED}, 3 {FIRED}, 4 {FIRED}")
            for choice in (ResumeChoice(ResumePolicy.ALL), SPREAD)
            for active in (0, 1)
        ),
        *(
            (choice, Overlap.REPLACE, 0, f"{P13}, 4 {FIRED}")
            for choice in (ResumeChoice(ResumePolicy.ALL), SINCE, SPREAD)
        ),
        *(
            (choice, Overlap.REPLACE, 1, f"{P13}, 4 {REPLACES}")
            for choice in (ResumeChoice(ResumePolicy.ALL), SINCE, SPREAD)
        ),
        (SINCE, Overlap.SKIP, 0, f"{P12}, 3 {FIRED}, 4 {BEHIND}"),
        (SINCE, Overlap.QUEUE, 1, f"{P12}, 3 {BEHIND}, 4 {BEHIND}"),
        (SINCE, Overlap.ALLOW, 1, f"{P12}, 3 {FIRED}, 4 {FIRED}"),
    ],
)
def test_chosen_missed_ticks_follow_the_overlap_policy(
    choice: ResumeChoice, overlap: Overlap, active: int, became: str
) -> None:
    verdict = resume_verdict(paused(overlap=overlap, active=active), choice, now=NOW)

    assert reported(verdict) == became
    assert verdict.mark_at == NOW
    assert verdict.replaces == (REPLACES in became)
    assert verdict.active_runs == active + became.count(FIRED)
    assert verdict.queued_runs == became.count("queued(")


def test_missed_ticks_of_a_pause_are_known_before_the_choice() -> None:
    assert missed_ticks(paused(), now=NOW) == MissedTicks(4, NOON + HOUR, NOON + 4 * HOUR)
    assert missed_ticks(paused(), now=NOON + MINUTE) == MissedTicks(0)


def test_the_limit_of_a_queue_does_not_hold_back_what_an_operator_wants() -> None:
    verdict = resume_verdict(
        paused(overlap=Overlap.QUEUE, active=1, queue_limit=1), ResumeChoice(ResumePolicy.ALL), now=NOW
    )

    assert verdict.queued_runs == 4


def test_replacing_a_run_replaces_queued_ones_too() -> None:
    verdict = resume_verdict(
        paused(overlap=Overlap.REPLACE, active=1, queued=2), ResumeChoice(ResumePolicy.ALL), now=NOW
    )

    assert (verdict.active_runs, verdict.queued_runs) == (1, 1)


def test_runs_are_laid_out_evenly_from_now_on() -> None:
    verdict = resume_verdict(paused(overlap=Overlap.ALLOW), SPREAD, now=NOW)

    assert [d.fire_at for d in verdict.decisions] == [NOW + place * 10 * MINUTE for place in range(4)]


def test_a_tick_that_was_skipped_by_itself_does_not_run_even_if_all_do() -> None:
    excepted = paused(overlap=Overlap.ALLOW, exceptions=(TickException(NOON + 2 * HOUR),))

    verdict = resume_verdict(excepted, ResumeChoice(ResumePolicy.ALL), now=NOW)

    assert reported(verdict) == f"1 {FIRED}, 2 skipped(skipped_once), 3 {FIRED}, 4 {FIRED}"


def test_more_runs_than_anyone_can_have_meant_are_refused() -> None:
    crowded = replace(paused(), spec=minutely().spec)

    with pytest.raises(FieldError, match=r"would be 1001 runs; the limit is 1000: say latest"):
        resume_verdict(crowded, ResumeChoice(ResumePolicy.ALL), now=NOON + (MAX_RESUMED_TICKS + 1) * MINUTE)
    assert (
        resume_verdict(
            crowded, ResumeChoice(ResumePolicy.LATEST), now=NOON + (MAX_RESUMED_TICKS + 1) * MINUTE
        ).active_runs
        == 1
    )


def test_since_a_time_that_is_yet_to_come_is_refused() -> None:
    with pytest.raises(FieldError, match="yet to come"):
        resume_verdict(paused(), ResumeChoice(ResumePolicy.SINCE, since_at=NOW + 1), now=NOW)
