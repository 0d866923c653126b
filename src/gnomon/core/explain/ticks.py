"""Ticks that stand in the ledger: a sentence for every kind and reason."""

from collections.abc import Mapping

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import ExplainedSubject, ExplanationKind, JobEvidence
from gnomon.core.explain.phrases import USUAL_DELAY_MS, TimeFormatter, pluralized
from gnomon.core.explain.runs import blocking_run
from gnomon.core.ledger.edits import SYSTEM_ACTOR
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Run, Spec, TickException, TickKind

#: What each says, with what a DecidedTick knows. A test sees to it that none is forgotten.
TICK_SENTENCES: Mapping[tuple[TickKind, Reason], str] = {
    (TickKind.FIRED, Reason.ON_TIME): "It fired on time.",
    (
        TickKind.FIRED,
        Reason.LATE,
    ): "It fired {tick.late} late, within the grace of {tick.grace}: it was decided at {tick.decided}.",
    (TickKind.FIRED, Reason.CAUGHT_UP): (
        "It was made up for: nobody decided it before {tick.decided}, {tick.late} late, and catch-up is {tick.catchup}."
    ),
    (TickKind.QUEUED, Reason.BEHIND_A_RUN): "It was queued: {tick.holder} was under way, and overlap is queue.",
    (TickKind.QUEUED, Reason.REPLACES_A_RUN): (
        "It was to replace {tick.holder}, which was asked to stop: overlap is replace."
    ),
    (TickKind.SKIPPED, Reason.OVERLAP): "It was skipped: {tick.holder} was under way, and overlap is skip.{tick.ended}",
    (TickKind.SKIPPED, Reason.QUEUE_FULL): (
        "It was skipped: {tick.limit} waited already behind {tick.holder}, as many as queue_limit allows."
    ),
    (TickKind.SKIPPED, Reason.PAUSED): "It was skipped: {tick.paused}.",
    (TickKind.SKIPPED, Reason.SKIPPED_ONCE): "It was skipped: {tick.excepted_by} had said so, of this tick alone.",
    (
        TickKind.SKIPPED,
        Reason.MOVED,
    ): "It was moved{tick.moved_to}: {tick.excepted_by} had said so, of this tick alone.",
    (TickKind.COALESCED, Reason.NEWER_TICK): (
        "It was left to a newer tick: both were due when they were decided, at {tick.decided},"
        " and {tick.only_newest}.{tick.newer}"
    ),
    (TickKind.MISSED, Reason.CATCHUP_NONE): (
        "It was missed: nobody decided it before {tick.decided}, {tick.late} late;"
        " the grace is {tick.grace}, and catch-up is none."
    ),
    (TickKind.MISSED, Reason.WINDOW): (
        "It was missed: nobody decided it before {tick.decided}, {tick.late} late;"
        " catch-up is {tick.catchup}, but only for the last {tick.window}."
    ),
}
#: What is said instead of ticks that were planned during a pause and were run because whoever ended it said so.
RESUMED_SENTENCES: Mapping[TickKind, str] = {
    TickKind.FIRED: "It was made up for when the pause was over: {tick.paused}.",
    TickKind.QUEUED: "It was queued to be made up for when the pause was over: {tick.paused}.",
}


class TickFacts:
    """What a sentence about a tick can speak of, each worked out when it is spoken of."""

    def __init__(
        self, evidence: JobEvidence, subject: ExplainedSubject, decision: Decision, clocks: TimeFormatter, *, now: int
    ) -> None:
        self._evidence = evidence
        self._subject = subject
        self._decision = decision
        self._clocks = clocks
        self._decided_at = now if subject.entry is None else subject.entry.decided_at
        revision = evidence.life.schedule.revision if subject.entry is None else subject.entry.revision
        self._spec: Spec = evidence.life.version(revision).spec

    @property
    def decided(self) -> str:
        """When."""
        return self._clocks(self._decided_at)

    @property
    def late(self) -> str:
        """How long after its time that was."""
        return span_text(max(0, self._decided_at - max(self._subject.at, self._put_off_to)))

    @property
    def _put_off_to(self) -> int:
        spread = self._decision.reason is Reason.CAUGHT_UP
        return 0 if spread or self._decision.fire_at is None else self._decision.fire_at

    @property
    def grace(self) -> str:
        """Up to when it would have been late, not missed."""
        return span_text(self._spec.misfire_grace_ms)

    @property
    def window(self) -> str:
        """How far back ticks are made up for."""
        return span_text(self._spec.catchup_window_ms)

    @property
    def catchup(self) -> str:
        """What becomes of several that are due together."""
        return self._spec.catchup.value

    @property
    def limit(self) -> str:
        """How many runs may wait."""
        return pluralized(self._spec.queue_limit, "run")

    @property
    def holder(self) -> str:
        """The run that stood in its way."""
        run = self._in_the_way
        return "another run" if run is None else f"{run.run_id} (planned for {self._clocks(run.planned_at)})"

    @property
    def ended(self) -> str:
        """When that was over."""
        run = self._in_the_way
        if run is None:
            return ""
        return " It still is." if run.completed_at is None else f" That was over at {self._clocks(run.completed_at)}."

    @property
    def _in_the_way(self) -> Run | None:
        return None if self._subject.entry is None else blocking_run(self._evidence, self._subject.entry)

    @property
    def paused(self) -> str:
        """Who paused the job."""
        return explain_pause(self._evidence, self._subject.at, self._clocks)

    @property
    def made_up_for(self) -> bool:
        """Whether it was planned during a pause, and decided by whoever ended that."""
        rest = self._evidence.life.pause_at(self._subject.at)
        return self._subject.entry is not None and rest is not None and rest.until_at == self._decided_at

    @property
    def excepted_by(self) -> str:
        """Who made an exception of it."""
        said = (one for one in self._evidence.life.versions if self._exception(one.spec) is not None)
        first = next(said, None)
        return "someone" if first is None else first.by or "someone"

    @property
    def moved_to(self) -> str:
        """Where it was moved to."""
        found = self._exception(self._spec)
        return "" if found is None or found.moved_to is None else f" to {self._clocks(found.moved_to)}"

    def _exception(self, spec: Spec) -> TickException | None:
        return next((one for one in spec.exceptions if one.planned_at == self._subject.at), None)

    @property
    def only_newest(self) -> str:
        """Why it had to stand back."""
        if self._spec.catchup in (Catchup.ALL, Catchup.SPREAD):
            return "overlap is replace, so that each would have replaced the one before"
        return f"with catch-up {self._spec.catchup} only the newest fires"

    @property
    def newer(self) -> str:
        """The tick to which it was left."""
        together = [one.decision for one in self._evidence.ticks if one.decided_at == self._decided_at]
        fired = [one for one in together if one.starts_run]
        return f" That was the one at {self._clocks(fired[0].planned_at)}." if fired else ""


