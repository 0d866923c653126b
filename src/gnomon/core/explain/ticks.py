"""The sentences about ticks: decided ones by kind and reason, and those without an entry in the ledger."""

from collections.abc import Mapping

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import ExplainedSubject, ExplanationKind, JobEvidence
from gnomon.core.explain.phrases import USUAL_DELAY_MS, TimeFormatter, not_kept_before, pluralized
from gnomon.core.explain.runs import blocking_run
from gnomon.core.ledger.edits import SYSTEM_ACTOR
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Run, Spec, TickException, TickKind

#: The sentence for every kind and reason, with facts of TickFacts. A test checks that it is complete.
TICK_SENTENCES: Mapping[tuple[TickKind, Reason], str] = {
    (TickKind.FIRED, Reason.ON_TIME): "It fired on time.",
    (
        TickKind.FIRED,
        Reason.LATE,
    ): "It fired {tick.late} late, within the grace of {tick.grace}: it was decided at {tick.decided}.",
    (TickKind.FIRED, Reason.CAUGHT_UP): (
        "It was caught up: it was not decided before {tick.decided}, {tick.late} late, and catch-up is {tick.catchup}."
    ),
    (TickKind.QUEUED, Reason.BEHIND_A_RUN): "It was queued: {tick.blocker} was under way, and overlap is queue.",
    (TickKind.QUEUED, Reason.REPLACES_A_RUN): (
        "It was to replace {tick.blocker}, which was asked to stop: overlap is replace."
    ),
    (
        TickKind.SKIPPED,
        Reason.OVERLAP,
    ): "It was skipped: {tick.blocker} was under way, and overlap is skip.{tick.ended}",
    (TickKind.SKIPPED, Reason.QUEUE_FULL): (
        "It was skipped: {tick.limit} waited already behind {tick.blocker}, as many as queue_limit allows."
    ),
    (TickKind.SKIPPED, Reason.PAUSED): "It was skipped: {tick.paused}.",
    (TickKind.SKIPPED, Reason.SKIPPED_ONCE): "It was skipped: {tick.excepted_by} skipped this tick only.",
    (
        TickKind.SKIPPED,
        Reason.MOVED,
    ): "It was moved{tick.moved_to}: {tick.excepted_by} moved this tick only.",
    (TickKind.COALESCED, Reason.NEWER_TICK): (
        "It was coalesced into a newer tick: both were due when they were decided, at {tick.decided},"
        " and {tick.only_newest}.{tick.newer}"
    ),
    (TickKind.MISSED, Reason.CATCHUP_NONE): (
        "It was missed: it was not decided before {tick.decided}, {tick.late} late;"
        " the grace is {tick.grace}, and catch-up is none."
    ),
    (TickKind.MISSED, Reason.WINDOW): (
        "It was missed: it was not decided before {tick.decided}, {tick.late} late;"
        " catch-up is {tick.catchup}, but only for the last {tick.window}."
    ),
    (TickKind.MISSED, Reason.STORE_UNCERTAIN): (
        "It was not run: a backup was restored at {tick.decided}, which does not say whether it had run before,"
        " and the job runs at most once."
    ),
}
#: The sentences for ticks that were planned during a pause and run because the operator chose so when resuming.
RESUMED_SENTENCES: Mapping[TickKind, str] = {
    TickKind.FIRED: "It fired after the pause: {tick.paused}.",
    TickKind.QUEUED: "It was queued after the pause: {tick.paused}.",
}


