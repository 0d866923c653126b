"""The explanation of one subject: a tick, a run without a tick, an event, or a moment without any of them."""

from collections.abc import Mapping

from gnomon.core.explain.evidence import (
    EventEvidence,
    ExplainedSubject,
    ExplanationKind,
    JobEvidence,
    RunEvidence,
    SubjectExplanation,
    SubjectSentence,
)
from gnomon.core.explain.no_tick import REASON_REMOVED, NoTickExplainer, clock_change_at, made_up_fire_at
from gnomon.core.explain.phrases import TimeFormatter, instant_phrase
from gnomon.core.explain.rulings import explain_rulings
from gnomon.core.explain.runs import explain_run
from gnomon.core.explain.ticks import explain_decision, explain_pause, explain_undecided
from gnomon.core.explain.waits import explain_waits
from gnomon.core.model import Reason, Run, RunSource
from gnomon.core.runs.external_events import EventEffectKind
from gnomon.core.triggers import OnEvent

_NOTHING = RunEvidence()


def explain_subject(evidence: JobEvidence, subject: ExplainedSubject, *, now: int) -> SubjectExplanation:
    """The kind, reason, sentence and facts of a subject."""
    timeline, run, entry = evidence.timeline, subject.run, subject.entry
    version = timeline.version_at(subject.at) if entry is None else timeline.version(entry.revision)
    clocks = TimeFormatter(version.spec.timezone, subject.at)
    told = _told(evidence, subject, clocks, now)
    details = _NOTHING if run is None else evidence.run_evidence.get(run.run_id, _NOTHING)
    no_tick = told.kind is ExplanationKind.NO_TICK
    return SubjectExplanation(
        at=subject.at,
        kind=told.kind,
        reason=told.reason,
        sentence=told.sentence,
        timezone=version.spec.timezone,
        schedule=version.spec.trigger.describe(),
        revision=version.revision,
        decision=None if entry is None else entry.decision,
        decided_at=None if entry is None else entry.decided_at,
        previous_at=timeline.before(subject.at) if no_tick else None,
        next_at=timeline.after(subject.at if subject.moment is None else subject.moment.last_at) if no_tick else None,
        run=run,
        tasks=details.tasks,
        attempts=details.attempts,
        waits=() if run is None else tuple(explain_waits(evidence, run, clocks, now=now)),
    )


def tell_subject(evidence: JobEvidence, subject: ExplainedSubject, *, now: int) -> SubjectSentence:
    """The kind, reason and sentence of a subject, without the facts and the waits, for which more must be known."""
    timeline, entry = evidence.timeline, subject.entry
    version = timeline.version_at(subject.at) if entry is None else timeline.version(entry.revision)
    return _told(evidence, subject, TimeFormatter(version.spec.timezone, subject.at), now)


def _told(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, now: int) -> SubjectSentence:
    run = subject.run
    kind, reason, sentence = _explanation_parts(evidence, subject, clocks, now)
    if run is not None:
        details = evidence.run_evidence.get(run.run_id, _NOTHING)
        sentence = " ".join(
            (sentence, explain_run(run, details, clocks, now=now), *explain_rulings(run, details, clocks))
        )
    elif subject.started is not None:
        sentence = f"{sentence} Its run {subject.started} is no longer kept."
    return SubjectSentence(at=subject.at, kind=kind, reason=reason, sentence=sentence)


def _explanation_parts(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, now: int
) -> tuple[ExplanationKind, str, str]:
    if subject.event_evidence is not None:
        return explain_event(evidence, subject.event_evidence, clocks)
    if subject.planned:
        return _tick_explanation(evidence, subject, clocks, now)
    if subject.run is not None:
        return ExplanationKind.STARTED, *explain_start(subject.run)
    reason, sentence = NoTickExplainer(evidence, subject, clocks, now=now).explain()
    return ExplanationKind.UNKNOWN if reason == REASON_REMOVED else ExplanationKind.NO_TICK, reason, sentence


def _tick_explanation(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, now: int
) -> tuple[ExplanationKind, str, str]:
    decision = subject.decision
    # A tick that a pause suppresses is certain before it is written; any other is not.
    certain = subject.entry is not None or (decision is not None and decision.reason is Reason.PAUSED)
    if decision is None or not certain:
        kind, reason, sentence = explain_undecided(evidence, subject, clocks, now=now)
    else:
        kind, reason = ExplanationKind(decision.kind.value), decision.reason.value
        sentence = explain_decision(evidence, subject, decision, clocks, now=now)
    remarks = _in_doubt(evidence, subject, clocks) + _made_up_for(evidence, subject)
    remarks += _mark_text(evidence, subject, clocks) + _schedule_text(evidence, subject)
    return kind, reason, sentence + remarks


def _in_doubt(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter) -> str:
    """A remark if the tick may have run before a backup was restored; empty if it was not decided to run."""
    entry = subject.entry
    if entry is None or not entry.decision.starts_run:
        return ""
    for one in evidence.restores:
        if one.in_doubt(entry.decision.planned_at, entry.decided_at):
            since = "" if one.backup_at is None else f" of {clocks(one.backup_at)}"
            restored = clocks(one.restored_at)
            why = f"a backup{since} was restored at {restored}, and the job runs at least once"
            return f" It may have run before, too: {why}."
    return ""


