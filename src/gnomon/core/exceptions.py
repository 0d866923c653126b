"""Exceptions: what an operator says about one coming tick, checked against what is planned."""

from msgspec.structs import replace

from gnomon.core.instants import instant_of
from gnomon.core.model import Schedule, Spec, TickException
from gnomon.core.ticks import Ticks
from gnomon.errors import FieldError

#: How many ticks of one schedule may be excepted at a time.
MOST = 100


def excepted(schedule: Schedule, at: int, *, move_to: int | None, now: int) -> Spec:
    """The spec with one more tick skipped, or moved; FieldError if there is no such tick, or no such place."""
    since, spec = max(schedule.mark_at, now), schedule.spec
    ticks = Ticks(schedule.schedule_id, spec)
    told = {one.planned_at: one for one in spec.exceptions}
    if at in told and told[at].moved_to == move_to:
        return spec
    _refuse_unplanned(ticks, at, since)
    if at in told:
        raise FieldError("at", _said(at), "is skipped or moved already: undo that first")
    if move_to is not None:
        _refuse_misplaced(spec, ticks, move_to, since)
    kept = [one for one in spec.exceptions if max(one.planned_at, one.moved_to or 0) > since]
    if len(kept) >= MOST:
        raise FieldError("at", _said(at), f"would be one too many: {MOST} coming ticks are skipped or moved already")
    return _with(spec, [*kept, TickException(at, move_to)])


def unexcepted(schedule: Schedule, at: int, *, now: int) -> Spec:
    """The spec without what was said about one tick; FieldError if nothing was, or if it is too late."""
    since, told = max(schedule.mark_at, now), {one.planned_at: one for one in schedule.spec.exceptions}
    undone = told.pop(at, None)
    if undone is None:
        raise FieldError("at", _said(at), "is neither skipped nor moved")
    if undone.moved_to in told:
        raise FieldError("at", _said(at), "was moved to a tick that is itself skipped or moved: undo that first")
    if min(at, undone.moved_to or at) <= since:
        raise FieldError("at", _said(at), "has been decided")
    return _with(schedule.spec, list(told.values()))


def fitting(current: Spec, said: Spec) -> tuple[TickException, ...]:
    """Those of the current exceptions that make sense with what is said now: all of them, if it plans the same."""
    if (current.trigger, current.start_at, current.end_at) == (said.trigger, said.start_at, said.end_at):
        return current.exceptions
    planned, found = Ticks("", replace(said, exceptions=())), list[TickException]()
    left = list(current.exceptions)
    # One may be about a tick to which another has moved something.
    while fit := [one for one in left if _fits(said, planned, found, one)]:
        found += fit
        left = [one for one in left if one not in fit]
    return _with(said, found).exceptions


def _fits(said: Spec, planned: Ticks, found: list[TickException], one: TickException) -> bool:
    there = planned.up_to(one.planned_at) == one.planned_at or any(one.planned_at == other.moved_to for other in found)
    to = one.moved_to
    return there and (to is None or (_inside(said, to) and planned.up_to(to) != to))


def _with(spec: Spec, exceptions: list[TickException]) -> Spec:
    return replace(spec, exceptions=tuple(sorted(exceptions, key=lambda one: one.planned_at)))


def _refuse_unplanned(ticks: Ticks, at: int, since: int) -> None:
    if at <= since:
        raise FieldError("at", _said(at), "is over: only a tick that is to come can be skipped or moved")
    if ticks.up_to(at) == at:
        return
    before, behind = ticks.up_to(at), ticks.after(at)
    near = [f"the one before is at {_said(before)}"] if before is not None and before > since else []
    near += [f"the next is at {_said(behind)}"] if behind is not None else []
    raise FieldError("at", _said(at), f"is no planned time: {', '.join(near) or 'nothing is planned'}")


def _refuse_misplaced(spec: Spec, ticks: Ticks, move_to: int, since: int) -> None:
    if move_to <= since:
        raise FieldError("move_to", _said(move_to), "is over")
    if not _inside(spec, move_to):
        raise FieldError("move_to", _said(move_to), "lies outside the time in which the job is active")
    if ticks.up_to(move_to) == move_to:
        raise FieldError("move_to", _said(move_to), "is a planned time already")


def _inside(spec: Spec, at: int) -> bool:
    return (spec.start_at is None or at >= spec.start_at) and (spec.end_at is None or at < spec.end_at)


def _said(at: int) -> str:
    return instant_of(at).isoformat()
