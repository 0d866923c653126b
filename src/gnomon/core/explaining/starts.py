"""Runs that no tick asked for, and events: who or what started them, or why nothing came of it."""

from collections.abc import Mapping

from gnomon.core.explaining.decided import paused_words
from gnomon.core.explaining.evidence import Evidence, Happening, Kind
from gnomon.core.explaining.words import Clocks, when
from gnomon.core.happenings import EntryKind
from gnomon.core.model import Run, Source
from gnomon.core.triggers import OnEvent

#: Who wanted it.
STARTED: Mapping[Source, str] = {
    Source.MANUAL: "{who} triggered it.",
    Source.API: "It was started through the API, for {who}.",
    Source.EVENT: "Events started it.",
    Source.CRON: "A tick started it.",
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
