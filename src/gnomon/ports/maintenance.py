"""What is kept for how long: finding what may go, keeping it elsewhere, letting it go. And whose turn that is."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gnomon.core.invariants import Ailment, Counted, Orphan, Overdue
from gnomon.core.model import RunId, Schedule, ScheduleUid
from gnomon.core.retention import Horizons, Past

#: Where a walk through history goes on: an instant, and the name of the last one seen there.
RetentionPosition = tuple[int, str]
BEGINNING: RetentionPosition = (-(1 << 62), "")


class Kind(StrEnum):
    """What may go."""

    RUNS = "runs"
    TICKS = "ticks"
    EVENTS = "events"
    DEAD_LETTERS = "dead_letters"
    SCHEDULES = "schedules"


class Record(Struct, frozen=True):
    """One row as it stands in an archive."""

    #: The table that it stood in.
    table: str
    row: Mapping[str, Any]
    #: The instant by whose day it is archived.
    at: int


class Lot(Struct, frozen=True, kw_only=True):
    """Some of what may go, and where to look for more; None if that was all."""

    kind: Kind
    #: What goes: names, or planned times of the ticks of one schedule.
    names: tuple[Any, ...] = ()
    uid: ScheduleUid | None = None
    records: Sequence[Record] = ()
    after: RetentionPosition | None = None


class Keeping(Protocol):
    """What the cleaner needs of a store. Every method is one transaction; a lot is at most about `limit` rows."""

    async def pasts(self, *, after: str, limit: int) -> Sequence[Past]:
        """Schedules by uid, also those that were deleted."""
        ...

    async def tenants(self) -> Sequence[str]:
        """Whose events and dead letters there are."""
        ...

    async def aged_runs(self, past: Past | None, kept: Horizons, *, after: RetentionPosition, limit: int) -> Lot:
        """Runs that may go, with all that belongs to them, and the runs that they waited for.

        Without a past, those of no schedule.
        """
        ...

    async def aged_ticks(self, past: Past, kept: Horizons, *, after: RetentionPosition, limit: int) -> Lot:
        """Ticks that may go."""
        ...

    async def aged_events(self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int) -> Lot:
        """Events that may go."""
        ...

    async def aged_letters(self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int) -> Lot:
        """Dead letters that may go."""
        ...

    async def aged_schedule(self, uid: ScheduleUid) -> Lot:
        """A schedule of which nothing else is left, with its revisions and pauses."""
        ...

    async def remove(self, lot: Lot, *, limit: int) -> bool:
        """Let about `limit` rows of the lot go. False while there is more of it."""
        ...


class Archive(Protocol):
    """Where records are kept before they are removed."""

    async def keep(self, records: Sequence[Record]) -> None:
        """All of them can be read again, also after a power cut. Keeping the same ones twice is the same as once."""
        ...


class Turns(Protocol):
    """Which of several nodes does what one is enough for."""

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """Whether it is the holder's turn, for so long; nobody else's then. By the clock of whoever keeps them."""
        ...

    async def give_turns_up(self, holder: str) -> None:
        """Every turn of the holder's is over."""
        ...


#: Where a walk through the runs that are not over goes on: a schedule, none first, and a planned time.
OpenPlace = tuple[str, int]
FIRST_OPEN: OpenPlace = ("", -(1 << 62))


class Ailing(Struct, frozen=True):
    """Runs that wait in vain, among some that are not over; and where to look for more, if there are any."""

    runs: Mapping[RunId, Ailment]
    after: OpenPlace | None


class Mending(Protocol):
    """What the mender needs."""

    async def ailing(self, *, before_at: int, after: OpenPlace, limit: int) -> Ailing:
        """Look at about so many runs that are not over and were made before an instant."""
        ...

    async def mend(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """Let every one of them go on that still waits in vain; these come back."""
        ...


class JobCard(Struct, frozen=True, kw_only=True):
    """A job, as far as gauges show it."""

    job: str
    next_fire_at: int | None
    #: One of its runs excludes others.
    locked: bool


class Survey(Struct, frozen=True, kw_only=True):
    """How things stand."""

    #: The store's clock.
    store_at: int
    schema: int
    jobs: int
    #: Schedules whose fire is due and not decided, since when, and how many have been for too long.
    due: int
    oldest_due_at: int | None
    overdue: int
    #: Since when the oldest task has waited for a worker.
    ready_since_at: int | None
    workers: int
    #: Shards whose leases are not over, and how many hold them.
    shards: int
    holders: int
    unresolved: int
    #: The first jobs by name.
    cards: tuple[JobCard, ...] = ()


class Surveyor(Protocol):
    """Reads only, and of each table no more than an index gives away."""

    async def survey(self, now: int, *, overdue_before: int, cards: int) -> Survey:
        """How things stand, with so many jobs in detail."""
        ...

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """The steps of runs that have several, each with its state. Items are not steps."""
        ...


class Vitals(Protocol):
    """What the warden needs."""

    async def idle_schedules(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """Schedules by uid that have times to fire at, are not paused, and have no next fire."""
        ...

    async def give_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """Let the schedule fire next at an instant, if it is still as it was read."""
        ...

    async def orphans(self, *, grace_ms: int, limit: int) -> Sequence[Orphan]:
        """Attempts whose leases ended longer ago than the grace. By the store's clock."""
        ...

    async def oldest_due(self) -> Overdue | None:
        """The schedule whose next fire is the earliest."""
        ...

    async def counted(self, *, after: str, limit: int) -> Sequence[Counted]:
        """Schedules by uid, with their runs."""
        ...

    async def recount(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """The runs of these schedules are counted as they are, and whose turn it is then goes on.

        Those that were counted wrongly come back.
        """
        ...
