"""The running attempts of a runner, and the table that counts them and collects their outcomes."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from gnomon.core.model import Result
from gnomon.core.runs.deadlines import deadline_text
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.ports.execution import Finished
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.context import AttemptInfo, Cancelled, Context, StopFlag, attempt_info
from gnomon.runners.logs import TaskLog
from gnomon.runners.outcomes import raised_outcome, with_logs
from gnomon.runners.registry import Function
from gnomon.runners.secrets import SecretSource, redactor
from gnomon.runners.spending import AttemptSpending


class RunnerEnvironment:
    """The secrets and limits that all executors of a runner share."""

    def __init__(
        self,
        secrets: SecretSource,
        *,
        max_output_bytes: int,
        max_log_lines: int,
        grace_ms: int,
        slot_wait_ms: int,
    ) -> None:
        self.secrets = secrets
        self.max_output_bytes = max_output_bytes
        self.max_log_lines = max_log_lines
        self._grace = grace_ms / 1000
        #: Seconds that an attempt may wait for a thread or a process before another worker may have it. Less than the
        #: time that the reconciler allows beyond a timeout, since it counts the wait as running.
        self.slot_wait = slot_wait_ms / 1000

    @property
    def grace(self) -> float:
        """Seconds between a stop request and giving up on the attempt or killing it."""
        return self._grace

    def change_grace(self, seconds: float) -> None:
        """Give attempts so long from now on: the worker stops."""
        self._grace = seconds


class RunningAttempt:
    """One assignment, from its hand-over to the runner until its function or process has ended."""

    __slots__ = (
        "_claim",
        "_ends_at",
        "_limit",
        "_timer",
        "arrived_at",
        "assignment",
        "deadline",
        "function",
        "log",
        "spending",
        "stop_flag",
        "stop_requested_at",
        "stop_result",
        "task",
        "timeout",
    )

    def __init__(self, assignment: Assignment, function: Function, *, timeout_ms: int, log: TaskLog) -> None:
        self.assignment = assignment
        self.function = function
        self.log = log
        self.stop_flag = StopFlag()
        #: When it was handed over, on the monotonic clock.
        self.arrived_at = time.monotonic()
        self._limit = timeout_ms / 1000
        #: The deadline of its task on the monotonic clock.
        self._ends_at = self._deadline_of_task()
        #: Its timeout in seconds, or the time that is left until the deadline of its task, if that is shorter.
        self.timeout = self._limit
        #: The end of its timeout on the monotonic clock. Set again when the function begins.
        self.deadline = self.arrived_at + self.timeout
        self.begin_timeout()
        #: The result that a stop request asked for, and when on the monotonic clock.
        self.stop_result: Result | None = None
        self.stop_requested_at = 0.0
        #: The spending of its function, if that runs in this process and uses a budget.
        self.spending: AttemptSpending | None = None
        self.task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._claim = [True]

    @property
    def ref(self) -> AttemptRef:
        """Its task id and fencing token."""
        task = self.assignment.task
        return task.task_id, task.fence

    @property
    def tenant(self) -> str:
        """The tenant of its run."""
        return self.assignment.run.tenant

    @property
    def job(self) -> str:
        """The name of its job; without a schedule, of its workflow."""
        run = self.assignment.run
        return run.schedule_id or run.workflow_id

    def claim(self) -> bool:
        """True for the first caller only, which either begins the attempt or drops it."""
        try:
            return self._claim.pop()
        except IndexError:
            return False

    @property
    def begun(self) -> bool:
        """Whether it was claimed: it has begun, or was dropped and never will."""
        return not self._claim

    def begin_timeout(self) -> None:
        """Count its timeout from now: its function begins."""
        self.timeout = max(0.0, min(self._limit, self.left_of_task))
        self.deadline = time.monotonic() + self.timeout

    def _deadline_of_task(self) -> float:
        at = self.assignment.task.deadline_at
        return math.inf if at is None else time.monotonic() + (at - time.time_ns() // 1_000_000) / 1000

    @property
    def left_of_task(self) -> float:
        """Seconds until the deadline of its task; infinite without one."""
        return self._ends_at - time.monotonic()

    @property
    def ends_with_task(self) -> bool:
        """Whether the deadline of its task comes before the end of its own timeout."""
        return self.deadline >= self._ends_at

    def set_task(self, task: asyncio.Task[None]) -> None:
        """Set the task of the event loop that executes it."""
        self.task = task

    def set_timer(
        self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[["RunningAttempt"], None]
    ) -> None:
        """Call the function with this attempt after so many seconds, unless the timer is set again or cancelled."""
        self.cancel_timer()
        self._timer = loop.call_later(seconds, call, self)

    def cancel_timer(self) -> None:
        """Cancel the timer. Called on the thread of its event loop."""
        if self._timer is not None:
            self._timer.cancel()

    def request_stop(self, result: Result) -> None:
        """Ask it to stop with this result. The first request counts."""
        if self.stop_result is None:
            self.stop_result, self.stop_requested_at = result, time.monotonic()
        self.stop_flag.request()

    def facts(self) -> AttemptInfo:
        """The facts about the attempt that its function may read."""
        left_ms = round((self.deadline - time.monotonic()) * 1000)
        return attempt_info(self.assignment, deadline_at=time.time_ns() // 1_000_000 + left_ms)

    def _context(self) -> Context:
        """The argument `ctx` of its function."""
        return Context(self.facts(), self.log, self.stop_flag, self.deadline, self.spending)

    def call(self, secrets: SecretSource) -> Callable[[], Any]:
        """The function with its arguments; UsageError if the input does not fit."""
        limits = self.assignment.task.constraints
        if limits is not None and limits.spend:
            self.spending = AttemptSpending(dict(limits.spend))
        binder = self.function.binder
        wanted = binder.wanted(self.assignment)
        given, found = secrets.resolve(wanted, tenant=self.tenant, job=self.job)
        if found:
            self.log.redact_with(redactor(found))
        if binder.takes_nothing and not given:
            return self.function.body
        context = self._context() if binder.takes_context else None
        positional, named = binder.bind(given, context, wanted)
        return partial(self.function.body, *positional, **named)


_STOP_TEXTS = {
    Result.CANCELLED: "was cancelled",
    Result.INTERRUPTED: "was stopped together with its worker",
    Result.LOST: "was stopped: the attempt is no longer its worker's",
    Result.TIMED_OUT: "took longer than",
}


def stopped_outcome(attempt: RunningAttempt, remark: str = "") -> AttemptOutcome:
    """The outcome of an attempt that was asked to stop."""
    result = attempt.stop_result or Result.CANCELLED
    text = _STOP_TEXTS.get(result, "was stopped")
    if result is Result.TIMED_OUT:
        deadline_at = attempt.assignment.task.deadline_at
        if deadline_at is not None and attempt.ends_with_task:
            return AttemptOutcome(result=result, error=deadline_text(deadline_at) + remark, past_deadline=True)
        text = f"{text} {attempt.timeout:g} s"
    return AttemptOutcome(result=result, error=text + remark)


def error_outcome(attempt: RunningAttempt, error: BaseException) -> AttemptOutcome:
    """The outcome of an attempt that ended with the error: stopped, if a stop request raised it."""
    if attempt.stop_result is not None and isinstance(error, asyncio.CancelledError | Cancelled):
        return stopped_outcome(attempt)
    return raised_outcome(error, redact=attempt.log.redact)


def _never_started_outcome(attempt: RunningAttempt, reason: str, *, waited_for_slot: bool) -> AttemptOutcome:
    """The outcome of an attempt that was dropped before it began."""
    if attempt.stop_result is Result.CANCELLED:
        return replace(stopped_outcome(attempt), never_began=True)
    return AttemptOutcome(result=Result.NEVER_STARTED, error=reason, waited_for_slot=waited_for_slot)


class AttemptTable:
    """Three sets of attempts: unreported, occupying a slot, overrunning; plus the finished outcomes.

    All threads use it without a lock: an entry is popped from a dictionary once, and only the thread that popped it
    acts on it.
    """

    def __init__(self, on_finished: Callable[[], object]) -> None:
        self._on_finished = on_finished
        self._unreported: dict[AttemptRef, RunningAttempt] = {}
        self._occupied: dict[AttemptRef, RunningAttempt] = {}
        self._overrunning: dict[AttemptRef, RunningAttempt] = {}
        self._finished: deque[Finished] = deque()
        self._notified = False
        #: Called when no attempt occupies a slot any more, while `wait_until_empty` waits for that.
        self._on_empty: Callable[[], object] | None = None

    @property
    def occupied(self) -> int:
        """How many attempts have not ended, including those that were given up on."""
        return len(self._occupied)

    @property
    def overrunning(self) -> int:
        """How many attempts were given up on and have not ended."""
        return len(self._overrunning)

    def unreported(self) -> Sequence[RunningAttempt]:
        """The attempts whose outcome is not reported yet."""
        return list(self._unreported.values())

    def find(self, ref: AttemptRef) -> RunningAttempt | None:
        """The attempt, if its outcome is not reported yet."""
        return self._unreported.get(ref)

    def add(self, attempt: RunningAttempt) -> None:
        """Add an attempt, which takes a slot."""
        self._unreported[attempt.ref] = self._occupied[attempt.ref] = attempt

    def report(self, attempt: RunningAttempt, outcome: AttemptOutcome) -> bool:
        """Report the outcome; False if one was reported before, and this one is dropped."""
        if self._unreported.pop(attempt.ref, None) is None:
            return False
        lines = attempt.log.take()
        self.add_outcome(attempt.assignment, with_logs(outcome, lines, kept=attempt.log.was_kept))
        return True

    def give_up(self, attempt: RunningAttempt, remark: str) -> bool:
        """Report an attempt that does not stop, and count it as overrunning until it ends.

        False if its outcome was reported before.
        """
        if not self.report(attempt, stopped_outcome(attempt, remark)):
            return False
        self._overrunning[attempt.ref] = attempt
        if attempt.ref not in self._occupied:
            # Another thread has freed the slot in the meantime.
            self._overrunning.pop(attempt.ref, None)
        return True

    def free_slot(self, attempt: RunningAttempt) -> None:
        """Free the slot of an attempt that has ended."""
        self._occupied.pop(attempt.ref, None)
        self._overrunning.pop(attempt.ref, None)
        called = self._on_empty
        if called is not None and not self._occupied:
            called()

    async def wait_until_empty(self, patience: float) -> None:
        """Wait until no attempt occupies a slot, at most `patience` seconds. One caller waits at a time."""
        empty, loop = asyncio.Event(), asyncio.get_running_loop()
        self._on_empty = partial(loop.call_soon_threadsafe, empty.set)
        try:
            if self._occupied:
                async with asyncio.timeout(patience):
                    await empty.wait()
        except TimeoutError:
            pass
        finally:
            self._on_empty = None

    def end(self, attempt: RunningAttempt, outcome: AttemptOutcome) -> bool:
        """Report the outcome and free the slot; False if an outcome was reported before.

        A result counts although the worker is stopping. After a timeout or a cancellation it comes too late, unless it
        says that the attempt was stopped for this.
        """
        counts = attempt.stop_result in (None, Result.INTERRUPTED, outcome.result)
        if attempt.spending is not None:
            outcome = replace(outcome, spent=attempt.spending.amounts)
        reported = self.report(attempt, outcome if counts else replace(stopped_outcome(attempt), usage=outcome.usage))
        self.free_slot(attempt)
        return reported

    def drop(self, attempt: RunningAttempt, reason: str, *, waited_for_slot: bool = False) -> None:
        """Report a claimed attempt as never started, and free its slot."""
        self.report(attempt, _never_started_outcome(attempt, reason, waited_for_slot=waited_for_slot))
        self.free_slot(attempt)

    def add_outcome(self, assignment: Assignment, outcome: AttemptOutcome) -> None:
        """Queue the outcome for `drain_finished`; call `on_finished` for the first since the last drain."""
        self._finished.append(Finished(assignment, outcome))
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):  # the listener's event loop is closed
                self._on_finished()

    def drain_finished(self) -> Sequence[Finished]:
        """All outcomes since the last call. An outcome that arrives during the call triggers `on_finished` again."""
        self._notified = False
        return [self._finished.popleft() for _ in range(len(self._finished))]
