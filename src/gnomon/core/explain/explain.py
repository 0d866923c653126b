"""Runs that no tick asked for, and events: who or what started them, or why nothing came of it."""

from collections.abc import Mapping

from gnomon.core.explain.evidence import (
    EventEvidence,
    ExplainedSubject,
    ExplanationKind,
    JobEvidence,
    RunEvidence,
    SubjectExplanation,
)
from gnomon.core.explain.no_tick import REASON_REMOVED, NoTickExplainer, clock_change_at, made_up_fire_at
from gnomon.core.explain.phrases import TimeFormatter, instant_phrase
from gnomon.core.explain.runs import explain_run
from gnomon.core.explain.ticks import explain_decision, explain_pause, explain_undecided
from gnomon.core.explain.waits import explain_waits
from gnomon.core.model import Reason, Run, Source
from gnomon.core.runs.external_events import EventEffectKind
from gnomon.core.triggers import OnEvent

#: Who wanted it.
START_SENTENCES: Mapping[Source, str] = {
    Source.MANUAL: "{who} triggered it.",
    Source.API: "It was started through the API, for {who}.",
    Source.EVENT: "Events started it.",
    Source.CRON: "A tick started it.",
    Source.BACKFILL: "It made up for a planned time of the past, because {who} wanted that.",
}
#: What became of an event, by its entry.
EVENT_SENTENCES: Mapping[tuple[EventEffectKind, str], str] = {
    (EventEffectKind.FIRED, "matched"): "started it",
    (EventEffectKind.QUEUED, "behind_a_run"): "queued a run: another was under way, and overlap is {overlap}",
    (EventEffectKind.GATHERED, "waits_for_others"): "waits for others: the job runs {schedule}",
    (EventEffectKind.SKIPPED, "paused"): "started nothing: {paused}",
    (EventEffectKind.SKIPPED, "outside_window"): "started nothing: the job is active only {window}",
    (EventEffectKind.SKIPPED, "where"): "started nothing: the job waits only for those with {where}",
    (EventEffectKind.SKIPPED, "overlap"): "started nothing: another run was under way, and overlap is skip",
    (
        EventEffectKind.SKIPPED,
        "queue_full",
    ): "started nothing: {limit} runs waited already, as many as queue_limit allows",
    (
        EventEffectKind.SKIPPED,
        "gone",
    ): "started nothing: the job was deleted before the events that it waited for were over",
}
_KINDS = {
    EventEffectKind.FIRED: ExplanationKind.FIRED,
    EventEffectKind.QUEUED: ExplanationKind.QUEUED,
    EventEffectKind.GATHERED: ExplanationKind.GATHERED,
    EventEffectKind.SKIPPED: ExplanationKind.SKIPPED,
}


def explain_start(run: Run) -> tuple[str, str]:
    """The reason and the sentence of a run without a tick."""
    who = run.user_id or "someone"
    if run.replay_of is not None:
        return "replay", f"{who} replayed the dead letter {run.replay_of}."
    return run.source.value, START_SENTENCES[run.source].format(who=who)


def explain_event(evidence: JobEvidence, one: EventEvidence, clocks: TimeFormatter) -> tuple[ExplanationKind, str, str]:
    """The kind, the reason and the sentence of an event."""
    event = f"The event {one.event.name}, emitted by {one.event.actor},"
    entry = one.entry
    if entry is None:
        return ExplanationKind.SKIPPED, "not_listening", f"{event} started nothing: the job did not listen to it then."
    spec = evidence.life.version_at(one.event.emitted_at).spec
    told = EVENT_SENTENCES[entry.kind, entry.reason].format(
        overlap=spec.overlap,
        schedule=spec.trigger.describe(),
        paused=explain_pause(evidence, one.event.emitted_at, clocks),
        window=format_active_window(spec.start_at, spec.end_at, clocks.zone),
        where=spec.trigger.where if isinstance(spec.trigger, OnEvent) else "",
        limit=spec.queue_limit,
    )
    return _KINDS[entry.kind], entry.reason, f"{event} {told}."


