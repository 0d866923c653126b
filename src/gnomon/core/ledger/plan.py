"""The planner: which due ticks of a schedule fire, queue, are skipped or coalesced, or count as missed, and why.

`plan` is pure: it takes a schedule as it was read and returns a verdict. Catch-up decides which of several overdue
ticks are to fire; the overlap policy decides which of those start a run. Ticks that an operator skipped or moved
are merged in afterwards. The store carries the verdict out if the schedule is `unchanged`.

Ranges of ticks are counted, not walked: a year of missed seconds costs no more than one missed minute.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from gnomon.core.ids import run_id, tick_key
from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import (
    Catchup,
    Decision,
    Overlap,
    Reason,
    Run,
    RunSource,
    RunStatus,
    Schedule,
    Tick,
    TickKind,
    TickStatus,
    TickVerdict,
)
from gnomon.core.runs.deadlines import planned_run_deadline
from gnomon.errors import ClockAhead

#: How far the clock of a node that edits or admits may be ahead of the store's: nodes follow that clock so closely.
NODE_TOLERANCE_MS = 1_000
_BEFORE_ANY = -(1 << 62)
#: The policies with which overdue ticks hold up the next one: all of them start, in planned order.
HELD_UP = (Catchup.ALL, Catchup.SPREAD)


class FiringTick(NamedTuple):
    """A tick that is to fire, if the overlap policy allows it."""

    planned_at: int
    fire_at: int
    reason: Reason


class ClassifiedTicks(NamedTuple):
    """The due ticks after catch-up: decisions on those that do not fire, and those that may."""

    not_fired: tuple[Decision, ...]
    firing: tuple[FiringTick, ...]
    mark_at: int
    #: When the next tick may start; 0 if these do not hold it up.
    held_until: int = 0
    #: Until when overdue ticks are spread from now on; None if that does not change.
    spread_until: int | None = None


class CatchupLimit(NamedTuple):
    """How many ticks of one schedule may start within one interval of the ticker, whatever the number of passes."""

    ticks: int = 100
    interval_ms: int = 1_000


DEFAULT_LIMIT = CatchupLimit()


class UnskippedPlan(NamedTuple):
    """The verdict on ticks that are not skipped, and when the next one may start; 0 if these do not hold it up."""

    verdict: TickVerdict
    held_until: int


class _Pass(NamedTuple):
    """The conditions under which due ticks are decided."""

    now: int
    #: The first start: later than now if earlier ticks have taken the starts up to then.
    start_at: int
    limit: CatchupLimit


def plan(schedule: Schedule, *, now: int, limit: CatchupLimit = DEFAULT_LIMIT) -> TickVerdict:
    """The verdict on every tick of the schedule that is due at `now`; ticks beyond the limit are due again later."""
    ticks = ticks_of(schedule)
    verdict, held_until = plan_without_skips(schedule, ticks.unskipped, now=now, limit=limit)
    if ticks.skipped:
        verdict = with_skipped(ticks, verdict, until=ticks.newest_due(now))
    return held_up(verdict, held_until)


def held_up(verdict: TickVerdict, until: int) -> TickVerdict:
    """The verdict, after which the next tick is due no sooner."""
    coming = verdict.next_fire_at
    return verdict if coming is None or coming >= until else replace(verdict, next_fire_at=until)


def plan_without_skips(schedule: Schedule, ticks: Ticks, *, now: int, limit: CatchupLimit) -> UnskippedPlan:
    """The verdict on those of `ticks` that are due at `now`, as if the schedule had no others."""
    # A tick that is held up starts in its turn, also if a change decides it sooner.
    start_at = max(now, schedule.next_fire_at or now) if schedule.spec.catchup in HELD_UP else now
    classified = _classify(schedule, ticks, _Pass(now, start_at, limit))
    return UnskippedPlan(_verdict(schedule, ticks, classified), classified.held_until)


def plan_ahead(schedule: Schedule, ticks: Ticks, planned: int, *, start_at: int = 0) -> TickVerdict:
    """The verdict on the tick at `planned` alone, before its fire time; it starts no sooner than `start_at`."""
    firing = FiringTick(planned, max(ticks.fire_at(planned), start_at), Reason.ON_TIME)
    return _verdict(schedule, ticks, ClassifiedTicks((), (firing,), planned))


def _verdict(schedule: Schedule, ticks: Ticks, classified: ClassifiedTicks) -> TickVerdict:
    decisions, active, queued, replaces = _overlap(schedule, classified)
    return TickVerdict(
        schedule=schedule,
        decisions=decisions,
        mark_at=classified.mark_at,
        next_fire_at=ticks.next_fire_at(classified.mark_at),
        active_runs=active,
        queued_runs=queued,
        replaces=replaces,
        spread_until=schedule.spread_until if classified.spread_until is None else classified.spread_until,
    )


# ---- catch-up ------------------------------------------------------------------------------------


def _classify(schedule: Schedule, ticks: Ticks, this: _Pass) -> ClassifiedTicks:
    mark, spec, now = schedule.mark_at, schedule.spec, this.now
    first = ticks.after(mark)
    if first is None or ticks.fire_at(first) > now:
        return ClassifiedTicks((), (), mark)
    second = ticks.after(first)
    if this.start_at <= now and (second is None or ticks.fire_at(second) > now):
        return _one(schedule, ticks, first, now)
    newest = ticks.newest_due(now)
    assert newest is not None, "one is due"  # noqa: S101 - tells the type checker
    match spec.catchup:
        case Catchup.NONE:
            return _none(ticks, mark, newest, now, spec.misfire_grace_ms)
        case Catchup.LATEST:
            coalesced = _range(ticks, TickKind.COALESCED, Reason.NEWER_TICK, after=mark, until=newest - 1)
            return ClassifiedTicks(coalesced, (_firing(ticks, newest, now, spec.misfire_grace_ms),), newest)
        case Catchup.ALL | Catchup.SPREAD:
            return _all(schedule, ticks, newest, this)
        case _:
            assert_never(spec.catchup)


def _one(schedule: Schedule, ticks: Ticks, planned: int, now: int) -> ClassifiedTicks:
    """The ordinary case: one tick is due, and no search is needed."""
    spec = schedule.spec
    late = _lateness(planned, ticks.fire_at(planned), now)
    missed = {Catchup.NONE: spec.misfire_grace_ms, Catchup.LATEST: late}.get(spec.catchup, spec.catchup_window_ms)
    if late > missed:
        reason = Reason.CATCHUP_NONE if spec.catchup is Catchup.NONE else Reason.WINDOW
        return ClassifiedTicks(
            (Decision(kind=TickKind.MISSED, reason=reason, planned_at=planned, last_at=planned),), (), planned
        )
    return ClassifiedTicks((), (_firing(ticks, planned, now, spec.misfire_grace_ms),), planned)


def _none(ticks: Ticks, mark: int, newest: int, now: int, grace: int) -> ClassifiedTicks:
    overdue = max(mark, _due_before(ticks, now - grace))
    missed = _range(ticks, TickKind.MISSED, Reason.CATCHUP_NONE, after=mark, until=overdue)
    if newest <= overdue:
        return ClassifiedTicks(missed, (), newest)
    coalesced = _range(ticks, TickKind.COALESCED, Reason.NEWER_TICK, after=overdue, until=newest - 1)
    return ClassifiedTicks(missed + coalesced, (_firing(ticks, newest, now, grace),), newest)


def _all(schedule: Schedule, ticks: Ticks, newest: int, this: _Pass) -> ClassifiedTicks:
    spec, now = schedule.spec, this.now
    too_old = max(schedule.mark_at, _due_before(ticks, now - spec.catchup_window_ms))
    missed = _range(ticks, TickKind.MISSED, Reason.WINDOW, after=schedule.mark_at, until=too_old)
    firing: list[FiringTick] = []
    planned = ticks.after(too_old)
    while planned is not None and planned <= newest and len(firing) < this.limit.ticks:
        firing.append(_firing(ticks, planned, now, spec.misfire_grace_ms))
        planned = ticks.after(planned)
    if not firing:
        return ClassifiedTicks(missed, (), too_old)
    end = _spread_end(schedule, firing[0], this)
    if end is not None:
        return _spread(ticks, ClassifiedTicks(missed, tuple(firing), firing[-1].planned_at), this, end=end)
    if this.start_at > now:
        firing = [tick._replace(fire_at=max(tick.fire_at, this.start_at)) for tick in firing]
    held_until = 0
    if this.start_at > now or len(firing) == this.limit.ticks:
        held_until = this.start_at + this.limit.interval_ms
    return ClassifiedTicks(missed, tuple(firing), firing[-1].planned_at, held_until)


def _spread_end(schedule: Schedule, oldest: FiringTick, this: _Pass) -> int | None:
    """Until when due ticks are spread; None if they are not. A tick later than its grace begins it."""
    if schedule.spec.catchup is not Catchup.SPREAD:
        return None
    if schedule.spread_until is not None and schedule.spread_until > this.start_at:
        return schedule.spread_until
    return this.start_at + schedule.spec.lookahead_ms if oldest.reason is Reason.CAUGHT_UP else None


def _spread(ticks: Ticks, classified: ClassifiedTicks, this: _Pass, *, end: int) -> ClassifiedTicks:
    """The firing ticks, spread evenly together with those that are due or planned up to `end` and are decided later.

    So each of them starts in planned order, the last one before `end`. If the limit does not let so many start until
    then, the end is later.
    """
    firing, start = classified.firing, this.start_at
    count = ticks.count(after=firing[0].planned_at - 1, until=max(end, firing[-1].planned_at))
    span = max(end - start, -(-count * this.limit.interval_ms // this.limit.ticks))
    spread = [tick._replace(fire_at=start + i * span // count) for i, tick in enumerate(firing)]
    held_until = start + len(firing) * span // count
    return classified._replace(firing=tuple(spread), held_until=held_until, spread_until=start + span)


def _firing(ticks: Ticks, planned: int, now: int, grace: int) -> FiringTick:
    fire_at = ticks.fire_at(planned)
    late = _lateness(planned, fire_at, now)
    reason = Reason.CAUGHT_UP if late > grace else Reason.LATE if late >= 1000 else Reason.ON_TIME
    return FiringTick(planned, fire_at, reason)


def _lateness(planned: int, fire_at: int, now: int) -> int:
    """How late a tick is. If jitter puts its fire before the planned time, it is late only after the planned time."""
    return now - max(planned, fire_at)


def _due_before(ticks: Ticks, at: int) -> int:
    """The newest tick whose planned time and fire time are before `at`; _BEFORE_ANY if there is none."""
    found = ticks.newest_due(at - 1)
    if found is not None and found >= at:
        found = ticks.up_to(found - 1)
    return _BEFORE_ANY if found is None else found


def _range(ticks: Ticks, kind: TickKind, reason: Reason, *, after: int, until: int) -> tuple[Decision, ...]:
    """One decision for every tick after `after` and up to `until`, if there are any."""
    count = ticks.count(after=after, until=until)
    if not count:
        return ()
    first, last = ticks.after(after), ticks.up_to(until)
    assert first is not None  # noqa: S101 - there are some
    assert last is not None  # noqa: S101
    return (Decision(kind=kind, reason=reason, planned_at=first, last_at=last, count=count),)


def paused_range(schedule: Schedule, *, until: int) -> tuple[Decision, ...]:
    """The decision on the ticks that a pause suppressed, as one range."""
    ticks = ticks_of(schedule).unskipped
    return _range(ticks, TickKind.SKIPPED, Reason.PAUSED, after=schedule.mark_at, until=until)


def uncertain_range(schedule: Schedule, *, until: int) -> tuple[Decision, ...]:
    """The decision on the ticks of which a restored store does not know whether they ran, as one range."""
    ticks = Ticks(schedule.schedule_id, schedule.spec).unskipped
    return _range(ticks, TickKind.MISSED, Reason.STORE_UNCERTAIN, after=schedule.mark_at, until=until)


# ---- overlap -------------------------------------------------------------------------------------


class _Counts(NamedTuple):
    active: int
    queued: int


def _overlap(schedule: Schedule, classified: ClassifiedTicks) -> tuple[tuple[Decision, ...], int, int, bool]:
    counts = _Counts(schedule.active_runs, schedule.queued_runs)
    firings = classified.firing
    decisions = list(classified.not_fired)
    if schedule.spec.overlap is Overlap.REPLACE and len(firings) > 1:
        # Each run would replace the one before it at once: only the newest is worth starting.
        decisions.append(_coalesced(firings[:-1]))
        firings = firings[-1:]
    replaces = False
    for firing in firings:
        kind, reason = _decide(schedule, counts, firing)
        if reason is Reason.REPLACES_A_RUN:
            replaces = True
            # The runs queued behind the replaced run are cancelled with it; only the newest waits.
            counts = counts._replace(queued=0)
        runs = kind in (TickKind.FIRED, TickKind.QUEUED)
        counts = _Counts(counts.active + (kind is TickKind.FIRED), counts.queued + (kind is TickKind.QUEUED))
        decisions.append(
            Decision(
                kind=kind,
                reason=reason,
                planned_at=firing.planned_at,
                last_at=firing.planned_at,
                fire_at=firing.fire_at if runs else None,
            )
        )
    return tuple(decisions), counts.active, counts.queued, replaces


def _coalesced(firings: Sequence[FiringTick]) -> Decision:
    first, last = firings[0].planned_at, firings[-1].planned_at
    reason = Reason.NEWER_TICK
    return Decision(kind=TickKind.COALESCED, reason=reason, planned_at=first, last_at=last, count=len(firings))


def _decide(schedule: Schedule, counts: _Counts, firing: FiringTick) -> tuple[TickKind, Reason]:
    overlap = schedule.spec.overlap
    if overlap is Overlap.ALLOW or not counts.active + counts.queued:
        return TickKind.FIRED, firing.reason
    match overlap:
        case Overlap.SKIP:
            return TickKind.SKIPPED, Reason.OVERLAP
        case Overlap.QUEUE:
            if counts.queued >= schedule.spec.queue_limit:
                return TickKind.SKIPPED, Reason.QUEUE_FULL
            return TickKind.QUEUED, Reason.BEHIND_A_RUN
        case Overlap.REPLACE:
            return TickKind.QUEUED, Reason.REPLACES_A_RUN
        case _:
            assert_never(overlap)


# ---- skipped and moved ticks ---------------------------------------------------------------------


def with_skipped(ticks: Ticks, verdict: TickVerdict, *, until: int | None) -> TickVerdict:
    """The verdict on the unskipped ticks, completed by the skipped ones among them and after them up to `until`.

    Ticks that are decided already get no decision, and split ranges like the skipped ones.
    """
    mark = verdict.mark_at
    left = ticks.unskipped.after(mark)
    if until is not None:
        # Ticks that the catch-up cap left over are decided before the skipped ones after them.
        mark = max(mark, until if left is None else min(until, left - 1))
    due = {at: why for at, why in ticks.skipped.items() if verdict.schedule.mark_at < at <= mark}
    reached = max([verdict.mark_at, *due])
    return replace(
        verdict,
        decisions=tuple(_merged(ticks.unskipped, verdict.decisions, due)),
        mark_at=reached,
        next_fire_at=ticks.next_fire_at(reached),
    )


def _merged(ticks: Ticks, decisions: Sequence[Decision], skipped: Mapping[int, Reason | None]) -> Iterator[Decision]:
    rest = dict(skipped)
    for decision in decisions:
        for at in [at for at in rest if at < decision.planned_at]:
            yield from _skip(at, rest.pop(at))
        inside = [at for at in rest if at <= decision.last_at]
        for at in inside:
            before = ticks.up_to(at)
            if before is not None and before >= decision.planned_at:
                count = ticks.count(after=decision.planned_at - 1, until=at)
                yield replace(decision, last_at=before, count=count)
                following = ticks.after(at)
                assert following is not None  # noqa: S101 - the last tick of the range comes after
                decision = replace(decision, planned_at=following, count=decision.count - count)  # noqa: PLW2901 - its rest
            yield from _skip(at, rest.pop(at))
        yield decision
    for at, why in rest.items():
        yield from _skip(at, why)


def _skip(at: int, why: Reason | None) -> Iterator[Decision]:
    if why is not None:
        yield Decision(kind=TickKind.SKIPPED, reason=why, planned_at=at, last_at=at)


# ---- the records of a decision -------------------------------------------------------------------

_STATUS = {
    TickKind.FIRED: TickStatus.ENQUEUED,
    TickKind.QUEUED: TickStatus.ENQUEUED,
    TickKind.SKIPPED: TickStatus.SKIPPED,
    TickKind.COALESCED: TickStatus.SKIPPED,
    TickKind.MISSED: TickStatus.SKIPPED,
}


def tick_record(schedule: Schedule, decision: Decision, *, now: int, term: int) -> Tick:
    """The decision as a row of the ledger."""
    return Tick(
        uid=schedule.uid,
        tenant=schedule.tenant,
        schedule_id=schedule.schedule_id,
        decision=decision,
        key=tick_key(schedule.schedule_id, decision.planned_at),
        status=_STATUS[decision.kind],
        run_id=run_id(schedule.uid, decision.planned_at) if decision.starts_run else None,
        decided_at=now,
        term=term,
        revision=schedule.revision,
    )


def run_record(schedule: Schedule, decision: Decision, *, now: int) -> Run:
    """The run that a decision starts, or queues."""
    spec = schedule.spec
    return Run(
        run_id=run_id(schedule.uid, decision.planned_at),
        tenant=schedule.tenant,
        schedule_uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        workflow_id=spec.workflow_id,
        workflow_version=spec.workflow_version,
        user_id=spec.user_id,
        source=RunSource.CRON,
        status=RunStatus.PENDING,
        queued=decision.kind is TickKind.QUEUED,
        planned_at=decision.planned_at,
        fire_at=decision.fire_at or decision.planned_at,
        created_at=now,
        deadline_at=planned_run_deadline(spec.deadlines, created_at=now, planned_at=decision.planned_at),
    )


# ---- carrying a verdict out ----------------------------------------------------------------------


def refuse_clock_ahead(now: int, store_now: int, *, tolerance_ms: int = 0) -> None:
    """Raise ClockAhead if a write is for a time that has not come by the clock of the store."""
    if now > store_now + tolerance_ms:
        raise ClockAhead(now - store_now)


def unchanged(read: Schedule, current: Schedule) -> bool:
    """Whether everything that a verdict depends on is still as it was read."""
    return (
        read.mark_at == current.mark_at
        and read.revision == current.revision
        and read.paused_at == current.paused_at
        and read.active_runs == current.active_runs
        and read.queued_runs == current.queued_runs
    )


def schedule_after(verdict: TickVerdict) -> Schedule:
    """The schedule once the verdict has been carried out."""
    return replace(
        verdict.schedule,
        mark_at=verdict.mark_at,
        next_fire_at=verdict.next_fire_at,
        active_runs=verdict.active_runs,
        queued_runs=verdict.queued_runs,
        spread_until=verdict.spread_until,
    )


def superseded_run(run: Run, *, now: int, why: str = "superseded by a newer run") -> Run:
    """A run that a newer one replaces: cancelled if it was still queued, asked to stop if it had started."""
    why = run.error or why
    if run.queued:
        return replace(run, status=RunStatus.CANCELLED, queued=False, completed_at=now, error=why)
    # The first request to cancel is kept.
    asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
    return replace(run, cancel_requested_at=asked_at, error=why)
