"""What becomes of the ticks that a pause swallowed, chosen by whoever ends it.

Those that are chosen run because an operator said so: no window, grace or limit of a queue holds them back. They still
do not run beside others where the schedule does not allow it, but wait for their turn.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.editing import verdict_before
from gnomon.core.model import Decision, Overlap, Reason, Schedule, TickKind, Verdict
from gnomon.core.plan import paused_range
from gnomon.core.skipping import with_skipped
from gnomon.core.ticks import Ticks
from gnomon.errors import FieldError

#: How many runs may be made by one resumption.
MOST = 1000


class Missed(StrEnum):
    """Which of the swallowed ticks run."""

    SKIP = "skip"
    #: The newest.
    LATEST = "latest"
    ALL = "all"
    #: Those planned from a time on.
    SINCE = "since"
    #: All of them, laid out evenly over some time from now on.
    SPREAD = "spread"


class Choice(Struct, frozen=True):
    """Which of the swallowed ticks run, and when."""

    which: Missed = Missed.SKIP
    #: From when on, of SINCE.
    since_at: int | None = None
    #: Over how long, of SPREAD.
    over_ms: int | None = None


NONE_OF_THEM = Choice()


class Swallowed(Struct, frozen=True):
    """The ticks of a pause: how many, and from when to when. Those that were skipped anyway are not counted."""

    count: int
    first_at: int | None = None
    last_at: int | None = None


def swallowed(schedule: Schedule, *, now: int) -> Swallowed:
    """What the pause that is on has swallowed so far."""
    found = paused_range(schedule, until=now) if schedule.paused_at is not None else ()
    return Swallowed(found[0].count, found[0].planned_at, found[0].last_at) if found else Swallowed(0)


def resuming(schedule: Schedule, choice: Choice, *, now: int) -> Verdict:
    """The verdict with which a pause ends; FieldError if there is more to run than anyone can have meant."""
    verdict, ticks = verdict_before(schedule, now=now), Ticks(schedule.schedule_id, schedule.spec)
    chosen = _chosen(schedule, ticks.kept, choice, now)
    if not chosen:
        return verdict
    before = paused_range(schedule, until=chosen[0] - 1)
    verdict = _taken_up(replace(verdict, decisions=before), ticks, chosen)
    if choice.which is Missed.SPREAD:
        verdict = replace(
            verdict, decisions=before + _spread(verdict.decisions[len(before) :], choice.over_ms or 0, now)
        )
    return replace(with_skipped(ticks, verdict, until=now), next_fire_at=None) if ticks.skipped else verdict


def _chosen(schedule: Schedule, ticks: Ticks, choice: Choice, now: int) -> list[int]:
    if choice.which is Missed.SKIP:
        return []
    newest = ticks.up_to(now)
    if newest is None or newest <= schedule.mark_at:
        return []
    if choice.which is Missed.LATEST:
        return [newest]
    after = schedule.mark_at
    if choice.since_at is not None:
        _refuse_the_future(choice.since_at, now)
        after = max(after, choice.since_at - 1)
    _refuse_too_many(choice, ticks.count(after=after, until=now))
    found: list[int] = []
    while (planned := ticks.after(found[-1] if found else after)) is not None and planned <= now:
        found.append(planned)
    # Each would replace the one before it at once.
    return found[-1:] if schedule.spec.overlap is Overlap.REPLACE else found


def _refuse_the_future(since_at: int, now: int) -> None:
    if since_at > now:
        raise FieldError("missed", "since", "names a time that is yet to come")


def _refuse_too_many(choice: Choice, count: int) -> None:
    if count > MOST:
        reason = f"would be {count} runs, and {MOST} are the most: say latest, or since a later time, or backfill them"
        raise FieldError("missed", choice.which.value, reason)


def _taken_up(verdict: Verdict, ticks: Ticks, chosen: list[int]) -> Verdict:
    """The verdict with runs for the chosen ticks: beside others if that is allowed, else one after the other."""
    overlap = verdict.schedule.spec.overlap
    active, queued, replaces = verdict.active_runs, verdict.queued_runs, False
    decisions = list(verdict.decisions)
    for planned in chosen:
        kind, reason = TickKind.FIRED, Reason.CAUGHT_UP
        if overlap is not Overlap.ALLOW and active + queued:
            replaces = overlap is Overlap.REPLACE
            kind, reason = TickKind.QUEUED, Reason.REPLACES_A_RUN if replaces else Reason.BEHIND_A_RUN
            # Those that wait behind a run that is replaced are cancelled with it.
            queued = 0 if replaces else queued
        active, queued = active + (kind is TickKind.FIRED), queued + (kind is TickKind.QUEUED)
        decisions.append(
            Decision(kind=kind, reason=reason, planned_at=planned, last_at=planned, fire_at=ticks.fire_at(planned))
        )
    return replace(verdict, decisions=tuple(decisions), active_runs=active, queued_runs=queued, replaces=replaces)


def _spread(decisions: tuple[Decision, ...], over_ms: int, now: int) -> tuple[Decision, ...]:
    count = len(decisions)
    return tuple(replace(one, fire_at=now + place * over_ms // count) for place, one in enumerate(decisions))
