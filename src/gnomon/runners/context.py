"""What a running function can learn about its attempt, and what it can say besides a result."""

import logging
import math
import time
from datetime import datetime, timedelta
from typing import SupportsFloat

from msgspec import Struct

from gnomon.core.ids import idempotency_key
from gnomon.core.instants import instant_of
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import FieldError
from gnomon.runners.logs import TaskLog, logger_into

_LONGEST_SNOOZE = 365 * 24 * 60 * 60


class Snooze(Exception):
    """Returned or raised by a function: call again after so long. It is no failure, and costs no attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(delay)
        self.delay = delay


def snooze_ms(delay: object) -> int:
    """How long a function wants to be left alone; FieldError if that is no span of at most a year."""
    said = delay.total_seconds() if isinstance(delay, timedelta) else delay
    try:
        seconds = float(said) if isinstance(said, SupportsFloat) else math.nan
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds <= _LONGEST_SNOOZE:
        raise FieldError("Snooze", delay, f"must be a number of seconds from 0 to {_LONGEST_SNOOZE} (365 days)")
    return round(seconds * 1000)


class GiveUp(Exception):
    """Returned or raised by a function: it failed, and trying again is no use."""

    def __init__(self, reason: str = "the function gave up") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(BaseException):
    """Raised inside a function that is to stop. No Exception, so that a function does not catch it by accident."""


class AttemptInfo(Struct, frozen=True, kw_only=True):
    """What an attempt is about, in a form that can be sent to another process."""

    run_id: str
    task_id: str
    job: str
    step: str
    planned_at: int
    attempt: int
    fence: int
    idempotency_key: str
    source: str
    user_id: str
    #: When the time is up, by the clock on the wall.
    deadline_at: int | None


class StopFlag:
    """Whether a body is to stop. Written by those who mind it, read by the body."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


def attempt_info(assignment: Assignment, *, deadline_at: int | None) -> AttemptInfo:
    """The facts of an assignment."""
    run, task = assignment.run, assignment.task
    return AttemptInfo(
        run_id=run.run_id,
        task_id=task.task_id,
        job=run.schedule_id or run.workflow_id,
        step=assignment.step.name,
        planned_at=run.planned_at,
        attempt=assignment.attempt,
        fence=task.fence,
        idempotency_key=idempotency_key(run),
        source=run.source,
        user_id=run.user_id,
        deadline_at=deadline_at,
    )


class Context:
    """What a function is given as `ctx`. May be used from any thread."""

    __slots__ = ("_ends", "_facts", "_log", "_logger", "_stop")

    def __init__(self, facts: AttemptInfo, log: TaskLog, stop: StopFlag, ends: float | None) -> None:
        self._facts = facts
        self._log = log
        self._stop = stop
        #: When the time is up, by the clock that nobody sets.
        self._ends = ends
        self._logger: logging.Logger | None = None

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""
        return self._facts.run_id

    @property
    def task_id(self) -> str:
        """The task that is being tried."""
        return self._facts.task_id

    @property
    def job(self) -> str:
        """The job, or the workflow if it was run without one."""
        return self._facts.job

    @property
    def step(self) -> str:
        """The step of the workflow."""
        return self._facts.step

    @property
    def planned_at(self) -> datetime:
        """The instant that the run was planned for, however late it starts."""
        return instant_of(self._facts.planned_at)

    @property
    def attempt(self) -> int:
        """Which try it is, counted from 1."""
        return self._facts.attempt

    @property
    def fence(self) -> int:
        """A number that grows with every attempt of the task: who accepts only the highest is safe from stragglers."""
        return self._facts.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a run, and for no other run."""
        return self._facts.idempotency_key

    @property
    def source(self) -> str:
        """What made the run: cron, manual, api or event."""
        return self._facts.source

    @property
    def user_id(self) -> str:
        """For whom it runs."""
        return self._facts.user_id

    @property
    def deadline(self) -> datetime | None:
        """When the time is up."""
        return None if self._facts.deadline_at is None else instant_of(self._facts.deadline_at)

    def remaining(self) -> float:
        """How many seconds are left; infinitely many without a deadline."""
        return math.inf if self._ends is None else max(0.0, self._ends - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the function is to stop: its time is up, its run is cancelled or its worker stops."""
        return self._stop.asked

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the function is to stop."""
        if self._stop.asked:
            raise Cancelled

    def log(self, text: str, level: str = "info") -> None:
        """Add a line to the task's log."""
        self._log.add(level, text)

    @property
    def logger(self) -> logging.Logger:
        """A logger whose records of every level go to the task's log, and nowhere else."""
        if self._logger is None:
            self._logger = logger_into(self._log)
        return self._logger
