"""Responses about executions, their steps and their logs."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.announcements import AnnouncementSummary
from gnomon.core.responses.base import Response


class Execution(Response, frozen=True, kw_only=True):
    """An execution in a list, or a tick without one, whose status is `skipped`."""

    #: The key of the tick if it was skipped.
    execution_id: str
    #: The job, or the workflow if it was run without one.
    job: str
    #: The version of the workflow; None if it was skipped.
    version: int | None
    #: `cron`, `manual`, `api`, `event` or `backfill`.
    trigger: str
    #: `pending`, `running`, `completed`, `failed`, `cancelled` or `skipped`.
    status: str
    #: Why it was skipped, and how many planned times in a row with it.
    reason: str | None = None
    count: int = 1
    queued: bool
    #: The number of the last attempt, of the step that had most; 0 before the first.
    attempt: int
    planned_at: datetime
    #: The key of the tick that started it; None if no schedule did.
    tick_key: str | None
    created_at: datetime
    #: When it was created, started, asked to stop or ended, the last of these.
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None
    user_id: str
    #: The caller that requested it; empty if a schedule started it.
    actor: str
    error: str | None
    key: str | None
    replay_of: str | None
    #: Whether its end was announced: `pending`, `sent`, `silent` or `given_up`; None if it is not announced.
    announced: str | None = None
    #: The tokens that its agents have read and written so far, and their cost in the currency of the prices; None if
    #: none has run.
    tokens: int | None = None
    cost: float | None = None


class AttemptDetail(Response, frozen=True, kw_only=True):
    """One attempt of a step."""

    attempt: int
    worker: str
    dispatched_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: How it ended; None while it is open.
    result: str | None
    error: str | None


class WorkDetail(Response, frozen=True, kw_only=True):
    """The state of a step, or of one of its items."""

    state: str
    waits_for: str | None = None
    #: When it can start, if it waits for a time only.
    waits_until: datetime | None = None
    skipped: bool = False
    upstream_failed: bool = False
    note: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: When it ends, whatever it does; None without a deadline.
    deadline_at: datetime | None = None
    output: Any = None
    attempts: list[AttemptDetail] = []


class ItemDetail(WorkDetail, frozen=True, kw_only=True):
    """One item of a step with `foreach`."""

    item: int | None


class StepDetail(WorkDetail, frozen=True, kw_only=True):
    """A step of an execution."""

    step: str
    depends_on: list[str] = []
    when: str | None = None
    #: The condition under which it runs.
    condition: str | None = None
    #: The execution that it started and waits for.
    execution_id: str | None = None
    #: The first hundred items, and the number of items by state; None for a step without `foreach`.
    items: list[ItemDetail] | None = None
    item_counts: dict[str, int] | None = None


class ExecutionDetail(Execution, frozen=True, kw_only=True):
    """An execution with all its details."""

    input: Any
    parent_task: str | None
    #: When its cancellation was requested.
    cancel_requested_at: datetime | None
    #: When everything that is left of it ends; None without a deadline.
    deadline_at: datetime | None = None
    #: `running`, `complete` or `incomplete`, and why it is rolled back; None without a rollback.
    rollback: str | None
    rollback_cause: str | None
    steps: list[StepDetail]
    announcements: list[AnnouncementSummary] = []


class LogEntry(Response, frozen=True, kw_only=True):
    """A line that a step logged."""

    at: datetime
    level: str
    step: str
    #: The number of the item; None if the step has none.
    item: int | None
    #: The number of the line, from 1.
    line: int
    text: str


class Started(Response, frozen=True, kw_only=True):
    """The result of a request to start an execution."""

    execution_id: str
    #: `started`, `queued`, or `already` if a request with the same key came before.
    became: str


class Ended(Response, frozen=True, kw_only=True):
    """The result of a request to cancel an execution."""

    execution_id: str
    #: `cancelled`, or `asked` while running attempts have been asked to stop.
    became: str


class RollbackStarted(Response, frozen=True, kw_only=True):
    """The result of a request to roll an execution back."""

    execution_id: str
    #: Always `running`.
    rollback: str


class Launched(Response, frozen=True, kw_only=True):
    """Whether the run launcher started the run."""

    started: bool
