"""A schedule's whole life: what it said when, when it was paused, and which ticks that made at any time."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Attempt, Decision, Run, RunId, Schedule, Spec, Task, TaskId, Tick
from gnomon.core.retention import RetentionHorizons
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.routing import DEFAULT_POOL, Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.core.time_expressions import TimeRange

_FOREVER = 1 << 62


class SpecVersion(Struct, frozen=True, kw_only=True):
    """What a schedule said from some moment on."""

    revision: int
    spec: Spec
    from_at: int
    by: str


class PauseInterval(Struct, frozen=True, kw_only=True):
    """A stretch in which it was paused; it goes on while `until_at` is None."""

    from_at: int
    by: str
    until_at: int | None = None
    ended_by: str | None = None


class VersionTicks(Struct, frozen=True):
    """The ticks of one version: planned after `after` and up to `until`."""

    version: SpecVersion
    ticks: Ticks
    after: int
    until: int


class ScheduleTimeline(Struct, frozen=True, kw_only=True):
    """A schedule from its creation to now, or to its end."""

    #: As it is, or was at the end.
    schedule: Schedule
    #: Oldest first; there is at least one.
    versions: tuple[SpecVersion, ...]
    pause_intervals: tuple[PauseInterval, ...] = ()
    deleted_at: int | None = None
    deleted_by: str = ""

    @property
    def paused(self) -> bool:
        """Whether it is paused now."""
        return self.deleted_at is None and self.schedule.paused_at is not None

    def version_at(self, at: int) -> SpecVersion:
        """What it said about a tick at that time; before its beginning, what it said first."""
        found = [one.version for one in self._version_ticks() if one.after < at <= one.until]
        return found[0] if found else self.versions[0 if at <= self.versions[0].from_at else -1]

    def version(self, revision: int) -> SpecVersion:
        """That revision, or the newest before it that is known."""
        return max((one for one in self.versions if one.revision <= revision), key=lambda one: one.revision)

    def next_version(self, version: SpecVersion) -> SpecVersion | None:
        """What it said after that."""
        return next((one for one in self.versions if one.revision > version.revision), None)

    def pause_at(self, at: int) -> PauseInterval | None:
        """The pause that swallows a tick at that time."""
        found = (
            one
            for one in self.pause_intervals
            if one.from_at < at <= (_FOREVER if one.until_at is None else one.until_at)
        )
        return next(found, None)

    def planned(self, first: int, last: int, *, most: int) -> list[int]:
        """The ticks planned from `first` up to `last`, oldest first, but no more than so many."""
        found: list[int] = []
        for stretch in self._version_ticks():
            at = max(first - 1, stretch.after)
            while len(found) < most and (tick := stretch.ticks.after(at)) is not None:
                if tick > min(last, stretch.until):
                    break
                found.append(tick)
                at = tick
        return found

    def before(self, at: int) -> int | None:
        """The last tick planned before that time."""
        for stretch in reversed(list(self._version_ticks())):
            found = stretch.ticks.up_to(min(at - 1, stretch.until))
            if found is not None and found > stretch.after:
                return found
        return None

    def after(self, at: int) -> int | None:
        """The first tick planned after that time."""
        for stretch in self._version_ticks():
            if stretch.until > at:
                found = stretch.ticks.after(max(at, stretch.after))
                if found is not None and found <= stretch.until:
                    return found
        return None

    def _version_ticks(self) -> Iterator[VersionTicks]:
        ends = [*(one.from_at for one in self.versions[1:]), _FOREVER if self.deleted_at is None else self.deleted_at]
        for version, until in zip(self.versions, ends, strict=True):
            yield VersionTicks(version, Ticks(self.schedule.schedule_id, version.spec), version.from_at, until)


class WorkerEvidence(Struct, frozen=True, kw_only=True):
    """A worker that is alive."""

    worker: str
    functions: tuple[str, ...]
    slots: int
    #: How many of its slots are in use.
    busy: int = 0
    pool: str = DEFAULT_POOL


class RunEvidence(Struct, frozen=True, kw_only=True):
    """What a run is made of."""

    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    #: What it goes by; None if that is not known, or no longer matters.
    workflow: Workflow | None = None


class EventEvidence(Struct, frozen=True):
    """An event to which the job listens, and what became of it."""

    event: ExternalEvent
    entry: EventEffect | None


class DeletedPredecessor(Struct, frozen=True, kw_only=True):
    """An earlier job of the same name."""

    deleted_at: int
    deleted_by: str


class ExplainedSubject(Struct, frozen=True, kw_only=True):
    """One thing to explain: a tick, a run that no tick asked for, an event, or a moment without any of them."""

    #: The planned time of a tick, when a run was wanted, when an event was emitted, or the moment that was asked about.
    at: int
    #: Without an entry in the ledger it is what would be decided now.
    decision: Decision | None = None
    entry: Tick | None = None
    run: Run | None = None
    event_evidence: EventEvidence | None = None
    #: The moment was asked about, and may be more exact than a tick.
    moment: TimeRange | None = None
    #: It is, or was, a tick.
    planned: bool = False

    @property
    def started(self) -> RunId | None:
        """The run that came of it, whether that is still kept or not."""
        if self.run is not None:
            return self.run.run_id
        if self.entry is not None:
            return self.entry.run_id
        return (
            None
            if self.event_evidence is None or self.event_evidence.entry is None
            else self.event_evidence.entry.run_id
        )


class JobEvidence(Struct, frozen=True, kw_only=True):
    """All that is known about a job around what is to be explained."""

    life: ScheduleTimeline
    earlier: DeletedPredecessor | None = None
    #: Newest first.
    ticks: tuple[Tick, ...] = ()
    #: Newest first; those near what is explained, and those near now.
    runs: tuple[Run, ...] = ()
    events: tuple[EventEvidence, ...] = ()
    #: Of the runs that are explained.
    ran: Mapping[RunId, RunEvidence] = {}
    hands: tuple[WorkerEvidence, ...] = ()
    #: Where those of their tasks wait that wait for a worker.
    placements: Mapping[TaskId, Placement] = {}
    #: From when on runs, and ticks, are kept; None if all that is asked about is.
    kept: RetentionHorizons | None = None


class ExplanationKind(StrEnum):
    """What an explanation comes to."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"
    #: An event waits for others, to start a run together with them.
    GATHERED = "gathered"
    #: A run was started without a tick.
    STARTED = "started"
    #: Its time has come, and nobody has decided it yet.
    OVERDUE = "overdue"
    COMING = "coming"
    #: It would come, but for a pause.
    HELD = "held"
    #: Nothing was planned.
    NO_TICK = "no_tick"
    #: It was planned, and the ledger has no entry for it; or whatever happened then is no longer kept.
    UNKNOWN = "unknown"


class SubjectExplanation(Struct, frozen=True, kw_only=True):
    """What became of a tick, a run, an event or a moment, and why."""

    #: The planned time; without a tick, the moment itself.
    at: int
    kind: ExplanationKind
    #: A word for machines.
    reason: str
    #: The same for people.
    sentence: str
    #: Whose clocks the sentence goes by.
    timezone: str
    #: What the schedule said then, and under which revision.
    schedule: str
    revision: int
    decision: Decision | None = None
    decided_at: int | None = None
    #: Around a moment that was no tick.
    previous_at: int | None = None
    next_at: int | None = None
    run: Run | None = None
    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    #: What each step that is not over waits for, a sentence each.
    waits: tuple[str, ...] = ()


class JobExplanation(Struct, frozen=True, kw_only=True):
    """What there is to say to someone who asks why."""

    job: str
    timezone: str
    #: What the schedule says now, or said last.
    schedule: str
    explanations: tuple[SubjectExplanation, ...]
    #: The next tick, or why there is none; None if a moment was asked about.
    coming: SubjectExplanation | None = None
    #: How many more ticks there are within the moment that was asked about.
    more: int = 0
    #: Something may have happened before this, and is no longer kept; None if nothing did.
    forgotten_before: int | None = None
