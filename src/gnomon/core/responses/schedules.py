"""Responses about schedules and workflows."""

from datetime import datetime

from gnomon.core.responses.base import Response
from gnomon.core.responses.jobs import LedgerTick


class ScheduleExplained(Response, frozen=True, kw_only=True):
    """A schedule in words, as cron, and its next fires."""

    schedule: str
    sentence: str
    #: None if cron cannot express it.
    cron: str | None
    timezone: str
    #: The next fires in UTC, and in the time zone of the schedule.
    fires: list[datetime]
    local_fires: list[str]


class ScheduleRegistered(Response, frozen=True, kw_only=True):
    """The result of registering a schedule."""

    schedule_id: str
    next_run_at: datetime | None


class ScheduleDetail(Response, frozen=True, kw_only=True):
    """A schedule with its next planned times and its last decisions."""

    schedule_id: str
    workflow_id: str
    version: int
    user_id: str
    #: The schedule in words, and as cron; None if cron cannot express it.
    schedule: str
    cron: str | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    next_run_at: datetime | None
    paused: bool
    jitter_ms: int
    overlap: str
    catchup: str
    revision: int
    updated_at: datetime
    next_runs: list[datetime]
    last_ticks: list[LedgerTick]


class WorkflowDeployed(Response, frozen=True, kw_only=True):
    """The result of a deployment."""

    workflow_id: str
    version: int
    #: Whether that version is new.
    new: bool
    schedules: list[str]
    removed: list[str]
    #: Commands that need an approval and have none: they are refused until an admin approves the workflow.
    warnings: list[str] = []


class WorkflowSummary(Response, frozen=True, kw_only=True):
    """A workflow in its newest version."""

    workflow_id: str
    version: int
    steps: list[str]
    tags: list[str]
