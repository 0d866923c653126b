"""A schedule's whole life: what it said when, when it was paused, and which ticks that made at any time."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Attempt, Decision, Run, RunId, Schedule, Spec, Task, TaskId, Tick
from gnomon.core.retention import Horizons
from gnomon.core.runs.external_events import Entry, Event
from gnomon.core.runs.routing import DEFAULT_POOL, Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.core.time_expressions import Moment

_FOREVER = 1 << 62


class Version(Struct, frozen=True, kw_only=True):
    """What a schedule said from some moment on."""

    revision: int
    spec: Spec
    from_at: int
    by: str


class Rest(Struct, frozen=True, kw_only=True):
    """A stretch in which it was paused; it goes on while `until_at` is None."""

    from_at: int
    by: str
    until_at: int | None = None
    ended_by: str | None = None


class Stretch(Struct, frozen=True):
    """The ticks of one version: planned after `after` and up to `until`."""

    version: Version
    ticks: Ticks
    after: int
    until: int


class Life(Struct, frozen=True, kw_only=True):
    """A schedule from its creation to now, or to its end."""

    #: As it is, or was at the end.
    schedule: Schedule
    #: Oldest first; there is at least one.
    versions: tuple[Version, ...]
    rests: tuple[Rest, ...] = ()
    deleted_at: int | None = None
    deleted_by: str = ""

    @property
    def paused(self) -> bool:
        """Whether it is paused now."""
        return self.deleted_at is None and self.schedule.paused_at is not None

    def version_at(self, at: int) -> Version:
        """What it said about a tick at that time; before its beginning, what it said first."""
        found = [one.version for one in self._stretches() if one.after < at <= one.until]
        return found[0] if found else self.versions[0 if at <= self.versions[0].from_at else -1]

    def version(self, revision: int) -> Version:
        """That revision, or the newest before it that is known."""
        return max((one for one in self.versions if one.revision <= revision), key=lambda one: one.revision)

    def next_version(self, version: Version) -> Version | None:
        """What it said after that."""
        return next((one for one in self.versions if one.revision > version.revision), None)

    def rest_at(self, at: int) -> Rest | None:
        """The pause that swallows a tick at that time."""
        found = (one for one in self.rests if one.from_at < at <= (_FOREVER if one.until_at is None else one.until_at))
        return next(found, None)

    def planned(self, first: int, last: int, *, most: int) -> list[int]:
        """The ticks planned from `first` up to `last`, oldest first, but no more than so many."""
        found: list[int] = []
        for stretch in self._stretches():
            at = max(first - 1, stretch.after)
            while len(found) < most and (tick := stretch.ticks.after(at)) is not None:
                if tick > min(last, stretch.until):
                    break
                found.append(tick)
                at = tick
        return found

    def before(self, at: int) -> int | None:
        """The last tick planned before that time."""
        for stretch in reversed(list(self._stretches())):
            found = stretch.ticks.up_to(min(at - 1, stretch.until))
            if found is not None and found > stretch.after:
                return found
        return None

    def after(self, at: int) -> int | None:
        """The first tick planned after that time."""
        for stretch in self._stretches():
            if stretch.until > at:
                found = stretch.ticks.after(max(at, stretch.after))
                if found is not None and found <= stretch.until:
                    return found
        return None

    def _stretches(self) -> Iterator[Stretch]:
        ends = [*(one.from_at for one in self.versions[1:]), _FOREVER if self.deleted_at is None else self.deleted_at]
        for version, until in zip(self.versions, ends, strict=True):
            yield Stretch(version, Ticks(self.schedule.schedule_id, version.spec), version.from_at, until)


class Hand(Struct, frozen=True, kw_only=True):
    """A worker that is alive."""

    worker: str
    functions: tuple[str, ...]
    slots: int
    #: How many of its slots are in use.
    busy: int = 0
    pool: str = DEFAULT_POOL


class Ran(Struct, frozen=True, kw_only=True):
    """What a run is made of."""

    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    #: What it goes by; None if that is not known, or no longer matters.
    workflow: Workflow | None = None


class Happening(Struct, frozen=True):
    """An event to which the job listens, and what became of it."""

    event: Event
    entry: Entry | None


class Namesake(Struct, frozen=True, kw_only=True):
    """An earlier job of the same name."""

    deleted_at: int
    deleted_by: str


class Subject(Struct, frozen=True, kw_only=True):
    """One thing to explain: a tick, a run that no tick asked for, an event, or a moment without any of them."""

    #: The planned time of a tick, when a run was wanted, when an event was emitted, or the moment that was asked about.
    at: int
    #: Without an entry in the ledger it is what would be decided now.
    decision: Decision | None = None
    entry: Tick | None = None
    run: Run | None = None
    happening: Happening | None = None
    #: The moment was asked about, and may be more exact than a tick.
    moment: Moment | None = None
    #: It is, or was, a tick.
    planned: bool = False

    @property
    def started(self) -> RunId | None:
        """The run that came of it, whether that is still kept or not."""
        if self.run is not None:
            return self.run.run_id
        if self.entry is not None:
            return self.entry.run_id
        return None if self.happening is None or self.happening.entry is None else self.happening.entry.run_id


class Evidence(Struct, frozen=True, kw_only=True):
    """All that is known about a job around what is to be explained."""

    life: Life
    earlier: Namesake | None = None
    #: Newest first.
    ticks: tuple[Tick, ...] = ()
    #: Newest first; those near what is explained, and those near now.
    runs: tuple[Run, ...] = ()
    happenings: tuple[Happening, ...] = ()
    #: Of the runs that are explained.
    ran: Mapping[RunId, Ran] = {}
    hands: tuple[Hand, ...] = ()
    #: Where those of their tasks wait that wait for a worker.
    placements: Mapping[TaskId, Placement] = {}
    #: From when on runs, and ticks, are kept; None if all that is asked about is.
    kept: Horizons | None = None


class Kind(StrEnum):
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


class Explanation(Struct, frozen=True, kw_only=True):
    """What became of a tick, a run, an event or a moment, and why."""

    #: The planned time; without a tick, the moment itself.
    at: int
    kind: Kind
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


class Answer(Struct, frozen=True, kw_only=True):
    """What there is to say to someone who asks why."""

    job: str
    timezone: str
    #: What the schedule says now, or said last.
    schedule: str
    explanations: tuple[Explanation, ...]
    #: The next tick, or why there is none; None if a moment was asked about.
    coming: Explanation | None = None
    #: How many more ticks there are within the moment that was asked about.
    more: int = 0
    #: Something may have happened before this, and is no longer kept; None if nothing did.
    forgotten_before: int | None = None
