"""Responses about announcements."""

from datetime import datetime

from gnomon.core.responses.base import Response


class AnnouncementSummary(Response, frozen=True, kw_only=True):
    """An announcement."""

    announcement_id: str
    job: str
    #: The execution; None if it is about a tick without one.
    execution_id: str | None
    #: The planned time of the execution or of the tick.
    planned_at: datetime
    #: `success`, `failure`, `recovery`, `missed` or `skipped`.
    moment: str
    channel: str
    #: The recipient; empty for that of the channel.
    to: str
    #: Whether its execution does not wait for it.
    best_effort: bool
    #: `pending`, `sent`, `silent` or `given_up`.
    state: str
    #: How many parts of its text were sent, and how many tries have failed.
    parts_sent: int
    tries: int
    #: When it is tried next; None if it is not.
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    #: Why it was not sent, or the last failure.
    note: str | None
