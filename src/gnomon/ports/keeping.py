"""What is kept for how long: finding what may go, keeping it elsewhere, letting it go. And whose turn that is."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gnomon.core.model import ScheduleUid
from gnomon.core.retention import Horizons, Past

#: Where a walk through history goes on: an instant, and the name of the last one seen there.
Place = tuple[int, str]
BEGINNING: Place = (-(1 << 62), "")


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
    after: Place | None = None


class Keeping(Protocol):
    """What the cleaner needs of a store. Every method is one transaction; a lot is at most about `limit` rows."""

    async def pasts(self, *, after: str, limit: int) -> Sequence[Past]:
        """Schedules by uid, also those that were deleted."""
        ...

    async def tenants(self) -> Sequence[str]:
        """Whose events and dead letters there are."""
        ...

    async def aged_runs(self, past: Past | None, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """Runs that may go, with all that belongs to them, and the runs that they waited for.

        Without a past, those of no schedule.
        """
        ...

    async def aged_ticks(self, past: Past, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """Ticks that may go."""
        ...

    async def aged_events(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
        """Events that may go."""
        ...

    async def aged_letters(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
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
