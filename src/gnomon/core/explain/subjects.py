"""The subjects of an explanation: the ticks, runs and events at a moment, the latest ones, or the next tick."""

from collections.abc import Sequence

from gnomon.core.explain.evidence import EventEvidence, ExplainedSubject, JobEvidence, ScheduleTimeline
from gnomon.core.explain.no_tick import made_up_fire_at
from gnomon.core.ids import run_id
from gnomon.core.ledger.plan import paused_range, plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Decision, Reason, Run, Tick
from gnomon.core.time_expressions import TimeRange, exact_time_range

#: The largest number of subjects that are explained for one moment.
MAX_SUBJECTS = 10
_COUNTED = 1000
#: The reasons whose sentences name other runs or ticks.
_TOLD_BY_OTHERS = frozenset(
    (Reason.BEHIND_A_RUN, Reason.REPLACES_A_RUN, Reason.OVERLAP, Reason.QUEUE_FULL, Reason.NEWER_TICK)
)


def subjects_at(evidence: JobEvidence, moment: TimeRange, *, now: int) -> tuple[tuple[ExplainedSubject, ...], int]:
    """The subjects at that moment, oldest first, or the moment itself; and the number of further subjects."""
    fired = _made_up_for(evidence.timeline, moment)
    if fired is None:
        return (ExplainedSubject(at=moment.first_at, moment=moment),), 0
    ticks = _ticks_at(evidence, fired, now)
    events = [_event_subject(evidence, event) for event in evidence.events if _within(fired, event.event.emitted_at)]
    runs = [run for run in _runs_besides(evidence, (*ticks, *events)) if _within(fired, run.at)]
    found = sorted((*ticks, *events, *runs), key=lambda subject: subject.at)
    return tuple(found[:MAX_SUBJECTS]) or (ExplainedSubject(at=moment.first_at, moment=moment),), max(
        0, len(found) - MAX_SUBJECTS
    )


def _runs_besides(evidence: JobEvidence, subjects: Sequence[ExplainedSubject]) -> list[ExplainedSubject]:
    """The runs that no tick or event among the subjects started."""
    covered = {subject.run.run_id for subject in subjects if subject.run is not None}
    return [ExplainedSubject(at=run.planned_at, run=run) for run in evidence.runs if run.run_id not in covered]


def _made_up_for(timeline: ScheduleTimeline, moment: TimeRange) -> TimeRange | None:
    """The moment; for a time that clocks skipped, the time at which its ticks fire instead, if they do."""
    if moment.skipped is None:
        return moment
    at = made_up_fire_at(timeline.version_at(moment.first_at).spec.trigger, moment.first_at)
    return None if at is None else TimeRange(at, at, moment.skipped)


def _ticks_at(evidence: JobEvidence, moment: TimeRange, now: int) -> list[ExplainedSubject]:
    timeline = evidence.timeline
    planned = timeline.planned(moment.first_at, moment.last_at, most=_COUNTED)
    undecided = pending_decisions(timeline, now=now)
    skipped = moment if moment.skipped else None
    found = []
    for at in planned:
        entry = next((tick for tick in evidence.ticks if _covers(tick.decision, at)), None)
        decision = entry.decision if entry else next((each for each in undecided if _covers(each, at)), None)
        run = _run_of(evidence, (entry and entry.run_id) or run_id(timeline.schedule.uid, at))
        found.append(ExplainedSubject(at=at, decision=decision, entry=entry, run=run, planned=True, moment=skipped))
    # Entries at other times: the time zone data may have differed when they were decided.
    others = [tick for tick in evidence.ticks if _within(moment, tick.decision.planned_at) and tick.decision.count == 1]
    return found + [_tick_subject(evidence, tick) for tick in others if tick.decision.planned_at not in planned]


