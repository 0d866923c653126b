"""The loop around the step of a service, backoff, and long loops that yield to other coroutines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.runtime import Clock, Events

T = TypeVar("T")
#: After how many items other coroutines run.
_BATCH = 10
#: How long to wait after an unexpected error of a step.
_ERROR_PAUSE_SECONDS = 1.0
#: In seconds: how late timers of the system may be, and from which wait on that does not matter.
_TIMER_SLACK_SECONDS = 0.0012
_LONG = 1.0


async def run_loop(
    name: str,
    step: Callable[[], Awaitable[float]],
    *,
    stop: asyncio.Event,
    wake: asyncio.Event | None = None,
    events: Events | None = None,
) -> None:
    """Call `step` until `stop` is set, each time after as many seconds as it asked for, or sooner when woken.

    With `events`, an unexpected error is announced as `step_failed` of the component `name`, and the step is retried;
    without, it ends the loop.
    """
    while not stop.is_set():
        if wake is not None:
            wake.clear()
        try:
            wait = await step()
        except Exception as error:
            if events is None:
                raise
            with suppress(Exception):  # not even a faulty event sink ends the loop
                events.emit("step_failed", step=name, error=repr(error))
            wait = _ERROR_PAUSE_SECONDS
        if wait > 0:
            await _wait_for_any(stop, wake, wait)
        else:
            # Even a service with much to do lets other coroutines run.
            await asyncio.sleep(0)


async def _wait_for_any(stop: asyncio.Event, wake: asyncio.Event | None, seconds: float) -> None:
    """Wait for one of the events, or for so long: exactly, although system timers may be late by a millisecond."""
    events = [event for event in (stop, wake) if event is not None]
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    coarse = seconds - _TIMER_SLACK_SECONDS if seconds < _LONG else seconds
    if coarse > 0 and not any(event.is_set() for event in events):
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=coarse, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
    while loop.time() < until and not any(event.is_set() for event in events):  # noqa: ASYNC110 - for the last millisecond
        await asyncio.sleep(0)


async def yield_between_batches(many: Sequence[T], size: int = _BATCH) -> AsyncIterator[T]:
    """Each item; after every `size` of them other coroutines run, such as the ticker."""
    for start in range(0, len(many), size):
        if start:
            await asyncio.sleep(0)
        for one in many[start : start + size]:
            yield one


_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


class Backoff:
    """The pause of a service after each failure in a row: doubled each time, up to `longest` seconds."""

    def __init__(self, events: Events, service: str, *, longest: float = _LONGEST_SECONDS) -> None:
        self._events = events
        self._service = service
        self._longest = longest
        self._pause = _FIRST_SECONDS
        #: Whether the last step failed.
        self.failing = False
        #: The message of the last failure.
        self.error = ""

    async def attempt(self, step: Callable[[], Awaitable[float]]) -> float:
        """Return the seconds that the step asks to wait, or the pause if the store or the bus is unavailable."""
        try:
            wait = await step()
        except Unavailable as error:
            return self.failed(error)
        self.worked()
        return wait

    async def retry(self, step: Callable[[], Awaitable[float]], clock: Clock, *, tries: int) -> float | None:
        """Return what the step returns, after a pause and another try if it failed; None if every try failed."""
        for _ in range(tries):
            try:
                wait = await step()
            except Unavailable as error:
                await clock.sleep(self.failed(error))
            else:
                self.worked()
                return wait
        return None

    def failed(self, error: Unavailable) -> float:
        """Announce the failure, and return the seconds to wait before the next try."""
        self.failing, self.error = True, str(error)
        what = "bus_unavailable" if isinstance(error, BusUnavailable) else "store_unavailable"
        self._events.emit(what, service=self._service, error=self.error)
        pause, self._pause = self._pause, min(self._pause * 2, self._longest)
        return pause

    def worked(self) -> None:
        """Start with the first pause again after the next failure."""
        self._pause, self.failing = _FIRST_SECONDS, False
