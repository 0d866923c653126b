"""Watching a scheduler from outside: its calls and its callbacks, as a trace."""

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
#: What stands in a trace for something that is no registration at all.
_GARBAGE = TracedTask("", "", 0)


class SchedulerProtocol(Protocol):
    """What can be watched."""

    async def initialize(self, registrations: Any) -> None:  # noqa: ANN401 - a caller may hand over anything
        """See Scheduler.initialize."""
        ...

    async def stop(self) -> None:
        """See Scheduler.stop."""
        ...


class Watched:
    """A scheduler of which everything that can be seen is put into `trace`, for as long as it lives."""

    def __init__(self, scheduler: SchedulerProtocol, trace: list[Seen], now: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._trace = trace
        self._now = now
        self._initialising: int | None = None
        #: What a process that died does later is not seen by anybody.
        self.alive = True
        #: Set when the state is made to fail, which excuses an initialisation that does.
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
        """An initialisation has written everything and will not live to return: it counts as one that did."""
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


#: Calls and runs have numbers of their own, whichever scheduler they belong to.
_NUMBERS = itertools.count(1)


def _registration_items(registrations: object) -> Sequence[object]:
    return registrations if isinstance(registrations, list | tuple) else [_GARBAGE]