class TickFacts:
    """The facts that the sentence about a tick may use; each is computed only when it is used."""

    def __init__(
        self, evidence: JobEvidence, subject: ExplainedSubject, decision: Decision, clocks: TimeFormatter, *, now: int
    ) -> None:
        self._evidence = evidence
        self._subject = subject
        self._decision = decision
        self._clocks = clocks
        self._decided_at = now if subject.entry is None else subject.entry.decided_at
        self._revision = evidence.timeline.schedule.revision if subject.entry is None else subject.entry.revision
        self._spec: Spec = evidence.timeline.version(self._revision).spec

    @property
    def decided(self) -> str:
        """When the tick was decided."""
        return self._clocks(self._decided_at)

    @property
    def late(self) -> str:
        """How late the decision was."""
        return span_text(max(0, self._decided_at - max(self._subject.at, self._jittered_to)))

    @property
    def _jittered_to(self) -> int:
        spread = self._decision.reason is Reason.CAUGHT_UP
        return 0 if spread or self._decision.fire_at is None else self._decision.fire_at

    @property
    def grace(self) -> str:
        """The grace period, within which a tick is late and not missed."""
        return span_text(self._spec.misfire_grace_ms)

    @property
    def window(self) -> str:
        """The catch-up window."""
        return span_text(self._spec.catchup_window_ms)

    @property
    def catchup(self) -> str:
        """The catch-up policy."""
        return self._spec.catchup.value

    @property
    def limit(self) -> str:
        """How many runs may be queued."""
        return pluralized(self._spec.queue_limit, "run")

    @property
    def blocker(self) -> str:
        """The run that blocked the tick."""
        run = self._blocking_run
        return "another run" if run is None else f"{run.run_id} (planned for {self._clocks(run.planned_at)})"

    @property
    def ended(self) -> str:
        """When that run ended."""
        run = self._blocking_run
        if run is None:
            return ""
        return " It still is." if run.completed_at is None else f" That was over at {self._clocks(run.completed_at)}."

    @property
    def _blocking_run(self) -> Run | None:
        return None if self._subject.entry is None else blocking_run(self._evidence, self._subject.entry)

    @property
    def paused(self) -> str:
        """The clause about the pause."""
        return explain_pause(self._evidence, self._subject.at, self._clocks)

    @property
    def resumed(self) -> bool:
        """Whether it was planned during a pause, and decided when that ended."""
        pause = self._evidence.timeline.pause_at(self._subject.at)
        return self._subject.entry is not None and pause is not None and pause.until_at == self._decided_at

    @property
    def excepted_by(self) -> str:
        """The operator who skipped or moved the tick."""
        found = self._exception(self._spec)
        return "someone" if found is None else _author_of(self._evidence, found, until_revision=self._revision)

    @property
    def moved_to(self) -> str:
        """The time to which it was moved."""
        found = self._exception(self._spec)
        return "" if found is None or found.moved_to is None else f" to {self._clocks(found.moved_to)}"

    def _exception(self, spec: Spec) -> TickException | None:
        return next((known for known in spec.exceptions if known.planned_at == self._subject.at), None)

    @property
    def only_newest(self) -> str:
        """Why only the newest tick fires."""
        if self._spec.catchup in (Catchup.ALL, Catchup.SPREAD):
            return "overlap is replace, so that each would have replaced the one before"
        return f"with catch-up {self._spec.catchup} only the newest fires"

    @property
    def newer(self) -> str:
        """The tick into which it was coalesced."""
        together = [tick.decision for tick in self._evidence.ticks if tick.decided_at == self._decided_at]
        fired = [decision for decision in together if decision.starts_run]
        return f" That was the one at {self._clocks(fired[0].planned_at)}." if fired else ""


def explain_pause(evidence: JobEvidence, at: int, clocks: TimeFormatter) -> str:
    """The clause about a pause: who paused the job and when, and who resumed it."""
    pause = evidence.timeline.pause_at(at)
    if pause is None:
        return "the job was paused"
    began = f"{pause.by or 'someone'} paused the job at {clocks(pause.from_at)}"
    if pause.by == SYSTEM_ACTOR:
        began = f"the job was paused at {clocks(pause.from_at)}, when its only run had not succeeded"
    if pause.until_at is None:
        deleted_at = evidence.timeline.deleted_at
        return f"{began}, and it {'still is paused' if deleted_at is None else 'was paused to its end'}"
    return f"{began} and {pause.ended_by or 'someone'} resumed it at {clocks(pause.until_at)}"


def explain_decision(
    evidence: JobEvidence, subject: ExplainedSubject, decision: Decision, clocks: TimeFormatter, *, now: int
) -> str:
    """The sentences about a decided tick, and about other ticks with the same decision."""
    tick = TickFacts(evidence, subject, decision, clocks, now=now)
    resumed = RESUMED_SENTENCES.get(decision.kind) if tick.resumed else None
    sentence = (resumed or TICK_SENTENCES[decision.kind, decision.reason]).format(tick=tick)
    return sentence + _moved(decision, subject, clocks) + explain_merged_ticks(decision, clocks)


def _moved(decision: Decision, subject: ExplainedSubject, clocks: TimeFormatter) -> str:
    if decision.fire_at is None or decision.fire_at == subject.at:
        return ""
    why = "It was spread out" if decision.reason is Reason.CAUGHT_UP else "Its jitter moved it"
    return f" {why} to {clocks(decision.fire_at)}."


def explain_merged_ticks(decision: Decision, clocks: TimeFormatter) -> str:
    """The sentence about the other ticks of the same decision; empty if there are none."""
    if decision.count == 1:
        return ""
    both = "both ticks" if decision.count == 2 else f"all {decision.count} ticks"
    return f" The same goes for {both} from {clocks(decision.planned_at)} to {clocks(decision.last_at)}."