def format_active_window(start_at: int | None, end_at: int | None, zone: str) -> str:
    """From when to when a schedule has ticks, if it says so."""
    if start_at is None and end_at is None:
        return "at all times"
    start = "" if start_at is None else f"from {instant_phrase(start_at, zone)} on"
    end = "" if end_at is None else f"before {instant_phrase(end_at, zone)}"
    return " and ".join(filter(None, (start, end)))


_NOTHING = RunEvidence()


def explain_subject(evidence: JobEvidence, subject: ExplainedSubject, *, now: int) -> SubjectExplanation:
    """What became of the subject, and why."""
    life, run, entry = evidence.life, subject.run, subject.entry
    version = life.version_at(subject.at) if entry is None else life.version(entry.revision)
    clocks = TimeFormatter(version.spec.timezone, subject.at)
    kind, reason, sentence = _explanation_parts(evidence, subject, clocks, now)
    ran = _NOTHING if run is None else evidence.ran.get(run.run_id, _NOTHING)
    if run is not None:
        sentence = f"{sentence} {explain_run(run, ran, clocks, now=now)}"
    elif subject.started is not None:
        sentence = f"{sentence} Its run {subject.started} is no longer kept."
    silent = kind is ExplanationKind.NO_TICK
    return SubjectExplanation(
        at=subject.at,
        kind=kind,
        reason=reason,
        sentence=sentence,
        timezone=version.spec.timezone,
        schedule=version.spec.trigger.describe(),
        revision=version.revision,
        decision=None if entry is None else entry.decision,
        decided_at=None if entry is None else entry.decided_at,
        previous_at=life.before(subject.at) if silent else None,
        next_at=life.after(subject.at if subject.moment is None else subject.moment.last_at) if silent else None,
        run=run,
        tasks=ran.tasks,
        attempts=ran.attempts,
        waits=() if run is None else tuple(explain_waits(evidence, run, clocks, now=now)),
    )


def _explanation_parts(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, now: int
) -> tuple[ExplanationKind, str, str]:
    if subject.event_evidence is not None:
        return explain_event(evidence, subject.event_evidence, clocks)
    if subject.planned:
        return _tick_explanation(evidence, subject, clocks, now)
    if subject.run is not None:
        return ExplanationKind.STARTED, *explain_start(subject.run)
    reason, sentence = NoTickExplainer(evidence, subject, clocks, now=now).told()
    return ExplanationKind.UNKNOWN if reason == REASON_REMOVED else ExplanationKind.NO_TICK, reason, sentence


def _tick_explanation(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, now: int
) -> tuple[ExplanationKind, str, str]:
    decision = subject.decision
    # What a pause swallows is certain before it is written down; anything else is not.
    certain = subject.entry is not None or (decision is not None and decision.reason is Reason.PAUSED)
    if decision is None or not certain:
        kind, reason, sentence = explain_undecided(evidence, subject, clocks, now=now)
    else:
        kind, reason = ExplanationKind(decision.kind.value), decision.reason.value
        sentence = explain_decision(evidence, subject, decision, clocks, now=now)
    return kind, reason, sentence + _made_up_for(evidence, subject) + _schedule_text(evidence, subject)


def _schedule_text(evidence: JobEvidence, subject: ExplainedSubject) -> str:
    """What the schedule said, if it says something else by now."""
    life = evidence.life
    version = life.version_at(subject.at) if subject.entry is None else life.version(subject.entry.revision)
    then = version.spec.trigger.describe()
    if then == life.versions[-1].spec.trigger.describe():
        return ""
    return f" The schedule said {then} then (revision {version.revision})."


def _made_up_for(evidence: JobEvidence, subject: ExplainedSubject) -> str:
    """That it stands for times that clocks skipped."""
    trigger = evidence.life.version_at(subject.at).spec.trigger
    change = clock_change_at(trigger, subject.at)
    if change is None or subject.at != made_up_fire_at(trigger, subject.at):
        return ""
    return f" It stands for a time that was skipped; {change.describe()}."
