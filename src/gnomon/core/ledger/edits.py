"""Edits of a schedule by an operator: create, change, pause, resume, and skip or move single ticks.

An edit first decides every tick planned up to now (`verdict_before_edit`), so that a change never rewrites the past.
The new spec, pause or exception counts from then on.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.durations import span_text
from gnomon.core.ids import shard_of
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.ledger.plan import (
    DEFAULT_LIMIT,
    HELD_UP,
    CatchupLimit,
    UnskippedPlan,
    held_up,
    paused_range,
    plan_ahead,
    plan_without_skips,
    schedule_after,
    with_skipped,
)
from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import (
    Catchup,
    Decision,
    Overlap,
    Reason,
    Schedule,
    ScheduleUid,
    Spec,
    TickException,
    TickKind,
    TickVerdict,
)
from gnomon.core.triggers import At, Every
from gnomon.errors import FieldError

#: The actor that deletes a one-shot schedule after its run.
SYSTEM_ACTOR = "gnomon"


def new_schedule(uid: ScheduleUid, tenant: str, schedule_id: str, spec: Spec, *, now: int) -> Schedule:
    """A schedule that begins now: it has no ticks before, except a single one that is within its grace."""
    mark = _mark_before_one_shot(spec, now)
    return Schedule(
        uid=uid,
        tenant=tenant,
        schedule_id=schedule_id,
        spec=spec,
        shard=shard_of(uid),
        mark_at=mark,
        next_fire_at=Ticks(schedule_id, spec).next_fire_at(mark),
        created_at=now,
        updated_at=now,
    )


def one_shot_at(spec: Spec) -> int | None:
    """The only planned time of a one-shot schedule; None for any other schedule."""
    return ms_of(spec.trigger.instant) if isinstance(spec.trigger, At) else None


def is_missed_one_shot(spec: Spec, *, now: int) -> bool:
    """Whether the only planned time is past by more than the grace, so that a new schedule would never fire."""
    at = one_shot_at(spec)
    return at is not None and at < now - spec.misfire_grace_ms


def is_one_shot_over(schedule: Schedule) -> bool:
    """Whether the only planned time of the schedule has been decided. A paused schedule may have lost its time so."""
    return one_shot_at(schedule.spec) is not None and schedule.next_fire_at is None and schedule.paused_at is None


def will_be_missed(schedule: Schedule, *, now: int) -> bool:
    """Whether the only planned time is past by more than the grace, and the decision on it can be only one.

    It is not decided yet because no scheduler runs.
    """
    certain = schedule.spec.catchup is Catchup.NONE and not schedule.spec.exceptions
    undecided = schedule.next_fire_at is not None and schedule.paused_at is None
    return certain and undecided and is_missed_one_shot(schedule.spec, now=now)


def missed_one_shot_error(spec: Spec, field: str, *, now: int) -> FieldError:
    """The error for a schedule that would never fire."""
    at = one_shot_at(spec) or now
    grace = span_text(spec.misfire_grace_ms)
    reason = f"was {span_text(now - at)} ago, which is more than misfire_grace ({grace}): it would never run"
    return FieldError(field, _quoted_instant(at), reason)


def _mark_before_one_shot(spec: Spec, now: int) -> int:
    at = one_shot_at(spec)
    return now if at is None or at > now or is_missed_one_shot(spec, now=now) else at - 1


def same_spec(current: Spec, new: Spec) -> bool:
    """Whether the new spec changes nothing, wherever it comes from. An interval of the same period keeps its grid."""
    new = replace(new, origin=current.origin, orphaned=current.orphaned)
    return current == keep_interval_anchor(current, new)


def redeclared(schedule: Schedule, origin: str, *, orphaned: bool = False) -> tuple[TickVerdict, Schedule]:
    """The schedule with another declaration, and the verdict, which decides nothing: its ticks are the same."""
    verdict = TickVerdict(
        schedule=schedule,
        decisions=(),
        mark_at=schedule.mark_at,
        next_fire_at=schedule.next_fire_at,
        active_runs=schedule.active_runs,
        queued_runs=schedule.queued_runs,
        spread_until=schedule.spread_until,
    )
    return verdict, replace(schedule, spec=replace(schedule.spec, origin=origin, orphaned=orphaned))


def keep_interval_anchor(current: Spec, new: Spec) -> Spec:
    """The new spec, with the grid of an interval that stays the same and the exceptions that are still valid."""
    new = _with_interval_anchor(current, replace(new, catchup_cap=current.catchup_cap))
    return replace(new, exceptions=still_valid_exceptions(current, new)) if current.exceptions else new


def _with_interval_anchor(current: Spec, new: Spec) -> Spec:
    old, trigger = current.trigger, new.trigger
    same_period = isinstance(old, Every) and isinstance(trigger, Every) and old.period == trigger.period
    return replace(new, trigger=old) if same_period and new.start_at == current.start_at else new


def verdict_before_edit(schedule: Schedule, *, now: int, limit: CatchupLimit = DEFAULT_LIMIT) -> TickVerdict:
    """The verdict on every tick planned up to now, to be carried out before an operator changes the schedule.

    It includes a tick whose jitter delays its fire beyond now: its run waits for its time, and a change that comes
    after the planned time does not undo it. Ticks beyond the limit need further verdicts (`has_remaining_due`), with
    which they are decided now and start later.
    """
    if schedule.paused_at is not None:
        return _paused_verdict(schedule, now)
    ticks = ticks_of(schedule)
    verdict, held_until = _with_jittered(schedule, ticks.unskipped, now, limit)
    if ticks.skipped:
        verdict = with_skipped(ticks, verdict, until=max(now, ticks.newest_due(now) or now))
    return held_up(verdict, held_until)


def _with_jittered(schedule: Schedule, ticks: Ticks, now: int, limit: CatchupLimit) -> UnskippedPlan:
    verdict, held_until = plan_without_skips(schedule, ticks, now=now, limit=limit)
    delayed = ticks.after(verdict.mark_at)
    if delayed is None or delayed > now or ticks.fire_at(delayed) <= now:
        return UnskippedPlan(verdict, held_until)
    if schedule.spec.overlap is Overlap.REPLACE:
        verdict = _without_replaced_run(verdict)
    in_turn = max(held_until, schedule.next_fire_at or 0)
    later = plan_ahead(schedule_after(verdict), ticks, delayed, start_at=in_turn)
    both = replace(
        later,
        schedule=schedule,
        decisions=verdict.decisions + later.decisions,
        replaces=verdict.replaces or later.replaces,
    )
    return UnskippedPlan(both, held_until)


def _without_replaced_run(verdict: TickVerdict) -> TickVerdict:
    """The verdict without its run, which a newer tick is about to replace: its ticks are coalesced into one range."""
    before = verdict.schedule
    others = [d for d in verdict.decisions if not _is_replaced(before, d)]
    replaced = [d for d in verdict.decisions if _is_replaced(before, d)]
    coalesced = [
        Decision(
            kind=TickKind.COALESCED,
            reason=Reason.NEWER_TICK,
            planned_at=replaced[0].planned_at,
            last_at=replaced[-1].last_at,
            count=sum(d.count for d in replaced),
        )
        for _ in replaced[:1]
    ]
    return replace(
        verdict,
        decisions=(*others, *coalesced),
        active_runs=before.active_runs,
        queued_runs=before.queued_runs,
        replaces=False,
    )


def _is_replaced(schedule: Schedule, decision: Decision) -> bool:
    """Whether the decision starts a run, or was coalesced into one that does."""
    merged = decision.kind is TickKind.COALESCED and schedule.spec.catchup in (Catchup.ALL, Catchup.SPREAD)
    return decision.starts_run or merged


def _paused_verdict(schedule: Schedule, now: int) -> TickVerdict:
    verdict = TickVerdict(
        schedule=schedule,
        decisions=paused_range(schedule, until=now),
        mark_at=max(schedule.mark_at, now),
        next_fire_at=None,
        active_runs=schedule.active_runs,
        queued_runs=schedule.queued_runs,
    )
    ticks = ticks_of(schedule)
    return replace(with_skipped(ticks, verdict, until=now), next_fire_at=None) if ticks.skipped else verdict


def has_remaining_due(verdict: TickVerdict, *, now: int) -> bool:
    """Whether the catch-up limit left ticks for another verdict."""
    coming = _unhindered_fire_at(verdict)
    return coming is not None and coming <= now


def _unhindered_fire_at(verdict: TickVerdict) -> int | None:
    """When the next tick is to fire, if the ticks before it do not hold it up."""
    if verdict.next_fire_at is None or verdict.schedule.spec.catchup not in HELD_UP:
        return verdict.next_fire_at
    return ticks_of(verdict.schedule).next_fire_at(verdict.mark_at)


def edited_schedule(verdict: TickVerdict, spec: Spec, *, now: int) -> Schedule:
    """The schedule with a new spec, which counts from now on. A paused schedule stays paused.

    Its ticks start after those that the verdict has put off, if it also catches up on them all.
    """
    after = schedule_after(verdict)
    mark = max(after.mark_at, now)
    if _mark_before_one_shot(spec, now) < mark and _is_undecided(verdict, spec):
        mark = _mark_before_one_shot(spec, now)
    coming = None if after.paused_at is not None else Ticks(after.schedule_id, spec).next_fire_at(mark)
    if coming is not None and spec.catchup in HELD_UP and verdict.next_fire_at != _unhindered_fire_at(verdict):
        coming = max(coming, verdict.next_fire_at or coming)
    return replace(
        after,
        spec=spec,
        revision=after.revision + 1,
        mark_at=mark,
        next_fire_at=coming,
        updated_at=now,
    )


def _is_undecided(verdict: TickVerdict, spec: Spec) -> bool:
    """Whether no tick at the only planned time of the new spec has been decided."""
    at, before = one_shot_at(spec), verdict.schedule
    moved = one_shot_at(before.spec) != at
    return (
        at is not None
        and moved
        and at > before.mark_at
        and all(not d.planned_at <= at <= d.last_at for d in verdict.decisions)
    )


def paused_schedule(verdict: TickVerdict, *, now: int) -> Schedule:
    """The schedule, paused from now on."""
    after = schedule_after(verdict)
    return replace(after, mark_at=max(after.mark_at, now), next_fire_at=None, paused_at=now, updated_at=now)


def resumed_schedule(verdict: TickVerdict, *, now: int) -> Schedule:
    """The schedule, resumed now; the verdict has decided the ticks of the pause."""
    after = schedule_after(verdict)
    upcoming = Ticks(after.schedule_id, after.spec).next_fire_at(after.mark_at)
    return replace(after, next_fire_at=upcoming, paused_at=None, updated_at=now)


# ---- resuming after a pause ----------------------------------------------------------------------

#: The largest number of runs that one resumption may start.
MAX_RESUMED_TICKS = 1000


class ResumePolicy(StrEnum):
    """Which ticks of the pause run after all."""

    SKIP = "skip"
    #: The newest one.
    LATEST = "latest"
    ALL = "all"
    #: Those planned from a time on.
    SINCE = "since"
    #: All of them, spread evenly over some time from now on.
    SPREAD = "spread"


class ResumeChoice(Struct, frozen=True):
    """The operator's choice at the end of a pause: which of its ticks run, and when."""

    which: ResumePolicy = ResumePolicy.SKIP
    #: For SINCE: the first planned time that runs.
    since_at: int | None = None
    #: For SPREAD: the time over which the runs are spread.
    over_ms: int | None = None


