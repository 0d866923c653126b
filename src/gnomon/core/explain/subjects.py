"""What there is to explain: at a moment, or last of all."""

from collections.abc import Sequence

from gnomon.core.explain.evidence import Evidence, Happening, Life, Subject
from gnomon.core.explain.no_tick import made_up_at
from gnomon.core.ids import run_id
from gnomon.core.ledger.plan import paused_range, plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Decision, Run, Tick
from gnomon.core.time_expressions import Moment, exactly

#: Of how many ticks of one moment it is told why.
MOST = 10
_COUNTED = 1000


def subjects_at(evidence: Evidence, moment: Moment, *, now: int) -> tuple[tuple[Subject, ...], int]:
    """Everything at that moment, oldest first, or the moment itself; and how much more there is than is told."""
    asked = _made_up_for(evidence.life, moment)
    if asked is None:
        return (Subject(at=moment.first_at, moment=moment),), 0
    ticks = _ticks_at(evidence, asked, now)
    happened = [_happened(evidence, one) for one in evidence.happenings if _within(asked, one.event.emitted_at)]
    told = {one.run.run_id for one in (*ticks, *happened) if one.run is not None}
    wanted = [
        Subject(at=run.planned_at, run=run)
        for run in evidence.runs
        if _within(asked, run.planned_at) and run.run_id not in told
    ]
    found = sorted((*ticks, *happened, *wanted), key=lambda one: one.at)
    return tuple(found[:MOST]) or (Subject(at=moment.first_at, moment=moment),), max(0, len(found) - MOST)


def _made_up_for(life: Life, moment: Moment) -> Moment | None:
    """The moment; of a time that clocks skipped, the one at which its ticks fire instead, if they do."""
    if moment.skipped is None:
        return moment
    at = made_up_at(life.version_at(moment.first_at).spec.trigger, moment.first_at)
    return None if at is None else Moment(at, at, moment.skipped)


def _ticks_at(evidence: Evidence, moment: Moment, now: int) -> list[Subject]:
    life = evidence.life
    planned = life.planned(moment.first_at, moment.last_at, most=_COUNTED)
    undecided = would_be_decided(life, now=now)
    kept = moment if moment.skipped else None
    found = []
    for at in planned:
        entry = next((one for one in evidence.ticks if _covers(one.decision, at)), None)
        decision = entry.decision if entry else next((one for one in undecided if _covers(one, at)), None)
        run = _run_of(evidence, (entry and entry.run_id) or run_id(life.schedule.uid, at))
        found.append(Subject(at=at, decision=decision, entry=entry, run=run, planned=True, moment=kept))
    # The zone data may have been other data when they were decided.
    others = [one for one in evidence.ticks if _within(moment, one.decision.planned_at) and one.decision.count == 1]
    return found + [_entered(evidence, one) for one in others if one.decision.planned_at not in planned]


def subjects_last(evidence: Evidence, limit: int, *, now: int) -> tuple[Subject, ...]:
    """The last ticks, runs without a tick, and events, newest first; and those before them whose runs go on."""
    undecided = [
        Subject(at=one.last_at, decision=one, planned=True) for one in would_be_decided(evidence.life, now=now)
    ]
    ticks = [_entered(evidence, one) for one in evidence.ticks]
    happened = [_happened(evidence, one) for one in evidence.happenings]
    told = {one.run.run_id for one in (*ticks, *happened) if one.run is not None}
    wanted = [Subject(at=run.planned_at, run=run) for run in evidence.runs if run.run_id not in told]
    everything = sorted((*undecided, *ticks, *happened, *wanted), key=lambda one: one.at, reverse=True)
    going_on = [one for one in everything[limit:] if one.run is not None and not one.run.over]
    return (*everything[:limit], *going_on[:MOST])


def coming_subject(evidence: Evidence, *, now: int) -> Subject:
    """The next tick that is still to come; without one, the present moment, which says why."""
    at = _put_off(evidence.life, now) or _next(evidence.life, now)
    return Subject(at=now, moment=exactly(now)) if at is None else Subject(at=at, planned=True)


def _next(life: Life, now: int) -> int | None:
    return None if life.deleted_at is not None else life.after(max(now, life.schedule.mark_at))


def _put_off(life: Life, now: int) -> int | None:
    """The tick whose planned time is over and whose jitter makes it fire later."""
    last = life.before(now + 1)
    if life.deleted_at is not None or life.paused or last is None or last <= life.schedule.mark_at:
        return None
    return last if Ticks(life.schedule.schedule_id, life.schedule.spec).fire_at(last) > now else None


def would_be_decided(life: Life, *, now: int) -> Sequence[Decision]:
    """What would become of the ticks that have no entry in the ledger yet, if someone decided them now."""
    if life.deleted_at is not None:
        return ()
    if life.paused:
        return paused_range(life.schedule, until=now)
    return plan(life.schedule, now=now).decisions


def _entered(evidence: Evidence, entry: Tick) -> Subject:
    run = None if entry.run_id is None else _run_of(evidence, entry.run_id)
    return Subject(at=entry.decision.last_at, decision=entry.decision, entry=entry, run=run, planned=True)


def _happened(evidence: Evidence, one: Happening) -> Subject:
    started = None if one.entry is None else one.entry.run_id
    run = None if started is None else _run_of(evidence, started)
    return Subject(at=one.event.emitted_at, happening=one, run=run)


def _run_of(evidence: Evidence, wanted: str) -> Run | None:
    return next((run for run in evidence.runs if run.run_id == wanted), None)


def _covers(decision: Decision, at: int) -> bool:
    return decision.planned_at <= at <= decision.last_at


def _within(moment: Moment, at: int) -> bool:
    return moment.first_at <= at <= moment.last_at
