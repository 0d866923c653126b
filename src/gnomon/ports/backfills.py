"""Planned times of the past that are run after all. Every method is one transaction."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gnomon.core.model import ENGINE, ScheduleUid
from gnomon.core.runs.backfill import Backfill, Carried, EntryReason, Lot, OpenBackfill, Progress


class Backfills(Protocol):
    """Asking for backfills, carrying them out and looking at them."""

    async def add_backfill(self, backfill: Backfill) -> bool:
        """Keep a new backfill. False if there is one of that id."""
        ...

    async def open_backfills(self, *, limit: int) -> Sequence[OpenBackfill]:
        """Those that have not ended, in the order of their ids: those that nobody gave a key the oldest first."""
        ...

    async def have_run(self, uid: ScheduleUid, *, first_at: int, last_at: int) -> Mapping[int, EntryReason]:
        """The planned times of a schedule, from the first up to the last, that had a run, and by what."""
        ...

    async def carry_out_lot(self, lot: Lot, *, now: int) -> Carried:
        """Write the entries down, start their runs beside others and move the mark, if it still is where it was."""
        ...

    async def cancel_backfill(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """Start nothing more of it. False if there is no such backfill that has not ended."""
        ...

    async def find_backfill(self, tenant: str, backfill_id: str) -> Progress | None:
        """The backfill of that id."""
        ...

    async def list_backfills(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[Progress]:
        """Backfills, the newest first; of the same instant by id, backwards. `after` is that of the last one seen."""
        ...
