"""Events from outside, and their effects on jobs. Every method is one transaction."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.model import ScheduleUid
from gnomon.core.runs.external_events import EventEffect, ExternalEvent


class EventLog(Protocol):
    """Emitting and reading events, and starting the runs of event batches."""

    async def emit(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """Store the event and its effect on every job that listens to its name; return the effects.

        An event whose id exists was emitted before: its effects are returned and nothing is written.
        """
        ...

    async def next_batch_at(self) -> int | None:
        """The time at which the next batch of events is due."""
        ...

    async def close_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """Start the run of every batch that is due; return the uids of their schedules."""
        ...

    async def page(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """Events, newest first."""
        ...

    async def find(self, event_id: str) -> ExternalEvent | None:
        """The event with that id, or None."""
        ...

    async def effects(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """The effects of these events, by event and job."""
        ...
