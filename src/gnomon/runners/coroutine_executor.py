"""Coroutine functions and HTTP calls, all on one event loop: one that blocks it blocks no other part of the worker."""

import time
from collections.abc import Sequence

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, error_outcome
from gnomon.runners.http_calls import HTTP_CALL, HttpCallRunner
from gnomon.runners.logs import CURRENT
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import give_up_outcome, returned_outcome

#: How often a function that swallows its cancellation is cancelled again within the grace period. Few, since a repeated
#: cancellation may also interrupt a function during its cleanup.
_REMINDERS = 2


class CoroutineExecutor:
    """Starts coroutine functions, cancels them at their deadlines, and gives up on those that do not stop."""

    def __init__(
        self, table: AttemptTable, environment: RunnerEnvironment, http_calls: HttpCallRunner | None = None
    ) -> None:
        """`http_calls` makes the calls of steps; None if this worker makes none."""
        self._table = table
        self._environment = environment
        self._http_calls = http_calls
        self._thread = LoopThread("gnomon-coroutines")

    def start(self, attempts: Sequence[RunningAttempt]) -> None:
        """Schedule all of them on the loop."""
        self._thread.call(self._begin, attempts)

    def stop(self, attempt: RunningAttempt) -> None:
        """Cancel an attempt that was asked to stop."""
        self._thread.call(self._cancel, attempt)

    def sweep(self, attempts: Sequence[RunningAttempt]) -> None:
        """Give up on attempts that have not stopped within the grace period.

        Called from another thread, since a function may block the loop.
        """
        now = time.monotonic()
        for attempt in attempts:
            if now <= (attempt.stop_requested_at or attempt.deadline) + self._environment.grace:
                continue
            if attempt.claim():
                self._table.drop(attempt, "another function blocked the loop for all that time")
            else:
                attempt.request_stop(Result.TIMED_OUT)
                self._table.give_up(attempt, "; it did not stop, and still runs")

    def close(self) -> bool:
        """End the loop; False if a function blocks it."""
        return self._thread.close(patience=1.0)

    def _begin(self, attempts: Sequence[RunningAttempt]) -> None:
        loop = self._thread.loop
        for attempt in attempts:
            attempt.set_timer(loop, attempt.timeout, self._late)
            attempt.set_task(loop.create_task(self._perform(attempt)))

    async def _perform(self, attempt: RunningAttempt) -> None:
        if attempt.claim():
            attempt.begin_timeout()
            CURRENT.set(attempt.log)
            self._table.end(attempt, await self._outcome(attempt))
        attempt.cancel_timer()

    async def _outcome(self, attempt: RunningAttempt) -> AttemptOutcome:
        try:
            if self._http_calls is not None and attempt.function is HTTP_CALL:
                return await self._http_calls.outcome(attempt)
            try:
                call = attempt.call(self._environment.secrets)
            except UsageError as error:
                return give_up_outcome(attempt.log.redact(str(error)))
            value = await call()
            return returned_outcome(value, max_bytes=self._environment.max_output_bytes, redact=attempt.log.redact)
        except BaseException as error:  # noqa: BLE001 - any error of a function is its outcome
            return error_outcome(attempt, error)

    def _late(self, attempt: RunningAttempt) -> None:
        if attempt.stop_result is None:
            attempt.request_stop(Result.TIMED_OUT)
            self._cancel(attempt)

    def _cancel(self, attempt: RunningAttempt) -> None:
        if attempt.claim():
            self._table.drop(attempt, "was stopped before it began")
        elif attempt.task is not None and not attempt.task.done():
            attempt.task.cancel()
            # An interrupted attempt may still end with a result within the grace period: cancel it only once.
            grace = self._environment.grace
            if attempt.stop_result is not Result.INTERRUPTED and time.monotonic() < attempt.stop_requested_at + grace:
                self._thread.loop.call_later(grace / _REMINDERS, self._cancel, attempt)
