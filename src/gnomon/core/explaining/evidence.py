"""What an explanation rests on, and what it says."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gnomon.core.explaining.life import Life
from gnomon.core.happenings import Entry, Event
from gnomon.core.model import Attempt, Decision, Run, RunId, Task, TaskId, Tick
from gnomon.core.moments import Moment
from gnomon.core.retention import Horizons
from gnomon.core.routing import DEFAULT_POOL, Placement
from gnomon.core.workflow import Workflow


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
