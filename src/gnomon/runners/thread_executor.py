"""Functions that are not coroutines, on a pool of daemon threads.

The threads are daemons, unlike those of the standard library's pools: a function that never returns must not keep the
program from exiting. A thread cannot be stopped either: the executor gives up on a function that overruns, and the pool
replaces its thread until the function returns.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue

from gnomon.core.model import Result
from gnomon.core.runs.fair_share import TenantQueue
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, error_outcome
from gnomon.runners.logs import CURRENT
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import give_up_outcome, returned_outcome


class DaemonThreadPool:
    """At most `limit` threads, started on demand, shared fairly between tenants."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work = TenantQueue[Callable[[], object]]()
        #: A turn for each work that waits; None ends a thread.
        self._turns: SimpleQueue[bool | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._waiting = 0
        self._closed = False

    def submit(self, tenant: str, work: Callable[[], object]) -> None:
        """Queue a call for the next free thread."""
        with self._lock:
            self._work.add(tenant, work)
            self._turns.put(True)
            self._waiting += 1
            self._grow()

    def add_capacity(self) -> None:
        """Allow one more thread, in place of one that is stuck."""
        with self._lock:
            self._limit += 1
            self._grow()

    def remove_capacity(self) -> None:
        """Allow one thread less: a stuck one is free again."""
        with self._lock:
            self._limit -= 1
            if self._alive > self._limit:
                self._turns.put(None)

    def close(self) -> None:
        """End each thread after the work that is queued."""
        with self._lock:
            self._closed = True
            for _ in range(self._alive):
                self._turns.put(None)

    def _grow(self) -> None:
        """Start one more thread if work is waiting and the limit allows it."""
        if self._alive < min(self._limit, self._waiting) and not self._closed:
            self._alive += 1
            threading.Thread(target=self._serve, name=f"gnomon-function-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        while self._turns.get() is not None:
            with self._lock:
                tenant, work = self._work.pop()
            try:
                work()
            finally:
                with self._lock:
                    self._waiting -= 1
                    self._work.ended(tenant)
        with self._lock:
            self._alive -= 1


_log = logging.getLogger(__name__)


class ThreadExecutor:
    """Starts functions as threads become free, and watches deadlines on the control loop, which runs no function."""

    def __init__(
        self, table: AttemptTable, environment: RunnerEnvironment, control_loop: LoopThread, *, threads: int
    ) -> None:
        self._table = table
        self._environment = environment
        self._control_loop = control_loop
        self._threads = DaemonThreadPool(threads)

    def start(self, attempts: Sequence[RunningAttempt]) -> None:
        """Schedule all of them on the control loop."""
        self._control_loop.call(self._begin, attempts)

    def stop(self, attempt: RunningAttempt) -> None:
        """Give up on an attempt that was asked to stop; an interrupted one has the grace period to end first."""
        self._control_loop.call(self._stop, attempt)

    def close(self) -> None:
        """End each thread when its function returns."""
        self._threads.close()

    def _begin(self, attempts: Sequence[RunningAttempt]) -> None:
        for attempt in attempts:
            patience = min(attempt.timeout, self._environment.slot_wait)
            attempt.set_timer(self._control_loop.loop, patience, self._late)
            work = partial(copy_context().run, self._perform, attempt)
            self._threads.submit(attempt.assignment.run.tenant, work)

    def _perform(self, attempt: RunningAttempt) -> None:
        if not attempt.claim():
            return
        attempt.begin_timeout()
        CURRENT.set(attempt.log)
        outcome = self._outcome(attempt)
        self._control_loop.call(attempt.cancel_timer)
        if not self._table.end(attempt, outcome):
            self._threads.remove_capacity()
            _log.info("function %s has returned after it was given up on", attempt.function.name)

    def _outcome(self, attempt: RunningAttempt) -> AttemptOutcome:
        try:
            try:
                call = attempt.call(self._environment.secrets)
            except UsageError as error:
                return give_up_outcome(attempt.log.redact(str(error)))
            return returned_outcome(call(), max_bytes=self._environment.max_output_bytes, redact=attempt.log.redact)
        except BaseException as error:  # noqa: BLE001 - any error of a function is its outcome
            return error_outcome(attempt, error)

    def _late(self, attempt: RunningAttempt) -> None:
        # Its timeout counts from its start, and it may have waited for a thread.
        left = self._time_left(attempt)
        if left > 0:
            attempt.set_timer(self._control_loop.loop, left, self._late)
            return
        if attempt.begun:
            attempt.request_stop(Result.TIMED_OUT)
        self._give_up(attempt)

    def _time_left(self, attempt: RunningAttempt) -> float:
        """Seconds until the end of its timeout, or of its wait for a thread; it may begin at any moment."""
        now = time.monotonic()
        if attempt.begun:
            return attempt.deadline - now
        return min(attempt.arrived_at + self._environment.slot_wait - now, attempt.timeout, attempt.left_of_task)

    def _stop(self, attempt: RunningAttempt) -> None:
        attempt.cancel_timer()
        if attempt.begun and attempt.stop_result is Result.INTERRUPTED:
            attempt.set_timer(self._control_loop.loop, self._environment.grace, self._give_up)
        else:
            self._give_up(attempt)

    def _give_up(self, attempt: RunningAttempt) -> None:
        attempt.cancel_timer()
        if attempt.claim():
            stopped = attempt.stop_result is not None
            waited = f"no thread was free within {self._environment.slot_wait:g} s"
            self._table.drop(attempt, "was stopped before it began" if stopped else waited, waited_for_slot=not stopped)
        elif self._table.give_up(attempt, "; the function still runs on its thread, and cannot be stopped"):
            self._threads.add_capacity()
