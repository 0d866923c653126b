"""Bodies: assignments while they run, and the desk where all of them are accounted for."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.ports.execution import Finished
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.context import AttemptInfo, Cancelled, Context, StopFlag, attempt_info
from gnomon.runners.logs import TaskLog
from gnomon.runners.outcomes import raised_outcome, with_logs
from gnomon.runners.registry import Function
from gnomon.runners.secrets import SecretSource, redactor


class RunnerEnvironment:
    """What every kind of body needs."""

    def __init__(self, secrets: SecretSource, *, max_output_bytes: int, max_log_lines: int, grace_ms: int) -> None:
        self.secrets = secrets
        self.max_output_bytes = max_output_bytes
        self.max_log_lines = max_log_lines
        #: How many seconds a body has between being told to stop and being given up on, or killed.
        self.grace = grace_ms / 1000


class RunningAttempt:
    """One assignment, from being handed over until it has really ended."""

    __slots__ = ("_claim", "asked", "assignment", "ends", "function", "log", "stop", "task", "timeout", "timer", "why")

    def __init__(self, assignment: Assignment, function: Function, *, timeout_ms: int, log: TaskLog) -> None:
        self.assignment = assignment
        self.function = function
        self.log = log
        self.stop = StopFlag()
        self.timeout = timeout_ms / 1000
        #: When its time is up, by the monotonic clock. Counted anew from when it begins.
        self.ends = time.monotonic() + self.timeout
        #: What it was told to end with, and when.
        self.why: Result | None = None
        self.asked = 0.0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._claim = [True]

    @property
    def held(self) -> AttemptRef:
        """Its task and attempt."""
        task = self.assignment.task
        return task.task_id, task.fence

    def claim(self) -> bool:
        """True for one caller only: the one who begins it, or the one who sees to it that it never begins."""
        try:
            return self._claim.pop()
        except IndexError:
            return False

    @property
    def begun(self) -> bool:
        """Whether it has begun, or never will."""
        return not self._claim

    def request_stop(self, why: Result) -> None:
        """Tell it to stop. The first reason counts."""
        if self.why is None:
            self.why, self.asked = why, time.monotonic()
        self.stop.asked = True

    def facts(self) -> AttemptInfo:
        """What it may know about its attempt."""
        left_ms = round((self.ends - time.monotonic()) * 1000)
        return attempt_info(self.assignment, deadline_at=time.time_ns() // 1_000_000 + left_ms)

    def call(self, secrets: SecretSource) -> Callable[[], Any]:
        """The function with its arguments; UsageError if the input does not fit."""
        binder = self.function.binder
        wanted = binder.wanted(self.assignment)
        given, found = secrets.resolve(wanted)
        if found:
            self.log.redact = redactor(found)
        if binder.takes_nothing and not given:
            return self.function.body
        context = Context(self.facts(), self.log, self.stop, self.ends) if binder.takes_context else None
        positional, named = binder.bind(given, context, wanted)
        return partial(self.function.body, *positional, **named)


_STOP_TEXTS = {
    Result.CANCELLED: "was cancelled",
    Result.INTERRUPTED: "was stopped together with its worker",
    Result.LOST: "was stopped: the attempt is no longer its worker's",
    Result.TIMED_OUT: "took longer than",
}


def stopped_outcome(body: RunningAttempt, remark: str = "") -> AttemptOutcome:
    """The outcome of a body that was told to stop."""
    why = body.why or Result.CANCELLED
    text = _STOP_TEXTS.get(why, "was stopped")
    if why is Result.TIMED_OUT:
        text = f"{text} {body.timeout:g} s"
    return AttemptOutcome(result=why, error=text + remark)


def error_outcome(body: RunningAttempt, error: BaseException) -> AttemptOutcome:
    """The outcome of a body that ended with the error: it was stopped, if it let that end it."""
    if body.why is not None and isinstance(error, asyncio.CancelledError | Cancelled):
        return stopped_outcome(body)
    return raised_outcome(error, redact=body.log.redact)


def _never_started_outcome(body: RunningAttempt, reason: str) -> AttemptOutcome:
    """The outcome of a body that did not begin, and never will."""
    if body.why is Result.CANCELLED:
        return stopped_outcome(body)
    return AttemptOutcome(result=Result.NEVER_STARTED, error=reason)


class AttemptTable:
    """Who is in hand, who occupies a slot, and what came of the others. Used from all threads.

    Each entry leaves a dictionary once, and whoever took it out is the one who acts: no lock is needed.
    """

    def __init__(self, on_finished: Callable[[], object]) -> None:
        self._on_finished = on_finished
        self._unreported: dict[AttemptRef, RunningAttempt] = {}
        self._occupied: dict[AttemptRef, RunningAttempt] = {}
        self._overrunning: dict[AttemptRef, RunningAttempt] = {}
        self._finished: deque[Finished] = deque()
        self._notified = False
        #: Called whenever the last body has left.
        self.on_empty: Callable[[], object] | None = None

    @property
    def occupied(self) -> int:
        """How many have not really ended."""
        return len(self._occupied)

    @property
    def overrunning(self) -> int:
        """How many of them were given up on."""
        return len(self._overrunning)

    def unreported(self) -> Sequence[RunningAttempt]:
        """Those of whom nothing has been told yet."""
        return list(self._unreported.values())

    def find(self, held: AttemptRef) -> RunningAttempt | None:
        """The body, if nothing has been told of it yet."""
        return self._unreported.get(held)

    def add(self, body: RunningAttempt) -> None:
        """A slot is taken."""
        held = body.held
        self._unreported[held] = self._occupied[held] = body

    def report(self, body: RunningAttempt, outcome: AttemptOutcome) -> bool:
        """Tell what came of it; False if that was told before, and this is dropped."""
        if self._unreported.pop(body.held, None) is None:
            return False
        self.add_outcome(body.assignment, with_logs(outcome, body.log.take()))
        return True

    def give_up(self, body: RunningAttempt, remark: str) -> bool:
        """It does not stop: tell that, and count it until it really ends; False if its outcome was told before."""
        if not self.report(body, stopped_outcome(body, remark)):
            return False
        self._overrunning[body.held] = body
        if body.held not in self._occupied:
            # It has ended while this was noted.
            self._overrunning.pop(body.held, None)
        return True

    def free_slot(self, body: RunningAttempt) -> None:
        """The slot is free again."""
        self._occupied.pop(body.held, None)
        self._overrunning.pop(body.held, None)
        called = self.on_empty
        if called is not None and not self._occupied:
            called()

    def end(self, body: RunningAttempt, outcome: AttemptOutcome) -> bool:
        """It has ended: tell what came of it, unless that was done, and free its slot.

        What ends with a result although its worker stops has done its work; at a deadline or a cancel it is too late.
        """
        counts = body.why in (None, Result.INTERRUPTED)
        told = self.report(body, outcome if counts else stopped_outcome(body))
        self.free_slot(body)
        return told

    def drop(self, body: RunningAttempt, reason: str) -> None:
        """It has not begun, and never will."""
        self.report(body, _never_started_outcome(body, reason))
        self.free_slot(body)

    def add_outcome(self, assignment: Assignment, outcome: AttemptOutcome) -> None:
        """Keep the outcome for whoever collects, and call them once."""
        self._finished.append(Finished(assignment, outcome))
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):  # whoever wanted to know has closed their loop
                self._on_finished()

    def drain_finished(self) -> Sequence[Finished]:
        """All outcomes since the last time. Whatever comes after it began is announced again."""
        self._notified = False
        return [self._finished.popleft() for _ in range(len(self._finished))]
