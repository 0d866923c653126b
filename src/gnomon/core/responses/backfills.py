"""Responses about backfills."""

from datetime import datetime

from gnomon.core.responses.base import Response


class BackfillDetail(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "to"}):
    """A backfill and its progress."""

    backfill_id: str
    job: str
    from_at: datetime
    until_at: datetime
    #: `under way`, `done` or `cancelled`.
    state: str
    max_parallel: int
    again: bool
    #: The number of planned times; of those that got a run, and of those that had one before.
    planned: int
    fired: int
    skipped: int
    under_way: int
    failed: int
    created_at: datetime
    actor: str
    ended_at: datetime | None


class BackfillPreview(Response, frozen=True, kw_only=True):
    """The planned times that a backfill would run."""

    job: str
    to_run: list[datetime]
    had_a_run: int