# ---- ticks without an entry ----------------------------------------------------------------------

_WOULD = {
    TickKind.FIRED: "fire",
    TickKind.QUEUED: "be queued",
    TickKind.SKIPPED: "be skipped",
    TickKind.COALESCED: "be coalesced into a newer tick",
    TickKind.MISSED: "be missed",
}
#: The effect of a run that is still open when the tick comes due.
_IF_NOT_OVER = {
    Overlap.SKIP: "it is skipped",
    Overlap.QUEUE: "it is queued behind that",
    Overlap.REPLACE: "it replaces that",
}


def explain_undecided(
    evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, *, now: int
) -> tuple[ExplanationKind, str, str]:
    """The kind, the reason and the sentence of a tick that has no entry."""
    timeline = evidence.timeline
    if timeline.deleted_at is not None or subject.at <= timeline.schedule.mark_at:
        return ExplanationKind.UNKNOWN, *_forgotten(evidence, subject, clocks)
    if timeline.paused:
        paused = explain_pause(evidence, subject.at, clocks)
        return ExplanationKind.HELD, "paused", f"It will not fire: {paused}."
    fire_at = Ticks(timeline.schedule.schedule_id, timeline.schedule.spec).fire_at(subject.at)
    excepted = next((one for one in timeline.schedule.spec.exceptions if one.planned_at == subject.at), None)
    if excepted is not None and fire_at > now:
        return ExplanationKind.HELD, *_excepted(evidence, excepted, clocks)
    if fire_at > now:
        return ExplanationKind.COMING, "planned", _coming(evidence, subject, clocks, fire_at, now)
    return ExplanationKind.OVERDUE, "undecided", _overdue(subject, clocks, fire_at, now)


def _excepted(evidence: JobEvidence, excepted: TickException, clocks: TimeFormatter) -> tuple[str, str]:
    """The reason and the sentence of a coming tick that an operator skipped or moved."""
    who = _author_of(evidence, excepted, until_revision=evidence.timeline.schedule.revision)
    if excepted.moved_to is None:
        return Reason.SKIPPED_ONCE.value, f"It will not fire: {who} skipped this tick only."
    return Reason.MOVED.value, f"It will not fire: {who} moved this tick only, to {clocks(excepted.moved_to)}."


def _author_of(evidence: JobEvidence, excepted: TickException, *, until_revision: int) -> str:
    """The operator who made an exception that this revision has. An earlier one may have been undone."""
    author = "someone"
    for version in reversed(evidence.timeline.versions):
        if version.revision > until_revision:
            continue
        if excepted not in version.spec.exceptions:
            break
        author = version.by or "someone"
    return author


def _forgotten(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter) -> tuple[str, str]:
    horizons, paused = evidence.horizons, ""
    if evidence.timeline.pause_at(subject.at) is not None:
        paused = f" It did not fire: {explain_pause(evidence, subject.at, clocks)}."
    if horizons is None or subject.at >= horizons.keys_at:
        return "no_entry", f"It was planned, but its entry is no longer in the ledger.{paused}"
    before = not_kept_before(clocks(horizons.keys_at))
    return "removed", f"It was planned, but its outcome is no longer known: {before}.{paused}"


def _coming(evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, fire_at: int, now: int) -> str:
    sentence = f"It will fire in {span_text(fire_at - now)}"
    sentence += "." if fire_at == subject.at else f": its jitter moves it to {clocks(fire_at)}."
    spec = evidence.timeline.schedule.spec
    moved = next((one for one in spec.exceptions if one.moved_to == subject.at), None)
    if moved is not None:
        who = _author_of(evidence, moved, until_revision=evidence.timeline.schedule.revision)
        sentence += f" {who} moved it there from {clocks(moved.planned_at)}."
    open_runs = [run for run in evidence.runs if not run.over]
    if not open_runs or spec.overlap is Overlap.ALLOW:
        return sentence
    return f"{sentence} If {open_runs[-1].run_id} is still under way then, {_IF_NOT_OVER[spec.overlap]}."


def _overdue(subject: ExplainedSubject, clocks: TimeFormatter, fire_at: int, now: int) -> str:
    late = now - fire_at
    sentence = f"Its time came {span_text(late)} ago, and no scheduler has decided it yet"
    sentence += ": is gnomon up running?" if late > USUAL_DELAY_MS else "."
    decision = subject.decision
    if decision is None:
        return sentence
    return f"{sentence} Decided now, it would {_WOULD[decision.kind]}.{explain_merged_ticks(decision, clocks)}"
