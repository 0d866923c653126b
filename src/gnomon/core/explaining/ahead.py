"""Ticks without an entry in the ledger: those to come, those that nobody has decided, and those whose entry is gone."""

from gnomon.core.durations import span_text
from gnomon.core.explaining.decided import others, paused_words
from gnomon.core.explaining.evidence import Evidence, Kind, Subject
from gnomon.core.explaining.words import PATIENCE_MS, Clocks
from gnomon.core.model import Overlap, TickKind
from gnomon.core.ticks import Ticks

_WOULD = {
    TickKind.FIRED: "fire",
    TickKind.QUEUED: "be queued",
    TickKind.SKIPPED: "be skipped",
    TickKind.COALESCED: "be left to a newer tick",
    TickKind.MISSED: "be missed",
}
#: What may become of it because of the runs that are under way.
_IF_NOT_OVER = {
    Overlap.SKIP: "it is skipped",
    Overlap.QUEUE: "it is queued behind that",
    Overlap.REPLACE: "it replaces that",
}


def undecided(evidence: Evidence, subject: Subject, clocks: Clocks, *, now: int) -> tuple[Kind, str, str]:
    """The kind, the reason and the sentence of a tick that has no entry."""
    life = evidence.life
    if life.deleted_at is not None or subject.at <= life.schedule.mark_at:
        return Kind.UNKNOWN, "no_entry", "It was planned, but its entry is no longer in the ledger."
    if life.paused:
        paused = paused_words(evidence, subject.at, clocks)
        return Kind.HELD, "paused", f"It will not fire: {paused}."
    fire_at = Ticks(life.schedule.schedule_id, life.schedule.spec).fire_at(subject.at)
    if fire_at > now:
        return Kind.COMING, "planned", _coming(evidence, subject, clocks, fire_at, now)
    return Kind.OVERDUE, "undecided", _overdue(subject, clocks, fire_at, now)


def _coming(evidence: Evidence, subject: Subject, clocks: Clocks, fire_at: int, now: int) -> str:
    told = f"It will fire in {span_text(fire_at - now)}"
    told += "." if fire_at == subject.at else f": its jitter moves it to {clocks(fire_at)}."
    spec = evidence.life.schedule.spec
    under_way = [run for run in evidence.runs if not run.over]
    if not under_way or spec.overlap is Overlap.ALLOW:
        return told
    return f"{told} If {under_way[-1].run_id} is still under way then, {_IF_NOT_OVER[spec.overlap]}."


def _overdue(subject: Subject, clocks: Clocks, fire_at: int, now: int) -> str:
    late = now - fire_at
    told = f"Its time came {span_text(late)} ago, and no scheduler has decided it yet"
    told += ": is gnomon up running?" if late > PATIENCE_MS else "."
    decision = subject.decision
    if decision is None:
        return told
    return f"{told} Decided now, it would {_WOULD[decision.kind]}.{others(decision, clocks)}"