def explain_pause(evidence: JobEvidence, at: int, clocks: TimeFormatter) -> str:
    """Who paused the job, when, and how long that went on."""
    rest = evidence.life.pause_at(at)
    if rest is None:
        return "the job was paused"
    began = f"{rest.by or 'someone'} paused the job at {clocks(rest.from_at)}"
    if rest.by == SYSTEM_ACTOR:
        began = f"the job was paused at {clocks(rest.from_at)}, when its only run had not succeeded"
    if rest.until_at is None:
        deleted_at = evidence.life.deleted_at
        return f"{began}, and it {'still is paused' if deleted_at is None else 'was paused to its end'}"
    return f"{began} and {rest.ended_by or 'someone'} resumed it at {clocks(rest.until_at)}"


def explain_decision(
    evidence: JobEvidence, subject: ExplainedSubject, decision: Decision, clocks: TimeFormatter, *, now: int
) -> str:
    """Why that became of the tick, and of which others the same."""
    tick = TickFacts(evidence, subject, decision, clocks, now=now)
    sentence = RESUMED_SENTENCES.get(decision.kind) if tick.made_up_for else None
    told = (sentence or TICK_SENTENCES[decision.kind, decision.reason]).format(tick=tick)
    return told + _moved(decision, subject, clocks) + explain_merged_ticks(decision, clocks)


def _moved(decision: Decision, subject: ExplainedSubject, clocks: TimeFormatter) -> str:
    if decision.fire_at is None or decision.fire_at == subject.at:
        return ""
    why = "It was spread out" if decision.reason is Reason.CAUGHT_UP else "Its jitter moved it"
    return f" {why} to {clocks(decision.fire_at)}."


def explain_merged_ticks(decision: Decision, clocks: TimeFormatter) -> str:
    """Of which other ticks the same is true."""
    if decision.count == 1:
        return ""
    both = "both ticks" if decision.count == 2 else f"all {decision.count} ticks"
    return f" The same goes for {both} from {clocks(decision.planned_at)} to {clocks(decision.last_at)}."


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


def explain_undecided(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, *, now: int
) -> tuple[ExplanationKind, str, str]:
    """The kind, the reason and the sentence of a tick that has no entry."""
    life = evidence.life
    if life.deleted_at is not None or subject.at <= life.schedule.mark_at:
        return ExplanationKind.UNKNOWN, *_forgotten(evidence, subject, clocks)
    if life.paused:
        paused = explain_pause(evidence, subject.at, clocks)
        return ExplanationKind.HELD, "paused", f"It will not fire: {paused}."
    fire_at = Ticks(life.schedule.schedule_id, life.schedule.spec).fire_at(subject.at)
    if fire_at > now:
        return ExplanationKind.COMING, "planned", _coming(evidence, subject, clocks, fire_at, now)
    return ExplanationKind.OVERDUE, "undecided", _overdue(subject, clocks, fire_at, now)


def _forgotten(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter) -> tuple[str, str]:
    kept, paused = evidence.kept, ""
    if evidence.life.pause_at(subject.at) is not None:
        paused = f" It did not fire: {explain_pause(evidence, subject.at, clocks)}."
    if kept is None or subject.at >= kept.keys_at:
        return "no_entry", f"It was planned, but its entry is no longer in the ledger.{paused}"
    before = f"history from before {clocks(kept.keys_at)} is not kept"
    return "removed", f"It was planned, but what became of it is no longer known: {before}.{paused}"


def _coming(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, fire_at: int, now: int) -> str:
    told = f"It will fire in {span_text(fire_at - now)}"
    told += "." if fire_at == subject.at else f": its jitter moves it to {clocks(fire_at)}."
    spec = evidence.life.schedule.spec
    under_way = [run for run in evidence.runs if not run.over]
    if not under_way or spec.overlap is Overlap.ALLOW:
        return told
    return f"{told} If {under_way[-1].run_id} is still under way then, {_IF_NOT_OVER[spec.overlap]}."


def _overdue(subject: ExplainedSubject, clocks: TimeFormatter, fire_at: int, now: int) -> str:
    late = now - fire_at
    told = f"Its time came {span_text(late)} ago, and no scheduler has decided it yet"
    told += ": is gnomon up running?" if late > USUAL_DELAY_MS else "."
    decision = subject.decision
    if decision is None:
        return told
    return f"{told} Decided now, it would {_WOULD[decision.kind]}.{explain_merged_ticks(decision, clocks)}"
