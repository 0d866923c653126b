"""Coroutine functions, all on one loop of their own: what blocks there blocks nobody else."""

import time
from collections.abc import Sequence

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, error_outcome
from gnomon.runners.logs import CURRENT
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import give_up_outcome, returned_outcome

#: How often a body that swallows its cancellation is cancelled again within the grace. Few, as each may also hit a body
#: that is just putting things in order.
_REMINDERS = 2


class CoroutineExecutor:
    """Begins them, cancels them at their deadlines, and gives up on those that do not listen."""

    def __init__(self, attempts: AttemptTable, environment: RunnerEnvironment) -> None:
        self._attempts = attempts
        self._environment = environment
        self._thread = LoopThread("gnomon-coroutines")

    def start(self, bodies: Sequence[RunningAttempt]) -> None:
        """Begin with all of them soon."""
        self._thread.call(self._begin, bodies)

    def stop(self, body: RunningAttempt) -> None:
        """Cancel a body that was asked to stop."""
        self._thread.call(self._cancel, body)

    def sweep(self, bodies: Sequence[RunningAttempt]) -> None:
        """Give up on those that have not stopped in their grace. Runs on another thread, as the loop may be blocked."""
        now = time.monotonic()
        for body in bodies:
            if now <= (body.asked or body.ends) + self._environment.grace:
                continue
            if body.claim():
                self._attempts.drop(body, "another function blocked the loop for all that time")
            else:
                body.request_stop(Result.TIMED_OUT)
                self._attempts.give_up(body, "; it did not stop, and still runs")

    def close(self) -> bool:
        """End the loop; False if a body blocks it."""
        return self._thread.close(patience=1.0)

    def _begin(self, bodies: Sequence[RunningAttempt]) -> None:
        loop = self._thread.loop
        for body in bodies:
            body.timer = loop.call_later(body.timeout, self._late, body)
            body.task = loop.create_task(self._perform(body))

    async def _perform(self, body: RunningAttempt) -> None:
        if body.claim():
            body.ends = time.monotonic() + body.timeout
            CURRENT.set(body.log)
            self._attempts.end(body, await self._outcome(body))
        if body.timer is not None:
            body.timer.cancel()

    async def _outcome(self, body: RunningAttempt) -> AttemptOutcome:
        try:
            try:
                call = body.call(self._environment.secrets)
            except UsageError as error:
                return give_up_outcome(body.log.redact(str(error)))
            return returned_outcome(await call(), max_bytes=self._environment.max_output_bytes, redact=body.log.redact)
        except BaseException as error:  # noqa: BLE001 - whatever a function raises is its outcome
            return error_outcome(body, error)

    def _late(self, body: RunningAttempt) -> None:
        if body.why is None:
            body.request_stop(Result.TIMED_OUT)
            self._cancel(body)

    def _cancel(self, body: RunningAttempt) -> None:
        if body.claim():
            self._attempts.drop(body, "was stopped before it began")
        elif body.task is not None and not body.task.done():
            body.task.cancel()
            # One that may still end with a result has its grace for that, undisturbed.
            if body.why is not Result.INTERRUPTED and time.monotonic() < body.asked + self._environment.grace:
                self._thread.loop.call_later(self._environment.grace / _REMINDERS, self._cancel, body)
