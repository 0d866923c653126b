"""Responses that explain ticks and executions."""

from datetime import datetime

from gnomon.core.responses.base import Response
from gnomon.core.responses.executions import Execution


class WhyDecision(Response, frozen=True, kw_only=True):
    """The ledger entry behind an explanation."""

    kind: str
    reason: str
    first_at: datetime
    last_at: datetime
    count: int
    fire_at: datetime | None
    decided_at: datetime | None


class WhyAttempt(Response, frozen=True, kw_only=True):
    """An attempt by a worker."""

    step: str
    item: int | None
    fence: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: str | None
    error: str | None


class WhyMoment(Response, frozen=True, kw_only=True):
    """The explanation of one moment of a job."""

    at: datetime
    #: The same instant in the time zone of the schedule.
    local: str
    kind: str
    reason: str
    #: The explanation in words.
    sentence: str
    waits: list[str]
    schedule: str
    timezone: str
    revision: int
    decision: WhyDecision | None
    previous_at: datetime | None
    next_at: datetime | None
    execution: Execution | None
    attempts: list[WhyAttempt]


class WhyAnswer(Response, frozen=True, kw_only=True):
    """The explanations of one moment, or of the latest ones."""

    job: str
    schedule: str
    timezone: str
    explanations: list[WhyMoment]
    #: How many more subjects there are at the requested moment.
    more: int
    #: History before this is no longer stored; None if all of it is.
    forgotten_before: datetime | None
    #: The next tick; None if the request was about a moment.
    coming: WhyMoment | None