def _mark_text(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter) -> str:
    """A remark if the tick, or others around it, had been decided by a clock that was ahead."""
    correction = evidence.timeline.schedule.mark_correction
    if correction is None or not correction.corrected_at < subject.at <= correction.from_at:
        return ""
    ahead = "A clock that was ahead had decided the ticks"
    until = f"{ahead} up to {clocks(correction.from_at)}; it was right again at {clocks(correction.corrected_at)}"
    if subject.at in correction.decided:
        return f" {until}. This one had run by then, and does not run again."
    return f" {until}, and the decisions on ticks that had not run were withdrawn."


def _schedule_text(evidence: JobEvidence, subject: ExplainedSubject) -> str:
    """The description of the schedule at that time, if it has changed since."""
    timeline = evidence.timeline
    version = timeline.version_at(subject.at) if subject.entry is None else timeline.version(subject.entry.revision)
    then = version.spec.trigger.describe()
    if then == timeline.versions[-1].spec.trigger.describe():
        return ""
    return f" The schedule was {then} then (revision {version.revision})."


def _made_up_for(evidence: JobEvidence, subject: ExplainedSubject) -> str:
    """A remark if the tick fires instead of times that clocks skipped."""
    trigger = evidence.timeline.version_at(subject.at).spec.trigger
    change = clock_change_at(trigger, subject.at)
    if change is None or subject.at != made_up_fire_at(trigger, subject.at):
        return ""
    return f" It stands for a time that was skipped; {change.describe()}."


# ---- runs without a tick, and events -------------------------------------------------------------

#: The sentence about a run without a tick, by its source.
START_SENTENCES: Mapping[RunSource, str] = {
    RunSource.MANUAL: "{who} triggered it.",
    RunSource.API: "It was started through the API, by {who}.",
    RunSource.EVENT: "Events started it.",
    RunSource.CRON: "A tick started it.",
    RunSource.BACKFILL: "It is a backfill of a past planned time, requested by {who}.",
}
#: The sentence about an event, by the kind and reason of its effect.
EVENT_SENTENCES: Mapping[tuple[EventEffectKind, str], str] = {
    (EventEffectKind.FIRED, "matched"): "started it",
    (EventEffectKind.QUEUED, "behind_a_run"): "queued a run: another was under way, and overlap is {overlap}",
    (EventEffectKind.GATHERED, "waits_for_others"): "waits for others: the job runs {schedule}",
    (EventEffectKind.SKIPPED, "paused"): "started nothing: {paused}",
    (EventEffectKind.SKIPPED, "outside_window"): "started nothing: the job is active only {window}",
    (EventEffectKind.SKIPPED, "where"): "started nothing: the job accepts only events with {where}",
    (EventEffectKind.SKIPPED, "overlap"): "started nothing: another run was under way, and overlap is skip",
    (
        EventEffectKind.SKIPPED,
        "queue_full",
    ): "started nothing: {limit} runs were queued already, as many as queue_limit allows",
    (
        EventEffectKind.SKIPPED,
        "gone",
    ): "started nothing: the job was deleted before its batch was due",
}
_KINDS = {
    EventEffectKind.FIRED: ExplanationKind.FIRED,
    EventEffectKind.QUEUED: ExplanationKind.QUEUED,
    EventEffectKind.GATHERED: ExplanationKind.GATHERED,
    EventEffectKind.SKIPPED: ExplanationKind.SKIPPED,
}


def explain_start(run: Run) -> tuple[str, str]:
    """The reason and the sentence of a run without a tick."""
    # Runs of older programs have no actor; in those that a caller requested, the user is the caller.
    who = run.actor or run.user_id or "someone"
    if run.replay_of is not None:
        return "replay", f"{who} replayed the dead letter {run.replay_of}."
    if run.source is RunSource.CRON and run.actor:
        behalf = f", on behalf of {run.user_id}" if run.user_id not in ("", run.actor) else ""
        return run.source.value, f"{run.actor} started it with the run launcher{behalf}."
    return run.source.value, START_SENTENCES[run.source].format(who=who)


def explain_event(
    evidence: JobEvidence, found: EventEvidence, clocks: TimeFormatter
) -> tuple[ExplanationKind, str, str]:
    """The kind, the reason and the sentence of an event."""
    event, entry = found.event, found.entry
    subject = f"The event {event.name}, emitted by {event.actor},"
    if entry is None:
        return ExplanationKind.SKIPPED, "not_listening", f"{subject} started nothing: the job did not listen to it."
    spec = evidence.timeline.version_at(event.emitted_at).spec
    effect = EVENT_SENTENCES[entry.kind, entry.reason].format(
        overlap=spec.overlap,
        schedule=spec.trigger.describe(),
        paused=explain_pause(evidence, event.emitted_at, clocks),
        window=format_active_window(spec.start_at, spec.end_at, clocks.zone),
        where=spec.trigger.where if isinstance(spec.trigger, OnEvent) else "",
        limit=spec.queue_limit,
    )
    return _KINDS[entry.kind], entry.reason, f"{subject} {effect}."


def format_active_window(start_at: int | None, end_at: int | None, zone: str) -> str:
    """The active window of a schedule in words."""
    if start_at is None and end_at is None:
        return "at all times"
    start = "" if start_at is None else f"from {instant_phrase(start_at, zone)} on"
    end = "" if end_at is None else f"before {instant_phrase(end_at, zone)}"
    return " and ".join(filter(None, (start, end)))
