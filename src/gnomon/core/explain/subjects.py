"""What there is to explain: at a moment, or last of all."""

from collections.abc import Sequence

from gnomon.core.explain.evidence import EventEvidence, ExplainedSubject, JobEvidence, ScheduleTimeline
from gnomon.core.explain.no_tick import made_up_fire_at
from gnomon.core.ids import run_id
from gnomon.core.ledger.plan import paused_range, plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Decision, Run, Tick
from gnomon.core.time_expressions import TimeRange, exact_time_range

#: Of how many ticks of one moment it is told why.
MAX_SUBJECTS = 10
_COUNTED = 1000


def subjects_at(evidence: JobEvidence, moment: TimeRange, *, now: int) -> tuple[tuple[ExplainedSubject, ...], int]:
    """Everything at that moment, oldest first, or the moment itself; and how much more there is than is told."""
    asked = _made_up_for(evidence.life, moment)
    if asked is None:
        return (ExplainedSubject(at=moment.first_at, moment=moment),), 0
    ticks = _ticks_at(evidence, asked, now)
    happened = [_happened(evidence, one) for one in evidence.events if _within(asked, one.event.emitted_at)]
    told = {one.run.run_id for one in (*ticks, *happened) if one.run is not None}
    wanted = [
        ExplainedSubject(at=run.planned_at, run=run)
        for run in evidence.runs
        if _within(asked, run.planned_at) and run.run_id not in told
    ]
    found = sorted((*ticks, *happened, *wanted), key=lambda one: one.at)
    return tuple(found[:MAX_SUBJECTS]) or (ExplainedSubject(at=moment.first_at, moment=moment),), max(
        0, len(found) - MAX_SUBJECTS
    )


def _made_up_for(life: ScheduleTimeline, moment: TimeRange) -> TimeRange | None:
    """The moment; of a time that clocks skipped, the one at which its ticks fire instead, if they do."""
    if moment.skipped is None:
        return moment
    at = made_up_fire_at(life.version_at(moment.first_at).spec.trigger, moment.first_at)
    return None if at is None else TimeRange(at, at, moment.skipped)


def _ticks_at(evidence: JobEvidence, moment: TimeRange, now: int) -> list[ExplainedSubject]:
    life = evidence.life
    planned = life.planned(moment.first_at, moment.last_at, most=_COUNTED)
    undecided = pending_decisions(life, now=now)
    kept = moment if moment.skipped else None
    found = []
    for at in planned:
        entry = next((one for one in evidence.ticks if _covers(one.decision, at)), None)
        decision = entry.decision if entry else next((one for one in undecided if _covers(one, at)), None)
        run = _run_of(evidence, (entry and entry.run_id) or run_id(life.schedule.uid, at))
        found.append(ExplainedSubject(at=at, decision=decision, entry=entry, run=run, planned=True, moment=kept))
    # The zone data may have been other data when they were decided.
    others = [one for one in evidence.ticks if _within(moment, one.decision.planned_at) and one.decision.count == 1]
    return found + [_entered(evidence, one) for one in others if one.decision.planned_at not in planned]


def subjects_last(evidence: JobEvidence, limit: int, *, now: int) -> tuple[ExplainedSubject, ...]:
    """The last ticks, runs without a tick, and events, newest first; and those before them whose runs go on."""
    undecided = [
        ExplainedSubject(at=one.last_at, decision=one, planned=True)
        for one in pending_decisions(evidence.life, now=now)
    ]
    ticks = [_entered(evidence, one) for one in evidence.ticks]
    happened = [_happened(evidence, one) for one in evidence.events]
    told = {one.run.run_id for one in (*ticks, *happened) if one.run is not None}
    wanted = [ExplainedSubject(at=run.planned_at, run=run) for run in evidence.runs if run.run_id not in told]
    everything = sorted((*undecided, *ticks, *happened, *wanted), key=lambda one: one.at, reverse=True)
    going_on = [one for one in everything[limit:] if one.run is not None and not one.run.over]
    return (*everything[:limit], *going_on[:MAX_SUBJECTS])


def next_subject(evidence: JobEvidence, *, now: int) -> ExplainedSubject:
    """The next tick that is still to come; without one, the present moment, which says why."""
    at = _put_off(evidence.life, now) or _next(evidence.life, now)
    return (
        ExplainedSubject(at=now, moment=exact_time_range(now)) if at is None else ExplainedSubject(at=at, planned=True)
    )


def _next(life: ScheduleTimeline, now: int) -> int | None:
    return None if life.deleted_at is not None else life.after(max(now, life.schedule.mark_at))


def _put_off(life: ScheduleTimeline, now: int) -> int | None:
    """The tick whose planned time is over and whose jitter makes it fire later."""
    last = life.before(now + 1)
    if life.deleted_at is not None or life.paused or last is None or last <= life.schedule.mark_at:
        return None
    return last if Ticks(life.schedule.schedule_id, life.schedule.spec).fire_at(last) > now else None


def pending_decisions(life: ScheduleTimeline, *, now: int) -> Sequence[Decision]:
    """What would become of the ticks that have no entry in the ledger yet, if someone decided them now."""
    if life.deleted_at is not None:
        return ()
    if life.paused:
        return paused_range(life.schedule, until=now)
    return plan(life.schedule, now=now).decisions


def _entered(evidence: JobEvidence, entry: Tick) -> ExplainedSubject:
    run = None if entry.run_id is None else _run_of(evidence, entry.run_id)
    return ExplainedSubject(at=entry.decision.last_at, decision=entry.decision, entry=entry, run=run, planned=True)


def _happened(evidence: JobEvidence, one: EventEvidence) -> ExplainedSubject:
    started = None if one.entry is None else one.entry.run_id
    run = None if started is None else _run_of(evidence, started)
    return ExplainedSubject(at=one.event.emitted_at, event_evidence=one, run=run)


def _run_of(evidence: JobEvidence, wanted: str) -> Run | None:
    return next((run for run in evidence.runs if run.run_id == wanted), None)


def _covers(decision: Decision, at: int) -> bool:
    return decision.planned_at <= at <= decision.last_at


def _within(moment: TimeRange, at: int) -> bool:
    return moment.first_at <= at <= moment.last_at
