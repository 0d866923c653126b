"""The explanation of a moment without a tick, and the clock changes around a moment."""

from collections.abc import Callable, Iterator

from gnomon.core.cron import Cron
from gnomon.core.cron.clock_changes import ClockChange, clock_changes
from gnomon.core.explain.evidence import ExplainedSubject, JobEvidence, SpecVersion
from gnomon.core.explain.phrases import TimeFormatter, not_kept_before
from gnomon.core.explain.ticks import explain_pause
from gnomon.core.instants import FOREVER, instant_of, ms_of
from gnomon.core.ledger.edits import SYSTEM_ACTOR
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.core.time_expressions import TimeRange, exact_time_range
from gnomon.core.triggers import At, OnDemand, OnEvent

#: The reason if the history of the moment is no longer retained.
REASON_REMOVED = "removed"
#: Reasons that prevent ticks, but not a triggered run.
_TRIGGERABLE = frozenset({"gap", "window", "once", "fold", "revision"})


class NoTickExplainer:
    """Finds the reason why there was no tick at a moment."""

    def __init__(self, evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, *, now: int) -> None:
        self._evidence = evidence
        self._timeline = evidence.timeline
        self._at = subject.at
        self._moment: TimeRange = subject.moment or exact_time_range(subject.at)
        self._clocks = clocks
        self._now = now
        self._version: SpecVersion = evidence.timeline.version_at(subject.at)
        self._spec = self._version.spec
        horizons = evidence.horizons
        #: The time from which runs are retained, if those of the moment are not.
        self._kept_from = horizons.runs_at if horizons is not None and subject.at < horizons.runs_at else None

    def explain(self) -> tuple[str, str]:
        """The reason and the sentence."""
        reasons: tuple[tuple[str, Callable[[], str | None]], ...] = (
            ("not_created", self._not_created),
            ("deleted", self._deleted),
            (REASON_REMOVED, self._forgotten),
            ("on_demand", self._on_demand),
            ("gap", self._skipped_by_the_clocks),
            ("window", self._outside_its_window),
            ("once", self._once),
            ("fold", self._second_time_round),
            ("revision", self._other_revision),
        )
        for reason, find in reasons:
            sentence = find()
            if sentence is not None:
                return reason, sentence + (self._triggered_perhaps() if reason in _TRIGGERABLE else "")
        sentence = self._not_planned() + self._around() + self._paused_as_well()
        return "not_planned", sentence + self._triggered_perhaps()

    def _not_created(self) -> str | None:
        first = self._timeline.versions[0]
        if self._at >= first.from_at:
            return None
        created = f"{first.by or 'someone'} created it at {self._clocks(first.from_at)}"
        earlier = self._evidence.earlier
        if earlier is None:
            return f"The job did not exist yet: {created}."
        who = earlier.deleted_by or "someone"
        return f"There was no such job: {who} deleted it at {self._clocks(earlier.deleted_at)}, and {created} anew."

    def _deleted(self) -> str | None:
        timeline = self._timeline
        if timeline.deleted_at is None or self._at < timeline.deleted_at:
            return None
        gone = "The job was gone" if self._at < self._now else "The job is gone"
        if timeline.deleted_by == SYSTEM_ACTOR:
            return f"{gone}: it was to run once, and did; that was over at {self._clocks(timeline.deleted_at)}."
        return f"{gone}: {timeline.deleted_by or 'someone'} deleted it at {self._clocks(timeline.deleted_at)}."

    def _forgotten(self) -> str | None:
        """Without ticks, only runs and events show what the job did, and those may be deleted."""
        trigger = self._spec.trigger
        if self._kept_from is None or not isinstance(trigger, OnDemand | OnEvent):
            return None
        before = not_kept_before(self._clocks(self._kept_from))
        return f"The runs of that time are no longer known: {before}. The job runs {trigger.describe()}."

    def _triggered_perhaps(self) -> str:
        if self._kept_from is None:
            return ""
        before = not_kept_before(self._clocks(self._kept_from))
        return f" Whether someone triggered it is no longer known: {before}."

    def _on_demand(self) -> str | None:
        trigger = self._spec.trigger
        if not isinstance(trigger, OnDemand | OnEvent):
            return None
        nothing = "Nothing happened" if self._at < self._now else "Nothing is planned"
        return f"{nothing}: the job runs {trigger.describe()}."

    def _skipped_by_the_clocks(self) -> str | None:
        if self._moment.skipped is None:
            return None
        change = clock_change_at(self._spec.trigger, self._at)
        effect = "" if change is None else f"; {change.describe()}"
        return f"There was no {self._moment.skipped} that day{effect}."

    def _outside_its_window(self) -> str | None:
        start, end = self._spec.start_at, self._spec.end_at
        if start is not None and self._at < start:
            return f"That is before the schedule begins, at {self._clocks(start)}."
        if end is not None and self._at >= end:
            return f"That is after the schedule has ended, at {self._clocks(end)}."
        return None

    def _once(self) -> str | None:
        trigger = self._spec.trigger
        if not isinstance(trigger, At):
            return None
        fire = Ticks(self._timeline.schedule.schedule_id, self._spec).up_to(FOREVER)
        return None if fire is None else f"{self._nothing} planned: the job runs once, at {self._clocks(fire)}."

    def _second_time_round(self) -> str | None:
        change = clock_change_at(self._spec.trigger, self._at)
        if change is None or change.effect != "once":
            return None
        began, ended = repeated_interval(change)
        back = ended - began
        first_time = self._timeline.planned(self._moment.first_at - back, self._moment.last_at - back, most=1)
        if not (began <= self._at < ended and first_time):
            return None
        return f"It was the second time round; {change.describe()}."

    def _other_revision(self) -> str | None:
        """The newest revision, or the one before, would have had a tick at that time."""
        valid, newest = self._version, self._timeline.versions[-1]
        schedule = self._spec.trigger.describe()
        if newest.revision > valid.revision and self._would_have(newest):
            changed = f"{self._change(newest)} to {newest.spec.trigger.describe()}"
            return f"{self._nothing} planned: the job ran {schedule}, until {changed}.{self._around()}"
        before = [version for version in self._timeline.versions if version.revision < valid.revision]
        if before and self._would_have(before[-1]):
            changed = f"{self._change(valid)} from {before[-1].spec.trigger.describe()}"
            return f"{self._nothing} planned: the job runs {schedule}, since {changed}.{self._around()}"
        return None

    def _change(self, version: SpecVersion) -> str:
        who = version.by or "someone"
        return f"{who} changed it at {self._clocks(version.from_at)} (revision {version.revision})"

    def _would_have(self, version: SpecVersion) -> bool:
        ticks = Ticks(self._timeline.schedule.schedule_id, version.spec)
        found = ticks.after(self._moment.first_at - 1)
        return found is not None and found <= self._moment.last_at

    def _not_planned(self) -> str:
        return f"{self._nothing} planned: the job runs {self._spec.trigger.describe()}."

    @property
    def _nothing(self) -> str:
        return "Nothing was" if self._at < self._now else "Nothing is"

    def _around(self) -> str:
        """The sentences about the tick before and the tick after."""
        return "".join(f" {sentence}" for sentence in self._neighbours())

    def _neighbours(self) -> Iterator[str]:
        before, after = self._timeline.before(self._at), self._timeline.after(self._moment.last_at)
        if before is not None:
            yield f"The tick before was at {self._clocks(before)}."
        if after is not None:
            yield f"The next {'was' if after <= self._now else 'is'} at {self._clocks(after)}."
        elif before is not None:
            yield "It was the last one."

    def _paused_as_well(self) -> str:
        if self._timeline.pause_at(self._at) is None:
            return ""
        paused = explain_pause(self._evidence, self._at, self._clocks)
        return f" Besides, {paused}."


# ---- clock changes around a moment ---------------------------------------------------------------

#: No clock change repeats more than this.
_REACH_MS = DAY_MS // 12


def clock_change_at(trigger: object, at: int) -> ClockChange | None:
    """The last clock change in a schedule's zone shortly before `at`, or in the minute that begins there."""
    if not isinstance(trigger, Cron):
        return None
    reach = instant_of(at - _REACH_MS), instant_of(at + MINUTE_MS)
    return next(reversed(list(clock_changes(trigger, after=reach[0], until=reach[1]))), None)


def made_up_fire_at(trigger: object, at: int) -> int | None:
    """The time at which ticks fire that the clock change around `at` skips; None if they do not fire."""
    change = clock_change_at(trigger, at)
    if change is None or change.effect != "made_up":
        return None
    return ms_of(change.at) + -change.at.second % 60 * SECOND_MS


def repeated_interval(change: ClockChange) -> tuple[int, int]:
    """The interval in which clocks show times for the second time; empty if they were put forward."""
    skipped = change.instead_of.replace(tzinfo=None) - change.at.replace(tzinfo=None)
    began = ms_of(change.at)
    return began, began + max(0, skipped.days * DAY_MS + skipped.seconds * SECOND_MS)
