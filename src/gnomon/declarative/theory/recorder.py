"""Record the calls and callbacks of a scheduler as a trace."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from gnomon.declarative.theory.traces import (
    InitCall,
    InitError,
    InitOk,
    RunError,
    RunOk,
    RunStart,
    Seen,
    StopCall,
    StopReturn,
    TracedTask,
)

_MILLISECOND = timedelta(milliseconds=1)
#: Stands in a trace for a value that is not a registration.
_GARBAGE = TracedTask("", "", 0)


class SchedulerProtocol(Protocol):
    """The public methods of a scheduler."""

    async def initialize(self, registrations: Any) -> None:  # noqa: ANN401 - a caller may hand over anything
        """See Scheduler.initialize."""
        ...

    async def stop(self) -> None:
        """See Scheduler.stop."""
        ...


class Watched:
    """Wraps a scheduler, and appends its calls and callbacks to `trace`."""

    def __init__(self, scheduler: SchedulerProtocol, trace: list[Seen], now: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._trace = trace
        self._now = now
        self._initialising: int | None = None
        #: Cleared when the simulated process dies: later events are not recorded.
        self.alive = True
        #: Set when a test makes the state fail, which permits an initialisation to fail.
        self.excused = False

    async def initialize(self, registrations: Any) -> None:  # noqa: ANN401 - a caller may hand over anything
        """See Scheduler.initialize."""
        call = next(_NUMBERS)
        self._see(InitCall(self._now(), call, tuple(self._task(one) for one in _registration_items(registrations))))
        first = self._initialising is None
        self._initialising = call if first else self._initialising
        try:
            await self._scheduler.initialize(self._wrapped(registrations))
        except BaseException:
            self._see(InitError(self._now(), call, self.excused))
            raise
        else:
            self._see(InitOk(self._now(), call))
        finally:
            self._initialising = None if first else self._initialising

    def note_committed(self) -> None:
        """Record an initialisation that has committed as successful: its process dies before it returns."""
        if self._initialising is not None:
            self._see(InitOk(self._now(), self._initialising))

    async def stop(self) -> None:
        """See Scheduler.stop."""
        call = next(_NUMBERS)
        self._see(StopCall(self._now(), call))
        await self._scheduler.stop()
        self._see(StopReturn(self._now(), call))

    def _see(self, seen: Seen) -> None:
        if self.alive:
            self._trace.append(seen)

    def _task(self, registration: Any) -> TracedTask:  # noqa: ANN401 - anything
        match registration:
            case (str() as name, str() as cron, callback, timedelta() as delay) if callable(callback):
                return TracedTask(name, cron, delay // _MILLISECOND + (delay % _MILLISECOND > timedelta()))
        return _GARBAGE

    def _wrapped(self, registrations: Any) -> Any:  # noqa: ANN401 - anything
        if not isinstance(registrations, list | tuple):
            return registrations
        return [
            (one[0], one[1], self._watched(one[0], one[2]), one[3]) if self._task(one) is not _GARBAGE else one
            for one in registrations
        ]

    def _watched(self, name: str, callback: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            number = next(_NUMBERS)
            self._see(RunStart(self._now(), name, number))
            try:
                await callback()
            except BaseException:
                self._see(RunError(self._now(), number))
                raise
            self._see(RunOk(self._now(), number))

        return run


#: Numbers of calls and runs, unique across all schedulers.
_NUMBERS = itertools.count(1)


def _registration_items(registrations: object) -> Sequence[object]:
    return registrations if isinstance(registrations, list | tuple) else [_GARBAGE]
