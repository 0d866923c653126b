"""The evidence of an explanation (timeline, ticks, runs, workers), its subjects, and the explanations themselves."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from gnomon.core.approvals.model import Approval
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.ledger.restored import StoreRestore
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Attempt, Decision, Run, RunId, Schedule, Spec, Task, TaskId, Tick
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.retention import RetentionHorizons
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.routing import DEFAULT_POOL, Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.core.time_expressions import TimeRange


class SpecVersion(Struct, frozen=True, kw_only=True):
    """A revision of a schedule's spec, valid from `from_at` on."""

    revision: int
    spec: Spec
    from_at: int
    by: str


class PauseInterval(Struct, frozen=True, kw_only=True):
    """An interval in which the schedule was paused; it is still paused while `until_at` is None."""

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
    """The history of a schedule from its creation to now, or to its deletion."""

    #: Its current state, or its last.
    schedule: Schedule
    #: Oldest first; there is at least one.
    versions: tuple[SpecVersion, ...]
    pause_intervals: tuple[PauseInterval, ...] = ()
    deleted_at: int | None = None
    deleted_by: str = ""
    #: How many of its overdue ticks start at once.
    catchup_limit: CatchupLimit = DEFAULT_LIMIT

    @property
    def paused(self) -> bool:
        """Whether it is paused now."""
        return self.deleted_at is None and self.schedule.paused_at is not None

    def version_at(self, at: int) -> SpecVersion:
        """The version that decides about a tick at that time; before its creation, the first version."""
        found = [part.version for part in self._version_ticks() if part.after < at <= part.until]
        return found[0] if found else self.versions[0 if at <= self.versions[0].from_at else -1]

    def version(self, revision: int) -> SpecVersion:
        """That revision, or the newest known one before it."""
        known = (version for version in self.versions if version.revision <= revision)
        return max(known, key=lambda version: version.revision)

    def pause_at(self, at: int) -> PauseInterval | None:
        """The pause that suppresses a tick at that time."""
        found = (
            pause
            for pause in self.pause_intervals
            if pause.from_at < at <= (FOREVER if pause.until_at is None else pause.until_at)
        )
        return next(found, None)

    def planned(self, first: int, last: int, *, most: int) -> list[int]:
        """The ticks planned from `first` up to `last`, oldest first, at most `most`."""
        found: list[int] = []
        for part in self._version_ticks():
            at = max(first - 1, part.after)
            while len(found) < most and (tick := part.ticks.after(at)) is not None:
                if tick > min(last, part.until):
                    break
                found.append(tick)
                at = tick
        return found

    def before(self, at: int) -> int | None:
        """The last tick planned before that time."""
        for part in reversed(list(self._version_ticks())):
            found = part.ticks.up_to(min(at - 1, part.until))
            if found is not None and found > part.after:
                return found
        return None

    def after(self, at: int) -> int | None:
        """The first tick planned after that time."""
        for part in self._version_ticks():
            if part.until > at:
                found = part.ticks.after(max(at, part.after))
                if found is not None and found <= part.until:
                    return found
        return None

    def _version_ticks(self) -> Iterator[VersionTicks]:
        ends = [
            *(version.from_at for version in self.versions[1:]),
            FOREVER if self.deleted_at is None else self.deleted_at,
        ]
        for version, until in zip(self.versions, ends, strict=True):
            yield VersionTicks(version, Ticks(self.schedule.schedule_id, version.spec), version.from_at, until)


# ---- evidence ------------------------------------------------------------------------------------


class WorkerEvidence(Struct, frozen=True, kw_only=True):
    """A live worker."""

    worker: str
    functions: tuple[str, ...]
    slots: int
    #: How many of its slots are in use.
    busy: int = 0
    pool: str = DEFAULT_POOL


class RunEvidence(Struct, frozen=True, kw_only=True):
    """The tasks, attempts, rulings, approvals and workflow of a run."""

    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    #: The rulings about its tasks, in the order in which they were made.
    rulings: tuple[StoredRuling, ...] = ()
    #: The approvals for which its tasks have asked.
    approvals: tuple[Approval, ...] = ()
    #: None if it is unknown, or the run is over and was not rolled back.
    workflow: Workflow | None = None


