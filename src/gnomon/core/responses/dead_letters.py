"""Responses about dead letters."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response
from gnomon.core.responses.executions import AttemptDetail


class DeadLetterSummary(Response, frozen=True, kw_only=True):
    """A dead letter in a list."""

    dead_letter_id: str
    job: str
    execution_id: str
    step: str
    reason: str
    attempts: int
    last_error: str | None
    input: Any
    first_attempt_at: datetime
    last_attempt_at: datetime
    created_at: datetime
    resolved: bool
    resolved_at: datetime | None
    resolved_by: str | None
    replayed_by: str | None


class DeadLetterDetail(DeadLetterSummary, frozen=True, kw_only=True):
    """A dead letter with its attempts."""

    attempt_history: list[AttemptDetail]
    #: Whether its execution is still stored.
    kept: bool


class DeadLetterGroup(Response, frozen=True, kw_only=True):
    """The unresolved dead letters of a step with the same first line of their errors."""

    job: str
    step: str
    #: The first line of their errors, cut to 200 characters; empty if they have none.
    error_line: str
    count: int
    #: When the first and the last of them was created.
    oldest_at: datetime
    newest_at: datetime


class DeadLetterResolved(Response, frozen=True, kw_only=True):
    """One of several dead letters that a request has resolved."""

    dead_letter_id: str
    job: str


class Replay(Response, frozen=True, kw_only=True):
    """The result of one of several replays."""

    dead_letter_id: str
    job: str
    execution_id: str | None
    became: str | None
    #: Why there is no execution.
    refused: str | None