SKIP_MISSED = ResumeChoice()


class MissedTicks(Struct, frozen=True):
    """The ticks of a pause: their number, the first and the last. Ticks that were skipped anyway are not counted."""

    count: int
    first_at: int | None = None
    last_at: int | None = None


def missed_ticks(schedule: Schedule, *, now: int) -> MissedTicks:
    """The ticks that the current pause has suppressed so far."""
    found = paused_range(schedule, until=now) if schedule.paused_at is not None else ()
    return MissedTicks(found[0].count, found[0].planned_at, found[0].last_at) if found else MissedTicks(0)


def resume_verdict(schedule: Schedule, choice: ResumeChoice, *, now: int) -> TickVerdict:
    """The verdict with which a pause ends; raise FieldError if it would start more than MAX_RESUMED_TICKS runs.

    The chosen ticks run because the operator asked for them: no catch-up window, grace or queue limit holds them back.
    Where the schedule does not allow overlap, they still run one after the other.
    """
    verdict, ticks = verdict_before_edit(schedule, now=now), ticks_of(schedule)
    chosen = _chosen(schedule, ticks.unskipped, choice, now)
    if not chosen:
        return verdict
    before = paused_range(schedule, until=chosen[0] - 1)
    verdict = _with_resumed_ticks(replace(verdict, decisions=before), ticks, chosen)
    if choice.which is ResumePolicy.SPREAD:
        verdict = replace(
            verdict, decisions=before + _spread(verdict.decisions[len(before) :], choice.over_ms or 0, now)
        )
    return replace(with_skipped(ticks, verdict, until=now), next_fire_at=None) if ticks.skipped else verdict


