"""What is said to those who ask why."""

from datetime import datetime

from gnomon.core.answers import Answer, Execution


class WhyDecision(Answer, frozen=True, kw_only=True):
    """The row of the ledger that an explanation reads."""

    kind: str
    reason: str
    first_at: datetime
    last_at: datetime
    count: int
    fire_at: datetime | None
    decided_at: datetime | None


class WhyAttempt(Answer, frozen=True, kw_only=True):
    """What a worker has tried."""

    step: str
    item: int | None
    fence: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: str | None
    error: str | None


class WhyMoment(Answer, frozen=True, kw_only=True):
    """Why a job did what it did at a moment, or did nothing."""

    at: datetime
    #: The same instant on the clocks of the schedule.
    local: str
    kind: str
    reason: str
    #: The answer in words.
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


class WhyAnswer(Answer, frozen=True, kw_only=True):
    """Why, of one moment or of the last few."""

    job: str
    schedule: str
    timezone: str
    explanations: list[WhyMoment]
    #: How many more there are within the moment that was asked about.
    more: int
    #: What comes next; None if a moment was asked about.
    coming: WhyMoment | None
