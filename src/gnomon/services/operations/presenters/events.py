"""Presents external events."""

from gnomon.core.instants import instant_of
from gnomon.core.responses.events import EventDetail, EventEntry
from gnomon.services.operations.events import EmittedEvent
from gnomon.services.operations.presenters.common import decoded


def event_detail(emitted: EmittedEvent) -> EventDetail:
    """An event and its effect on every job that listens to it."""
    event = emitted.event
    return EventDetail(
        event_id=event.event_id,
        name=event.name,
        key=event.key,
        emitted_at=instant_of(event.emitted_at),
        actor=event.actor,
        body=decoded(event.body),
        entries=[
            EventEntry(
                job=entry.schedule_id,
                became=entry.kind.value,
                reason=entry.reason,
                execution_id=entry.run_id,
                decided_at=instant_of(entry.decided_at),
            )
            for entry in emitted.entries
        ],
    )