def _chosen(schedule: Schedule, ticks: Ticks, choice: ResumeChoice, now: int) -> list[int]:
    if choice.which is ResumePolicy.SKIP:
        return []
    newest = ticks.up_to(now)
    if newest is None or newest <= schedule.mark_at:
        return []
    if choice.which is ResumePolicy.LATEST:
        return [newest]
    after = schedule.mark_at
    if choice.since_at is not None:
        _refuse_the_future(choice.since_at, now)
        after = max(after, choice.since_at - 1)
    _refuse_too_many(choice, ticks.count(after=after, until=now))
    found: list[int] = []
    while (planned := ticks.after(found[-1] if found else after)) is not None and planned <= now:
        found.append(planned)
    # Each run would replace the one before it at once.
    return found[-1:] if schedule.spec.overlap is Overlap.REPLACE else found


def _refuse_the_future(since_at: int, now: int) -> None:
    if since_at > now:
        raise FieldError("missed", "since", "names a time that is yet to come")


def _refuse_too_many(choice: ResumeChoice, count: int) -> None:
    if count > MAX_RESUMED_TICKS:
        more = "say latest, or since a later time, or backfill them"
        reason = f"would be {count} runs; the limit is {MAX_RESUMED_TICKS}: {more}"
        raise FieldError("missed", choice.which.value, reason)


