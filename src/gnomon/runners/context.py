"""The context of a running function, and the signals that it may return or raise: Snooze, GiveUp, Cancelled."""

import logging
import math
import time
from datetime import datetime, timedelta
from typing import Any, SupportsFloat

from msgspec import Struct

from gnomon.core.ids import attempt_key
from gnomon.core.instants import instant_of
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import FieldError
from gnomon.runners.logs import TaskLog, logger_into
from gnomon.runners.spending import AttemptSpending

_LONGEST_SNOOZE = 365 * 24 * 60 * 60


class Snooze(Exception):
    """Returned or raised by a function: call it again after the delay. A snooze is no failure and costs no attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(delay)
        self.delay = delay


def snooze_ms(delay: object) -> int:
    """The delay of a Snooze in milliseconds; FieldError if it is not a duration of at most 365 days."""
    number = delay.total_seconds() if isinstance(delay, timedelta) else delay
    try:
        seconds = float(number) if isinstance(number, SupportsFloat) else math.nan
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds <= _LONGEST_SNOOZE:
        raise FieldError("Snooze", delay, f"must be a number of seconds from 0 to {_LONGEST_SNOOZE} (365 days)")
    return round(seconds * 1000)


class GiveUp(Exception):
    """Returned or raised by a function: it failed, and a retry would fail again."""

    def __init__(self, reason: str = "the function gave up") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(BaseException):
    """Raised in a function that must stop. Not an Exception, so that `except Exception` does not catch it."""


class AttemptInfo(Struct, frozen=True, kw_only=True):
    """The facts about an attempt, in a form that can be sent to another process."""

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
    #: End of the timeout on the wall clock.
    deadline_at: int | None
    #: The limits under which the policy lets it run, by name.
    constraints: dict[str, Any] = {}


class StopFlag:
    """Whether a stop was requested. The executor sets it, the function reads it."""

    __slots__ = ("_requested",)

    def __init__(self) -> None:
        self._requested = False

    @property
    def requested(self) -> bool:
        """Whether the function is to stop."""
        return self._requested

    def request(self) -> None:
        """Ask the function to stop."""
        self._requested = True


def attempt_info(assignment: Assignment, *, deadline_at: int | None) -> AttemptInfo:
    """The facts about the attempt of an assignment."""
    run, task = assignment.run, assignment.task
    return AttemptInfo(
        run_id=run.run_id,
        task_id=task.task_id,
        job=run.schedule_id or run.workflow_id,
        step=assignment.step.name,
        planned_at=run.planned_at,
        attempt=assignment.attempt,
        fence=task.fence,
        idempotency_key=assignment.key or attempt_key(run, task, assignment.step),
        source=run.source,
        user_id=run.user_id,
        deadline_at=deadline_at,
        constraints={} if task.constraints is None else task.constraints.as_data(),
    )


class Context:
    """The `ctx` argument of a function. Any thread may use it."""

    __slots__ = ("_ends", "_facts", "_log", "_logger", "_spending", "_stop")

    def __init__(
        self,
        facts: AttemptInfo,
        log: TaskLog,
        stop: StopFlag,
        ends: float | None,
        spending: AttemptSpending | None = None,
    ) -> None:
        self._facts = facts
        self._spending = spending or AttemptSpending({})
        self._log = log
        self._stop = stop
        #: End of the timeout on the monotonic clock.
        self._ends = ends
        self._logger: logging.Logger | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._facts.run_id

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._facts.task_id

    @property
    def job(self) -> str:
        """The name of the job, or of the workflow if it was run without a job."""
        return self._facts.job

    @property
    def step(self) -> str:
        """The name of the step in its workflow."""
        return self._facts.step

    @property
    def planned_at(self) -> datetime:
        """The instant that the run was planned for, even if it starts late."""
        return instant_of(self._facts.planned_at)

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._facts.attempt

    @property
    def fence(self) -> int:
        """The fencing token: it grows with every attempt of the task.

        A system that accepts only writes with the highest token seen so far is safe from attempts that were replaced.
        """
        return self._facts.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a run, and for no other run; a compensation has another one."""
        return self._facts.idempotency_key

    @property
    def source(self) -> str:
        """The source of the run: cron, manual, api or event."""
        return self._facts.source

    @property
    def user_id(self) -> str:
        """The user that the job runs for."""
        return self._facts.user_id

    @property
    def deadline(self) -> datetime | None:
        """The end of the timeout, on the wall clock."""
        return None if self._facts.deadline_at is None else instant_of(self._facts.deadline_at)

    @property
    def constraints(self) -> dict[str, Any]:
        """The limits under which the policy lets it run, such as `max_runtime_ms`; empty without any."""
        return dict(self._facts.constraints)

    def spend(self, meter: str, amount: int = 1) -> None:
        """Count what the function spends of a meter, before it does; BudgetExceeded if the attempt may not.

        The budgets of the policy say how much an attempt may spend. A meter without a budget has no limit.
        """
        self._spending.spend(meter, amount)

    def remaining(self) -> float:
        """Seconds until the deadline; infinity without one."""
        return math.inf if self._ends is None else max(0.0, self._ends - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the function must stop: it timed out, its run is cancelled or its worker is stopping."""
        return self._stop.requested

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the function must stop."""
        if self._stop.requested:
            raise Cancelled

    def log(self, text: str, level: str = "info") -> None:
        """Add a line to the task's log."""
        self._log.add(level, text)

    @property
    def logger(self) -> logging.Logger:
        """A logger whose records of every level go only to the task's log."""
        if self._logger is None:
            self._logger = logger_into(self._log)
        return self._logger
