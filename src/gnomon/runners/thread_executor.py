"""Threads for functions that are not coroutines.

They are daemons, unlike those of the standard library's pools: a function that never returns must not keep the program
from ending.
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
    """At most so many threads, made when they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[[], object]) -> None:
        """Have it called as soon as a thread is free."""
        with self._lock:
            self._work.put(work)
            self._waiting += 1
            self._grow()

    def add_capacity(self) -> None:
        """One thread is stuck: another may take its place."""
        with self._lock:
            self._limit += 1
            self._grow()

    def remove_capacity(self) -> None:
        """It is no longer stuck."""
        with self._lock:
            self._limit -= 1
            if self._alive > self._limit:
                self._work.put(None)

    def close(self) -> None:
        """Threads end when they have nothing more to do."""
        with self._lock:
            self._closed = True
            for _ in range(self._alive):
                self._work.put(None)

    def _grow(self) -> None:
        """One more thread, if there is work that the existing ones may not get to."""
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
    """Begins them as threads become free, and minds their deadlines on a loop where no function runs."""

    def __init__(
        self, attempts: AttemptTable, environment: RunnerEnvironment, control_loop: LoopThread, *, threads: int
    ) -> None:
        self._attempts = attempts
        self._environment = environment
        self._control_loop = control_loop
        self._threads = DaemonThreadPool(threads)

    def start(self, bodies: Sequence[RunningAttempt]) -> None:
        """Begin with all of them soon."""
        self._control_loop.call(self._begin, bodies)

    def stop(self, body: RunningAttempt) -> None:
        """Give up on a body that was asked to stop: at once, or after its grace if it may still end with a result."""
        self._control_loop.call(self._stop, body)

    def close(self) -> None:
        """Threads end with what they do."""
        self._threads.close()

    def _begin(self, bodies: Sequence[RunningAttempt]) -> None:
        for body in bodies:
            body.timer = self._control_loop.loop.call_later(body.timeout, self._late, body)
            self._threads.submit(partial(copy_context().run, self._perform, body))

    def _perform(self, body: RunningAttempt) -> None:
        if not body.claim():
            return
        body.ends = time.monotonic() + body.timeout
        CURRENT.set(body.log)
        outcome = self._outcome(body)
        if body.timer is not None:
            self._control_loop.call(body.timer.cancel)
        if not self._attempts.end(body, outcome):
            self._threads.remove_capacity()
            _log.info("function %s has returned after it was given up on", body.function.name)

    def _outcome(self, body: RunningAttempt) -> AttemptOutcome:
        try:
            try:
                call = body.call(self._environment.secrets)
            except UsageError as error:
                return give_up_outcome(body.log.redact(str(error)))
            return returned_outcome(call(), max_bytes=self._environment.max_output_bytes, redact=body.log.redact)
        except BaseException as error:  # noqa: BLE001 - whatever a function raises is its outcome
            return error_outcome(body, error)

    def _late(self, body: RunningAttempt) -> None:
        left = body.ends - time.monotonic()
        if body.begun and left > 0:
            # It waited for a thread before it began.
            body.timer = self._control_loop.loop.call_later(left, self._late, body)
            return
        if body.begun:
            body.request_stop(Result.TIMED_OUT)
        self._give_up(body)

    def _stop(self, body: RunningAttempt) -> None:
        if body.timer is not None:
            body.timer.cancel()
        if body.begun and body.why is Result.INTERRUPTED:
            body.timer = self._control_loop.loop.call_later(self._environment.grace, self._give_up, body)
        else:
            self._give_up(body)

    def _give_up(self, body: RunningAttempt) -> None:
        if body.timer is not None:
            body.timer.cancel()
        if body.claim():
            self._attempts.drop(body, f"no thread was free within {body.timeout:g} s")
        elif self._attempts.give_up(body, "; the function still runs on its thread, and cannot be stopped"):
            self._threads.add_capacity()