def subjects_last(evidence: JobEvidence, limit: int, *, now: int) -> tuple[ExplainedSubject, ...]:
    """The latest ticks, runs without a tick, and events, newest first; then older ones whose runs are still open."""
    undecided = [
        ExplainedSubject(at=decision.last_at, decision=decision, planned=True)
        for decision in pending_decisions(evidence.timeline, now=now)
    ]
    ticks = [_tick_subject(evidence, tick) for tick in evidence.ticks]
    events = [_event_subject(evidence, event) for event in evidence.events]
    runs = _runs_besides(evidence, (*ticks, *events))
    everything = sorted((*undecided, *ticks, *events, *runs), key=lambda subject: subject.at, reverse=True)
    still_open = [subject for subject in everything[limit:] if subject.run is not None and not subject.run.over]
    return (*everything[:limit], *still_open[:MAX_SUBJECTS])


def newest_is_settled(evidence: JobEvidence, subjects: Sequence[ExplainedSubject], *, each: int) -> bool:
    """Whether more than these `each` newest ticks and runs could change neither the newest subject nor its sentence."""
    all_ticks, all_runs = len(evidence.ticks) < each, len(evidence.runs) < each
    if all_ticks and all_runs:
        return True
    top = subjects[0]
    decision, entry = top.decision, top.entry
    # After a correction ticks may lie within what was decided together. Without a decision it is a run or an event.
    if decision is None or decision.reason in _TOLD_BY_OTHERS or evidence.timeline.schedule.mark_correction is not None:
        return False
    if not all_runs and evidence.runs[-1].planned_at > top.at:
        return False
    if entry is None:
        return decision.reason is Reason.PAUSED
    return entry.run_id is None or top.run is not None


def next_subject(evidence: JobEvidence, *, now: int) -> ExplainedSubject:
    """The next tick; without one, the present moment, whose explanation says why."""
    at = _delayed_by_jitter(evidence.timeline, now) or _next(evidence.timeline, now)
    return (
        ExplainedSubject(at=now, moment=exact_time_range(now)) if at is None else ExplainedSubject(at=at, planned=True)
    )


def _next(timeline: ScheduleTimeline, now: int) -> int | None:
    return None if timeline.deleted_at is not None else timeline.after(max(now, timeline.schedule.mark_at))


def _delayed_by_jitter(timeline: ScheduleTimeline, now: int) -> int | None:
    """The tick whose planned time is over, but whose jitter makes it fire later."""
    last = timeline.before(now + 1)
    if timeline.deleted_at is not None or timeline.paused or last is None or last <= timeline.schedule.mark_at:
        return None
    return last if Ticks(timeline.schedule.schedule_id, timeline.schedule.spec).fire_at(last) > now else None


def pending_decisions(timeline: ScheduleTimeline, *, now: int) -> Sequence[Decision]:
    """The decisions that the scheduler would take now on the ticks without an entry in the ledger."""
    if timeline.deleted_at is not None:
        return ()
    if timeline.paused:
        return paused_range(timeline.schedule, until=now)
    return plan(timeline.schedule, now=now, limit=timeline.catchup_limit).decisions


def _tick_subject(evidence: JobEvidence, entry: Tick) -> ExplainedSubject:
    run = None if entry.run_id is None else _run_of(evidence, entry.run_id)
    return ExplainedSubject(at=entry.decision.last_at, decision=entry.decision, entry=entry, run=run, planned=True)


def _event_subject(evidence: JobEvidence, event: EventEvidence) -> ExplainedSubject:
    started = None if event.entry is None else event.entry.run_id
    run = None if started is None else _run_of(evidence, started)
    return ExplainedSubject(at=event.event.emitted_at, event_evidence=event, run=run)


def _run_of(evidence: JobEvidence, started: str) -> Run | None:
    return next((run for run in evidence.runs if run.run_id == started), None)


def _covers(decision: Decision, at: int) -> bool:
    return decision.planned_at <= at <= decision.last_at


def _within(moment: TimeRange, at: int) -> bool:
    return moment.first_at <= at <= moment.last_at
