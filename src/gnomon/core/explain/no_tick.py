"""Changes of the clocks around a moment, and what they do to a schedule's ticks."""

from collections.abc import Callable, Iterator

from gnomon.core.cron import Cron
from gnomon.core.cron.clock_changes import ClockChange, clock_changes
from gnomon.core.explain.evidence import ExplainedSubject, JobEvidence, SpecVersion
from gnomon.core.explain.phrases import TimeFormatter
from gnomon.core.explain.ticks import explain_pause
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.ledger.edits import SYSTEM_ACTOR
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.core.time_expressions import TimeRange, exact_time_range
from gnomon.core.triggers import At, OnDemand, OnEvent

#: No clock that is put back shows a time again for longer than this.
_REACH_MS = DAY_MS // 12


def clock_change_at(trigger: object, at: int) -> ClockChange | None:
    """The newest change of a schedule's clocks shortly before, or in the minute that begins then."""
    if not isinstance(trigger, Cron):
        return None
    reach = instant_of(at - _REACH_MS), instant_of(at + MINUTE_MS)
    return next(reversed(list(clock_changes(trigger, after=reach[0], until=reach[1]))), None)


def made_up_fire_at(trigger: object, at: int) -> int | None:
    """When the ticks fire that the change around that moment skips: the next whole minute, if they do at all."""
    change = clock_change_at(trigger, at)
    if change is None or change.effect != "made_up":
        return None
    return ms_of(change.at) + -change.at.second % 60 * SECOND_MS


def repeated_interval(change: ClockChange) -> tuple[int, int]:
    """From when to when clocks show times for the second time; nothing, if they were put forward."""
    walls = change.instead_of.replace(tzinfo=None) - change.at.replace(tzinfo=None)
    began = ms_of(change.at)
    return began, began + max(0, walls.days * DAY_MS + walls.seconds * SECOND_MS)


#: Why nothing can be said about a moment of a job that no clock starts.
REASON_REMOVED = "removed"
#: What keeps ticks away, but nobody from triggering the job.
_ASKED = frozenset({"gap", "window", "once", "fold", "revision"})


class NoTickExplainer:
    """A moment without a tick, and all that may be the reason for it."""

    def __init__(self, evidence: JobEvidence, subject: ExplainedSubject, clocks: TimeFormatter, *, now: int) -> None:
        self._evidence = evidence
        self._life = evidence.life
        self._at = subject.at
        self._moment: TimeRange = subject.moment or exact_time_range(subject.at)
        self._clocks = clocks
        self._now = now
        self._version: SpecVersion = evidence.life.version_at(subject.at)
        self._spec = self._version.spec
        kept = evidence.kept
        #: From when on runs are kept, if those of the moment are not.
        self._kept_from = kept.runs_at if kept is not None and subject.at < kept.runs_at else None

    def told(self) -> tuple[str, str]:
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
        for reason, look in reasons:
            told = look()
            if told is not None:
                return reason, told + (self._triggered_perhaps() if reason in _ASKED else "")
        told = self._not_planned() + self._around() + self._paused_as_well()
        return "not_planned", told + self._triggered_perhaps()

    def _not_created(self) -> str | None:
        first = self._life.versions[0]
        if self._at >= first.from_at:
            return None
        created = f"{first.by or 'someone'} created it at {self._clocks(first.from_at)}"
        earlier = self._evidence.earlier
        if earlier is None:
            return f"The job did not exist yet: {created}."
        who = earlier.deleted_by or "someone"
        return f"There was no such job: {who} deleted it at {self._clocks(earlier.deleted_at)}, and {created} anew."

    def _deleted(self) -> str | None:
        life = self._life
        if life.deleted_at is None or self._at < life.deleted_at:
            return None
        gone = "The job was gone" if self._at < self._now else "The job is gone"
        if life.deleted_by == SYSTEM_ACTOR:
            return f"{gone}: it was to run once, and did; that was over at {self._clocks(life.deleted_at)}."
        return f"{gone}: {life.deleted_by or 'someone'} deleted it at {self._clocks(life.deleted_at)}."

    def _forgotten(self) -> str | None:
        """Only its runs and its events would say what it did, and those may be gone."""
        trigger = self._spec.trigger
        if self._kept_from is None or not isinstance(trigger, OnDemand | OnEvent):
            return None
        before = f"history from before {self._clocks(self._kept_from)} is not kept"
        return f"What happened then is no longer known: {before}. The job runs {trigger.describe()}."

    def _triggered_perhaps(self) -> str:
        if self._kept_from is None:
            return ""
        before = f"history from before {self._clocks(self._kept_from)} is not kept"
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
        told = "" if change is None else f"; {change.describe()}"
        return f"There was no {self._moment.skipped} that day{told}."

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
        fire = Ticks(self._life.schedule.schedule_id, self._spec).up_to(1 << 62)
        return None if fire is None else f"{self._nothing} planned: the job runs once, at {self._clocks(fire)}."

    def _second_time_round(self) -> str | None:
        change = clock_change_at(self._spec.trigger, self._at)
        if change is None or change.effect != "once":
            return None
        began, ended = repeated_interval(change)
        back = ended - began
        first_time = self._life.planned(self._moment.first_at - back, self._moment.last_at - back, most=1)
        if not (began <= self._at < ended and first_time):
            return None
        return f"It was the second time round; {change.describe()}."

    def _other_revision(self) -> str | None:
        """What it says now would have had a tick then, or what it said before."""
        ours, newest = self._version, self._life.versions[-1]
        says = self._spec.trigger.describe()
        if newest.revision > ours.revision and self._would_have(newest):
            changed = f"{self._change(newest)} to {newest.spec.trigger.describe()}"
            return f"{self._nothing} planned: the job ran {says}, until {changed}.{self._around()}"
        before = [one for one in self._life.versions if one.revision < ours.revision]
        if before and self._would_have(before[-1]):
            changed = f"{self._change(ours)} from {before[-1].spec.trigger.describe()}"
            return f"{self._nothing} planned: the job runs {says}, since {changed}.{self._around()}"
        return None

    def _change(self, version: SpecVersion) -> str:
        who = version.by or "someone"
        return f"{who} changed it at {self._clocks(version.from_at)} (revision {version.revision})"

    def _would_have(self, version: SpecVersion) -> bool:
        ticks = Ticks(self._life.schedule.schedule_id, version.spec)
        found = ticks.after(self._moment.first_at - 1)
        return found is not None and found <= self._moment.last_at

    def _not_planned(self) -> str:
        return f"{self._nothing} planned: the job runs {self._spec.trigger.describe()}."

    @property
    def _nothing(self) -> str:
        return "Nothing was" if self._at < self._now else "Nothing is"

    def _around(self) -> str:
        """The ticks before it and after it."""
        return "".join(f" {sentence}" for sentence in self._neighbours())

    def _neighbours(self) -> Iterator[str]:
        before, after = self._life.before(self._at), self._life.after(self._moment.last_at)
        if before is not None:
            yield f"The tick before was at {self._clocks(before)}."
        if after is not None:
            yield f"The next {'was' if after <= self._now else 'is'} at {self._clocks(after)}."
        elif before is not None:
            yield "It was the last one."

    def _paused_as_well(self) -> str:
        if self._life.pause_at(self._at) is None:
            return ""
        paused = explain_pause(self._evidence, self._at, self._clocks)
        return f" Besides, {paused}."
