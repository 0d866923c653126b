"""Events from outside: what happened, and what became of it. Every method is one transaction."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.model import ScheduleUid
from gnomon.core.runs.external_events import EventEffect, ExternalEvent


class EventLog(Protocol):
    """Emitting, gathering and looking."""

    async def emit_event(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """Keep the event and what becomes of it for every job that listens to its name; these entries come back.

        An event whose id is known was emitted before: its entries come back and nothing else is done.
        """
        ...

    async def next_batch_at(self) -> int | None:
        """When the next gathering is due."""
        ...

    async def close_event_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """Start the run of every gathering that is due; whose they were comes back."""
        ...

    async def list_events(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """Events, the newest first."""
        ...

    async def find_event(self, event_id: str) -> ExternalEvent | None:
        """The event of that id."""
        ...

    async def entries(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """What became of these events, by event and job."""
        ...
