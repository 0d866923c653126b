"""Responses about external events."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class EventEntry(Response, frozen=True, kw_only=True):
    """The effect of an event on one job."""

    job: str
    became: str
    reason: str
    execution_id: str | None
    decided_at: datetime


class EventDetail(Response, frozen=True, kw_only=True):
    """An event, and its effect on every job that listens to it."""

    event_id: str
    name: str
    key: str | None
    emitted_at: datetime
    actor: str
    body: Any
    entries: list[EventEntry]
