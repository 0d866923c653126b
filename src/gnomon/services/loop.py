"""The loop around the step of a service, backoff, and long computations that yield to other coroutines."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from time import perf_counter, sleep, thread_time
from typing import TypeVar

import msgspec

from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.runtime import Clock, Events

S = TypeVar("S")
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


#: How long a computation may hold the event loop before everything else runs.
_SLICE_SECONDS = 0.004
#: In processor time: a slice so long had a step that could not be divided.
_LONG_STEP_SECONDS = 2 * _SLICE_SECONDS
#: The longest pause after a computation in a thread. One that takes longer lets others have the interpreter meanwhile.
_LONGEST_REST_SECONDS = 0.05
#: How long other threads wait for the interpreter beside a computation. The loop and the database need it again after
#: each of their calls, so that a longer time would add up.
_SWITCH_SECONDS = 0.0001
#: A source of fewer bytes than this, as compact JSON, is read within a slice or two, unless it has this text: a pattern
#: takes long to compile, and in one piece.
_SMALL_SOURCE, _MARK_OF_PATTERNS = 2_048, b'"pattern'


class _ComputeAllowance:
    """The processor time that the computations of one request may still take."""

    def __init__(self, seconds: float, error: Exception) -> None:
        self._left = seconds
        self._error = error

    def spend(self, seconds: float) -> None:
        """Count processor time; raise the error if it is too much."""
        self._left -= seconds
        if self._left < 0:
            raise self._error


_ALLOWANCE: ContextVar[_ComputeAllowance | None] = ContextVar("gnomon_compute_allowance", default=None)


@contextmanager
def compute_limit(seconds: float, error: Exception) -> Iterator[None]:
    """Raise the error if the computations of this request take more processor time together.

    A machine that is busy with other things does not count: a request is judged by its own cost.
    """
    token = _ALLOWANCE.set(_ComputeAllowance(seconds, error))
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


class ComputeQueue:
    """Long computations for requests, on the event loop that the scheduler shares.

    A computation runs in slices. Between two slices everything else on the loop runs; while the scheduler is busy, it
    has the loop for as long as a slice took. Computations take turns, so that many of them delay the scheduler no more
    than one does. A computation that cannot be divided runs in a thread, one at a time, and with the same pauses: a
    library may hold the interpreter for all of it.
    """

    def __init__(
        self, busy: Callable[[], bool] = lambda: False, *, prepare: Callable[[], object] = lambda: None
    ) -> None:
        """`busy` says whether the scheduler has work to do. `prepare` loads what readers need, before the first one."""
        self._busy, self._prepare = busy, prepare
        self._prepared = False
        self._turn = asyncio.Lock()
        #: The time that computations have taken since the last pause.
        self._used_seconds = 0.0
        #: When the thread may compute again, by its clock.
        self._rests_until = 0.0

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        # One thread: each thread that computes delays the event loop by another switch of the interpreter.
        return ThreadPoolExecutor(1, thread_name_prefix="gnomon-compute")

    async def run(self, steps: Generator[object, None, T]) -> T:
        """The value that the generator returns. It yields often, so that its run can be divided there."""
        while True:
            async with self._turn:
                began = thread_time()
                finished, value = self._slice(steps)
                seconds = thread_time() - began
                _spend(seconds)
                if self._used_seconds >= _SLICE_SECONDS:
                    used, self._used_seconds = self._used_seconds, 0.0
                    await asyncio.sleep(used if self._must_pause(seconds) else 0)
            if finished:
                assert value is not None, "a finished generator has a value"  # noqa: S101 - tells the type checker
                return value[0]

    def _slice(self, steps: Generator[object, None, T]) -> tuple[bool, tuple[T] | None]:
        """Run the generator until the slice is over; return whether it has finished, and its value."""
        # Not the clock of the event loop: a test without one applies its jobs file, too.
        clock = perf_counter
        began = clock()
        until = began + _SLICE_SECONDS - self._used_seconds
        try:
            while True:
                next(steps)
                if clock() >= until:
                    return False, None
        except StopIteration as finished:
            return True, (finished.value,)
        finally:
            self._used_seconds += clock() - began

    async def map(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """The results of the function for each item."""

        def steps() -> Generator[None, None, list[T]]:
            found = []
            for item in items:
                found.append(function(item))
                yield
            return found

        return await self.run(steps())

    async def run_in_thread(self, compute: Callable[[], T]) -> T:
        """The result of a computation that cannot be divided."""

        def timed() -> tuple[T, float]:
            sleep(max(0.0, self._rests_until - perf_counter()))
            began = thread_time()
            try:
                with _SWITCHING.frequent():
                    return compute(), thread_time() - began
            finally:
                used = min(thread_time() - began, _LONGEST_REST_SECONDS)
                self._rests_until = perf_counter() + (used if self._must_pause(used) else 0.0)

        result, seconds = await asyncio.get_running_loop().run_in_executor(self._thread, timed)
        _spend(seconds)
        return result

    def _must_pause(self, seconds: float) -> bool:
        """Whether a pause follows a slice that took so much processor time.

        After a step that could not be divided it does, even if the scheduler is not busy yet: the decision of a tick
        needs the loop several times, and would wait for as many of these steps.
        """
        return seconds >= _LONG_STEP_SECONDS or self._busy()

    async def read(self, source: object, reader: Callable[[], T]) -> T:
        """The result of `reader`, which parses the source: in a slice if that takes little, otherwise in a thread."""
        if not self._prepared:
            await self.run_in_thread(self._prepare)
            self._prepared = True
        text = _compact_json(source)
        if len(text) >= _SMALL_SOURCE or _MARK_OF_PATTERNS in text:
            return await self.run_in_thread(reader)
        [found] = await self.map(lambda read: read(), [reader])
        return found


class _ThreadSwitching:
    """How soon threads of this process have to let others have the interpreter, while computations run in some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._computations = 0
        self._usual = 0.0

    @contextmanager
    def frequent(self) -> Iterator[None]:
        """Switch threads sooner than by the setting of this process."""
        with self._lock:
            if not self._computations:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SWITCH_SECONDS))
            self._computations += 1
        try:
            yield
        finally:
            with self._lock:
                self._computations -= 1
                if not self._computations:
                    sys.setswitchinterval(self._usual)


_SWITCHING = _ThreadSwitching()


def _spend(seconds: float) -> None:
    allowance = _ALLOWANCE.get()
    if allowance is not None:
        allowance.spend(seconds)


def _compact_json(value: object) -> bytes:
    """A value as compact JSON; nothing if it is no JSON, which its reader refuses soon."""
    try:
        return msgspec.json.encode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return b""


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
