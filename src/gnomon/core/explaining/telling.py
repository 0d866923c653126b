"""Putting an explanation together from what the others know."""

from gnomon.core.explaining.ahead import undecided
from gnomon.core.explaining.changes import change_at, made_up_at
from gnomon.core.explaining.decided import decided
from gnomon.core.explaining.evidence import Evidence, Explanation, Kind, Ran, Subject
from gnomon.core.explaining.runs import fate
from gnomon.core.explaining.silence import Silence
from gnomon.core.explaining.starts import happened, started
from gnomon.core.explaining.waits import waits
from gnomon.core.explaining.words import Clocks
from gnomon.core.model import Reason

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
    return Kind.NO_TICK, *Silence(evidence, subject, clocks, now=now).told()


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
