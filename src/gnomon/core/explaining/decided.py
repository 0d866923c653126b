"""Ticks that stand in the ledger: a sentence for every kind and reason."""

from collections.abc import Mapping

from gnomon.core.durations import span_text
from gnomon.core.editing import CARETAKER
from gnomon.core.explaining.evidence import Evidence, Subject
from gnomon.core.explaining.runs import in_the_way
from gnomon.core.explaining.words import Clocks, counted
from gnomon.core.model import Catchup, Decision, Reason, Run, Spec, TickKind

#: What each says, with what a DecidedTick knows. A test sees to it that none is forgotten.
SENTENCES: Mapping[tuple[TickKind, Reason], str] = {
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


class DecidedTick:
    """What a sentence about a tick can speak of, each worked out when it is spoken of."""

    def __init__(self, evidence: Evidence, subject: Subject, decision: Decision, clocks: Clocks, *, now: int) -> None:
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
        return counted(self._spec.queue_limit, "run")

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
        return None if self._subject.entry is None else in_the_way(self._evidence, self._subject.entry)

    @property
    def paused(self) -> str:
        """Who paused the job."""
        return paused_words(self._evidence, self._subject.at, self._clocks)

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
        fired = [one for one in together if one.starts_a_run]
        return f" That was the one at {self._clocks(fired[0].planned_at)}." if fired else ""


def paused_words(evidence: Evidence, at: int, clocks: Clocks) -> str:
    """Who paused the job, when, and how long that went on."""
    rest = evidence.life.rest_at(at)
    if rest is None:
        return "the job was paused"
    began = f"{rest.by or 'someone'} paused the job at {clocks(rest.from_at)}"
    if rest.by == CARETAKER:
        began = f"the job was paused at {clocks(rest.from_at)}, when its only run had not succeeded"
    if rest.until_at is None:
        deleted_at = evidence.life.deleted_at
        return f"{began}, and it {'still is paused' if deleted_at is None else 'was paused to its end'}"
    return f"{began} and {rest.ended_by or 'someone'} resumed it at {clocks(rest.until_at)}"


def decided(evidence: Evidence, subject: Subject, decision: Decision, clocks: Clocks, *, now: int) -> str:
    """Why that became of the tick, and of which others the same."""
    tick = DecidedTick(evidence, subject, decision, clocks, now=now)
    told = SENTENCES[decision.kind, decision.reason].format(tick=tick)
    return told + _moved(decision, subject, clocks) + others(decision, clocks)


def _moved(decision: Decision, subject: Subject, clocks: Clocks) -> str:
    if decision.fire_at is None or decision.fire_at == subject.at:
        return ""
    why = "It was spread out" if decision.reason is Reason.CAUGHT_UP else "Its jitter moved it"
    return f" {why} to {clocks(decision.fire_at)}."


def others(decision: Decision, clocks: Clocks) -> str:
    """Of which other ticks the same is true."""
    if decision.count == 1:
        return ""
    both = "both ticks" if decision.count == 2 else f"all {decision.count} ticks"
    return f" The same goes for {both} from {clocks(decision.planned_at)} to {clocks(decision.last_at)}."