def _with_resumed_ticks(verdict: TickVerdict, ticks: Ticks, chosen: list[int]) -> TickVerdict:
    """The verdict with runs for the chosen ticks: in parallel if overlap is allowed, else one after the other."""
    overlap = verdict.schedule.spec.overlap
    active, queued, replaces = verdict.active_runs, verdict.queued_runs, False
    decisions = list(verdict.decisions)
    for planned in chosen:
        kind, reason = TickKind.FIRED, Reason.CAUGHT_UP
        if overlap is not Overlap.ALLOW and active + queued:
            replaces = overlap is Overlap.REPLACE
            kind, reason = TickKind.QUEUED, Reason.REPLACES_A_RUN if replaces else Reason.BEHIND_A_RUN
            # The runs queued behind the replaced run are cancelled with it.
            queued = 0 if replaces else queued
        active, queued = active + (kind is TickKind.FIRED), queued + (kind is TickKind.QUEUED)
        decisions.append(
            Decision(kind=kind, reason=reason, planned_at=planned, last_at=planned, fire_at=ticks.fire_at(planned))
        )
    return replace(verdict, decisions=tuple(decisions), active_runs=active, queued_runs=queued, replaces=replaces)


def _spread(decisions: tuple[Decision, ...], over_ms: int, now: int) -> tuple[Decision, ...]:
    count = len(decisions)
    return tuple(replace(decision, fire_at=now + i * over_ms // count) for i, decision in enumerate(decisions))


# ---- exceptions: one tick skipped or moved -------------------------------------------------------

#: The largest number of coming ticks of one schedule that may be skipped or moved.
MAX_EXCEPTIONS = 100


def with_exception(schedule: Schedule, at: int, *, move_to: int | None, now: int) -> Spec:
    """The spec with the tick at `at` skipped or moved; raise FieldError if there is no such tick or target."""
    since, spec = max(schedule.mark_at, now), schedule.spec
    ticks = Ticks(schedule.schedule_id, spec)
    by_time = _by_time(spec)
    if at in by_time and by_time[at].moved_to == move_to:
        return spec
    _refuse_unplanned(ticks, at, since)
    if at in by_time:
        raise FieldError("at", _quoted_instant(at), "is skipped or moved already: undo that first")
    if move_to is not None:
        _refuse_misplaced(spec, ticks, move_to, since)
    coming = [known for known in spec.exceptions if max(known.planned_at, known.moved_to or 0) > since]
    if len(coming) >= MAX_EXCEPTIONS:
        raise FieldError(
            "at",
            _quoted_instant(at),
            f"would be one too many: {MAX_EXCEPTIONS} coming ticks are skipped or moved already",
        )
    return _with(spec, [*coming, TickException(at, move_to)])


def without_exception(schedule: Schedule, at: int, *, now: int) -> Spec:
    """The spec without the exception of one tick; raise FieldError if it has none, or if the tick is decided."""
    since, by_time = max(schedule.mark_at, now), _by_time(schedule.spec)
    undone = by_time.pop(at, None)
    if undone is None:
        raise FieldError("at", _quoted_instant(at), "is neither skipped nor moved")
    if undone.moved_to in by_time:
        raise FieldError(
            "at", _quoted_instant(at), "was moved to a tick that is itself skipped or moved: undo that first"
        )
    if min(at, undone.moved_to or at) <= since:
        raise FieldError("at", _quoted_instant(at), "has been decided")
    return _with(schedule.spec, list(by_time.values()))


def still_valid_exceptions(current: Spec, new: Spec) -> tuple[TickException, ...]:
    """The current exceptions that are valid for the new spec: all of them if it plans the same times."""
    if (current.trigger, current.start_at, current.end_at) == (new.trigger, new.start_at, new.end_at):
        return current.exceptions
    planned, found = Ticks("", replace(new, exceptions=())), list[TickException]()
    left = list(current.exceptions)
    # An exception may be about a tick that another exception moved there.
    while fit := [exception for exception in left if _fits(new, planned, found, exception)]:
        found += fit
        left = [exception for exception in left if exception not in fit]
    return _with(new, found).exceptions


def _fits(new: Spec, planned: Ticks, found: list[TickException], exception: TickException) -> bool:
    at, to = exception.planned_at, exception.moved_to
    exists = planned.up_to(at) == at or any(at == other.moved_to for other in found)
    return exists and (to is None or (_inside(new, to) and planned.up_to(to) != to))


def _by_time(spec: Spec) -> dict[int, TickException]:
    return {exception.planned_at: exception for exception in spec.exceptions}


def _with(spec: Spec, exceptions: list[TickException]) -> Spec:
    return replace(spec, exceptions=tuple(sorted(exceptions, key=lambda exception: exception.planned_at)))


def _refuse_unplanned(ticks: Ticks, at: int, since: int) -> None:
    if at <= since:
        raise FieldError("at", _quoted_instant(at), "is over: only a tick that is to come can be skipped or moved")
    if ticks.up_to(at) == at:
        return
    before, following = ticks.up_to(at), ticks.after(at)
    near = [f"the one before is at {_quoted_instant(before)}"] if before is not None and before > since else []
    near += [f"the next is at {_quoted_instant(following)}"] if following is not None else []
    raise FieldError("at", _quoted_instant(at), f"is no planned time: {', '.join(near) or 'nothing is planned'}")


def _refuse_misplaced(spec: Spec, ticks: Ticks, move_to: int, since: int) -> None:
    if move_to <= since:
        raise FieldError("move_to", _quoted_instant(move_to), "is over")
    if not _inside(spec, move_to):
        raise FieldError("move_to", _quoted_instant(move_to), "lies outside the time in which the job is active")
    if ticks.up_to(move_to) == move_to:
        raise FieldError("move_to", _quoted_instant(move_to), "is a planned time already")


def _inside(spec: Spec, at: int) -> bool:
    return (spec.start_at is None or at >= spec.start_at) and (spec.end_at is None or at < spec.end_at)


def _quoted_instant(at: int) -> str:
    return instant_of(at).isoformat()
