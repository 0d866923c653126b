"""What happens in a scheduler, as values: the thirteen events of the specification.

Every event says when it happened, which task it is about, and what brought it about.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """What brought an event about."""

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
    #: The callback came back, or did not.
    CALLBACK = "callback"
    #: Somebody called `initialize` or `stop`.
    CALL = "call"
    #: `initialize` was refused, or could not be carried out.
    ERROR = "error"
    #: The first task was scheduled.
    SCHEDULED = "scheduled"
    #: Nothing is running any more.
    QUIET = "quiet"


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened."""

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
    """`initialize` was called, and may go on."""


class SchedulerInitializationCompleted(Event, frozen=True, gc=False):
    """Everything is registered and written; `initialize` is about to return."""


class SchedulerInitializationFailed(Event, frozen=True, kw_only=True):
    """`initialize` is about to raise `error`. Nothing was changed."""

    error: BaseException


class SchedulerStopRequested(Event, frozen=True, gc=False):
    """From here on no task is started."""


class SchedulerStopped(Event, frozen=True, gc=False):
    """Nothing runs, everything is written, the state is let go."""


class TaskRunStarted(Event, frozen=True, gc=False):
    """The callback is invoked because the task was due."""


class TaskRetryStarted(Event, frozen=True, gc=False):
    """The callback is invoked because the delay after its failure is over."""


class TaskRetryPreempted(Event, frozen=True, gc=False):
    """The task was waiting for a retry, and is due. The retry is forgotten."""


class TaskRunCompleted(Event, frozen=True, gc=False):
    """The callback returned."""


class TaskRunFailed(Event, frozen=True, kw_only=True):
    """The callback raised `error`. It is retried at `retry_at`, unless it is due before."""

    error: BaseException
    retry_at: datetime


class PollingStarted(Event, frozen=True, gc=False):
    """Schedules are being looked at from here on."""


class PollingStopRequested(Event, frozen=True, gc=False):
    """Schedules are not looked at any more."""


class PollingStopped(Event, frozen=True, gc=False):
    """And nothing that was started is running any more."""
