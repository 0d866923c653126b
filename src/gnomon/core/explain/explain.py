"""Runs that no tick asked for, and events: who or what started them, or why nothing came of it."""

from collections.abc import Mapping

from gnomon.core.explain.evidence import Evidence, Explanation, Happening, Kind, Ran, Subject
from gnomon.core.explain.no_tick import FORGOTTEN, Silence, change_at, made_up_at
from gnomon.core.explain.phrases import Clocks, when
from gnomon.core.explain.runs import fate
from gnomon.core.explain.ticks import decided, paused_words, undecided
from gnomon.core.explain.waits import waits
from gnomon.core.model import Reason, Run, Source
from gnomon.core.runs.external_events import EntryKind
from gnomon.core.triggers import OnEvent

#: Who wanted it.
STARTED: Mapping[Source, str] = {
    Source.MANUAL: "{who} triggered it.",
    Source.API: "It was started through the API, for {who}.",
    Source.EVENT: "Events started it.",
    Source.CRON: "A tick started it.",
    Source.BACKFILL: "It made up for a planned time of the past, because {who} wanted that.",
}
#: What became of an event, by its entry.
HAPPENED: Mapping[tuple[EntryKind, str], str] = {
    (EntryKind.FIRED, "matched"): "started it",
    (EntryKind.QUEUED, "behind_a_run"): "queued a run: another was under way, and overlap is {overlap}",
    (EntryKind.GATHERED, "waits_for_others"): "waits for others: the job runs {schedule}",
    (EntryKind.SKIPPED, "paused"): "started nothing: {paused}",
    (EntryKind.SKIPPED, "outside_window"): "started nothing: the job is active only {window}",
    (EntryKind.SKIPPED, "where"): "started nothing: the job waits only for those with {where}",
    (EntryKind.SKIPPED, "overlap"): "started nothing: another run was under way, and overlap is skip",
    (EntryKind.SKIPPED, "queue_full"): "started nothing: {limit} runs waited already, as many as queue_limit allows",
    (EntryKind.SKIPPED, "gone"): "started nothing: the job was deleted before the events that it waited for were over",
}
_KINDS = {
    EntryKind.FIRED: Kind.FIRED,
    EntryKind.QUEUED: Kind.QUEUED,
    EntryKind.GATHERED: Kind.GATHERED,
    EntryKind.SKIPPED: Kind.SKIPPED,
}


def started(run: Run) -> tuple[str, str]:
    """The reason and the sentence of a run without a tick."""
    who = run.user_id or "someone"
    if run.replay_of is not None:
        return "replay", f"{who} replayed the dead letter {run.replay_of}."
    return run.source.value, STARTED[run.source].format(who=who)


def happened(evidence: Evidence, one: Happening, clocks: Clocks) -> tuple[Kind, str, str]:
    """The kind, the reason and the sentence of an event."""
    event = f"The event {one.event.name}, emitted by {one.event.actor},"
    entry = one.entry
    if entry is None:
        return Kind.SKIPPED, "not_listening", f"{event} started nothing: the job did not listen to it then."
    spec = evidence.life.version_at(one.event.emitted_at).spec
    told = HAPPENED[entry.kind, entry.reason].format(
        overlap=spec.overlap,
        schedule=spec.trigger.describe(),
        paused=paused_words(evidence, one.event.emitted_at, clocks),
        window=active_window(spec.start_at, spec.end_at, clocks.zone),
        where=spec.trigger.where if isinstance(spec.trigger, OnEvent) else "",
        limit=spec.queue_limit,
    )
    return _KINDS[entry.kind], entry.reason, f"{event} {told}."


def active_window(start_at: int | None, end_at: int | None, zone: str) -> str:
    """From when to when a schedule has ticks, if it says so."""
    if start_at is None and end_at is None:
        return "at all times"
    start = "" if start_at is None else f"from {when(start_at, zone)} on"
    end = "" if end_at is None else f"before {when(end_at, zone)}"
    return " and ".join(filter(None, (start, end)))


_NOTHING = Ran()


def explained(evidence: Evidence, subject: Subject, *, now: int) -> Explanation:
    """What became of the subject, and why."""
    life, run, entry = evidence.life, subject.run, subject.entry
    version = life.version_at(subject.at) if entry is None else life.version(entry.revision)
    clocks = Clocks(version.spec.timezone, subject.at)
    kind, reason, sentence = _told(evidence, subject, clocks, now)
    ran = _NOTHING if run is None else evidence.ran.get(run.run_id, _NOTHING)
    if run is not None:
        sentence = f"{sentence} {fate(run, ran, clocks, now=now)}"
    elif subject.started is not None:
        sentence = f"{sentence} Its run {subject.started} is no longer kept."
    silent = kind is Kind.NO_TICK
    return Explanation(
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
        waits=() if run is None else tuple(waits(evidence, run, clocks, now=now)),
    )


def _told(evidence: Evidence, subject: Subject, clocks: Clocks, now: int) -> tuple[Kind, str, str]:
    if subject.happening is not None:
        return happened(evidence, subject.happening, clocks)
    if subject.planned:
        return _of_a_tick(evidence, subject, clocks, now)
    if subject.run is not None:
        return Kind.STARTED, *started(subject.run)
    reason, sentence = Silence(evidence, subject, clocks, now=now).told()
    return Kind.UNKNOWN if reason == FORGOTTEN else Kind.NO_TICK, reason, sentence


def _of_a_tick(evidence: Evidence, subject: Subject, clocks: Clocks, now: int) -> tuple[Kind, str, str]:
    decision = subject.decision
    # What a pause swallows is certain before it is written down; anything else is not.
    certain = subject.entry is not None or (decision is not None and decision.reason is Reason.PAUSED)
    if decision is None or not certain:
        kind, reason, sentence = undecided(evidence, subject, clocks, now=now)
    else:
        kind, reason = Kind(decision.kind.value), decision.reason.value
        sentence = decided(evidence, subject, decision, clocks, now=now)
    return kind, reason, sentence + _made_up_for(evidence, subject) + _said_then(evidence, subject)


def _said_then(evidence: Evidence, subject: Subject) -> str:
    """What the schedule said, if it says something else by now."""
    life = evidence.life
    version = life.version_at(subject.at) if subject.entry is None else life.version(subject.entry.revision)
    then = version.spec.trigger.describe()
    if then == life.versions[-1].spec.trigger.describe():
        return ""
    return f" The schedule said {then} then (revision {version.revision})."


def _made_up_for(evidence: Evidence, subject: Subject) -> str:
    """That it stands for times that clocks skipped."""
    trigger = evidence.life.version_at(subject.at).spec.trigger
    change = change_at(trigger, subject.at)
    if change is None or subject.at != made_up_at(trigger, subject.at):
        return ""
    return f" It stands for a time that was skipped; {change.describe()}."
