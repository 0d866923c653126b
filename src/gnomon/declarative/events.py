"""The thirteen events of the specification.

Every event has its instant, its cause and, if it is about a task, the name of the task.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """The cause of an event."""

    #: The cron expression matches the present minute.
    CRON = "cron"
    #: The cron expression matched while the task could not start: it was running, or the scheduler was down or late.
    MISSED = "missed"
    #: The task was new, and its cron expression matched the minute in which it was registered.
    REGISTRATION = "registration"
    #: The delay after a failure is over.
    RETRY = "retry"
    #: The task was running when an earlier scheduler died.
    ORPHAN = "orphan"
    #: The callback returned or raised.
    CALLBACK = "callback"
    #: The caller called `initialize` or `stop`.
    CALL = "call"
    #: `initialize` raised.
    ERROR = "error"
    #: The first task was scheduled.
    SCHEDULED = "scheduled"
    #: Nothing is running any more.
    QUIET = "quiet"


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all events."""

    #: The instant, in UTC.
    at: datetime
    cause: Cause
    #: The name of the task, if it is about one.
    task: str | None = None

    @property
    def name(self) -> str:
        """The name of the event in the specification."""
        return type(self).__name__


class SchedulerInitializationStarted(Event, frozen=True, gc=False):
    """`initialize` was called on a scheduler that is not active."""


class SchedulerInitializationCompleted(Event, frozen=True, gc=False):
    """Everything is registered and written; `initialize` is about to return."""


class SchedulerInitializationFailed(Event, frozen=True, kw_only=True):
    """`initialize` is about to raise `error`. Nothing was changed."""

    error: BaseException


class SchedulerStopRequested(Event, frozen=True, gc=False):
    """`stop` was called: no task is started any more."""


class SchedulerStopped(Event, frozen=True, gc=False):
    """No task runs, all records are written, and the state is closed."""


class TaskRunStarted(Event, frozen=True, gc=False):
    """The callback is invoked because the task was due."""


class TaskRetryStarted(Event, frozen=True, gc=False):
    """The callback is invoked because the retry delay is over."""


class TaskRetryPreempted(Event, frozen=True, gc=False):
    """The task was waiting for a retry and is due by its schedule. The start replaces the retry."""


class TaskRunCompleted(Event, frozen=True, gc=False):
    """The callback returned."""


class TaskRunFailed(Event, frozen=True, kw_only=True):
    """The callback raised `error`. It is retried at `retry_at`, unless it is due before."""

    error: BaseException
    retry_at: datetime


class PollingStarted(Event, frozen=True, gc=False):
    """The loop has started to look for due tasks."""


class PollingStopRequested(Event, frozen=True, gc=False):
    """The loop was asked to stop looking for due tasks."""


class PollingStopped(Event, frozen=True, gc=False):
    """The loop has stopped, and no task that it started is running."""