class EventEvidence(Struct, frozen=True):
    """An event to which the job listens, and its effect."""

    event: ExternalEvent
    entry: EventEffect | None


class DeletedPredecessor(Struct, frozen=True, kw_only=True):
    """A deleted job of the same name."""

    deleted_at: int
    deleted_by: str


class ExplainedSubject(Struct, frozen=True, kw_only=True):
    """One subject to explain: a tick, a run without a tick, an event, or a moment without any of them."""

    #: The planned time of a tick, the time a run was requested or an event was emitted, or the requested moment.
    at: int
    #: Without an entry in the ledger, the decision that would be taken now.
    decision: Decision | None = None
    entry: Tick | None = None
    run: Run | None = None
    event_evidence: EventEvidence | None = None
    #: The requested moment; it may be more exact than a tick.
    moment: TimeRange | None = None
    #: Whether it is a tick.
    planned: bool = False

    @property
    def started(self) -> RunId | None:
        """The run that the subject started, whether it is still retained or not."""
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
    """The evidence about a job around the subjects to explain."""

    timeline: ScheduleTimeline
    earlier: DeletedPredecessor | None = None
    #: Newest first.
    ticks: tuple[Tick, ...] = ()
    #: Newest first; those near the subjects, and those near now.
    runs: tuple[Run, ...] = ()
    events: tuple[EventEvidence, ...] = ()
    #: The details of the explained runs.
    run_evidence: Mapping[RunId, RunEvidence] = {}
    workers: tuple[WorkerEvidence, ...] = ()
    #: The placements of their tasks that wait for a worker.
    placements: Mapping[TaskId, Placement] = {}
    #: The times from which runs and ticks are retained; None if all requested ones are.
    horizons: RetentionHorizons | None = None
    #: The restorations of backups of this store, newest first.
    restores: tuple[StoreRestore, ...] = ()


# ---- explanations --------------------------------------------------------------------------------


class ExplanationKind(StrEnum):
    """The result of an explanation."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"
    #: An event waits in a batch, to start one run together with others.
    GATHERED = "gathered"
    #: A run was started without a tick.
    STARTED = "started"
    #: Its time has come, and no scheduler has decided it yet.
    OVERDUE = "overdue"
    COMING = "coming"
    #: A pause will suppress it.
    HELD = "held"
    #: Nothing was planned.
    NO_TICK = "no_tick"
    #: It was planned, and the ledger has no entry for it; or the history of that time is no longer retained.
    UNKNOWN = "unknown"


class SubjectSentence(Struct, frozen=True, kw_only=True):
    """The explanation of a subject in short."""

    at: int
    kind: ExplanationKind
    #: The reason as a code for programs, and as text for people.
    reason: str
    sentence: str


class SubjectExplanation(Struct, frozen=True, kw_only=True):
    """The explanation of a tick, a run, an event or a moment."""

    #: The planned time; without a tick, the moment itself.
    at: int
    kind: ExplanationKind
    #: The reason as a code for programs.
    reason: str
    #: The reason as text for people.
    sentence: str
    #: The time zone of the times in the sentence.
    timezone: str
    #: The description of the schedule at that time, and its revision.
    schedule: str
    revision: int
    decision: Decision | None = None
    decided_at: int | None = None
    #: The ticks around a moment without one.
    previous_at: int | None = None
    next_at: int | None = None
    run: Run | None = None
    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    #: One sentence for each open step: what it waits for.
    waits: tuple[str, ...] = ()


class JobExplanation(Struct, frozen=True, kw_only=True):
    """The answer to a question about a job."""

    job: str
    timezone: str
    #: The description of the schedule now, or before its deletion.
    schedule: str
    explanations: tuple[SubjectExplanation, ...]
    #: The next tick, or why there is none; None if the question was about a moment.
    coming: SubjectExplanation | None = None
    #: How many more subjects there are at the requested moment.
    more: int = 0
    #: History from before this time is no longer retained; None if all of it is.
    forgotten_before: int | None = None
