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
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, error_outcome
from gnomon.runners.logs import CURRENT
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import give_up_outcome, returned_outcome


class DaemonThreadPool:
    """At most `limit` threads, started on demand."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[[], object]) -> None:
        """Queue a call for the next free thread."""
        with self._lock:
            self._work.put(work)
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
                self._work.put(None)

    def close(self) -> None:
        """End each thread after the work that is queued."""
        with self._lock:
            self._closed = True
            for _ in range(self._alive):
                self._work.put(None)

    def _grow(self) -> None:
        """Start one more thread if work is waiting and the limit allows it."""
        if self._alive < min(self._limit, self._waiting) and not self._closed:
            self._alive += 1
            threading.Thread(target=self._serve, name=f"gnomon-function-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                with self._lock:
                    self._waiting -= 1
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
            attempt.timer = self._control_loop.loop.call_later(attempt.timeout, self._late, attempt)
            self._threads.submit(partial(copy_context().run, self._perform, attempt))

    def _perform(self, attempt: RunningAttempt) -> None:
        if not attempt.claim():
            return
        attempt.deadline = time.monotonic() + attempt.timeout
        CURRENT.set(attempt.log)
        outcome = self._outcome(attempt)
        if attempt.timer is not None:
            self._control_loop.call(attempt.timer.cancel)
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
        left = attempt.deadline - time.monotonic()
        if attempt.begun and left > 0:
            # It waited for a thread, and its timeout counts from its start.
            attempt.timer = self._control_loop.loop.call_later(left, self._late, attempt)
            return
        if attempt.begun:
            attempt.request_stop(Result.TIMED_OUT)
        self._give_up(attempt)

    def _stop(self, attempt: RunningAttempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if attempt.begun and attempt.stop_result is Result.INTERRUPTED:
            attempt.timer = self._control_loop.loop.call_later(self._environment.grace, self._give_up, attempt)
        else:
            self._give_up(attempt)

    def _give_up(self, attempt: RunningAttempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if attempt.claim():
            self._table.drop(attempt, f"no thread was free within {attempt.timeout:g} s")
        elif self._table.give_up(attempt, "; the function still runs on its thread, and cannot be stopped"):
            self._threads.add_capacity()
