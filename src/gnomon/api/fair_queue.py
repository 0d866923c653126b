"""Many at once: those who ask for the same page share an answer, and no crowd keeps the scheduler from its turn."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType

import msgspec

from gnomon.api.route import Reply

#: How many requests are taken up in one turn of the loop, and how long the next ones wait while the scheduler has
#: something in hand.
_REQUESTS_PER_CYCLE, _YIELD_SECONDS = 4, 0.003
#: How many are sent what was read for them in one turn of the loop, which is soon done.
_REPLIES_PER_CYCLE = 8
#: How many times as long as a page took nobody reads the next one, while the scheduler has something in hand.
_YIELD_FACTOR = 3
#: How many pages are read at once, as each reader takes time from the scheduler; and how long others wait for that at
#: most, as those inside may wait for a store that does not answer.
_MAX_CONCURRENT_READS, _MAX_WAIT_SECONDS = 1, 0.1


class RequestPacer:
    """Lets a few pass in each turn of the loop, in the order in which they came: the scheduler comes in between."""

    def __init__(self, busy: Callable[[], bool], at_once: int = _REQUESTS_PER_CYCLE) -> None:
        self._busy = busy
        self._batch_size = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: How many may still pass before the others have a turn.
        self._remaining = at_once

    async def __call__(self) -> None:
        """Wait for a turn, behind those who came before; one who comes alone does not wait at all."""
        loop = asyncio.get_running_loop()
        if self._remaining == self._batch_size:
            self._schedule_release(loop)
        if self._remaining:
            self._remaining -= 1
            return
        passes = loop.create_future()
        self._waiting.append(passes)
        await passes

    def _release_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._remaining = self._batch_size
        while self._waiting and self._remaining:
            self._remaining -= _wake(self._waiting.popleft())
        if self._remaining < self._batch_size:
            self._schedule_release(loop)

    def _schedule_release(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._busy():
            loop.call_later(_YIELD_SECONDS, self._release_batch, loop)
        else:
            loop.call_soon(self._release_batch, loop)


class ReadSlots:
    """Lets a few in at once, in the order in which they came, and nobody wait for long."""

    def __init__(self) -> None:
        self._active = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._active >= _MAX_CONCURRENT_READS:
            await self._wait_for_slot()
        self._active += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active -= 1
        while self._waiters and self._active < _MAX_CONCURRENT_READS:
            if _wake(self._waiters.popleft()):
                return

    async def _wait_for_slot(self) -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        self._waiters.append(called)
        timer = loop.call_later(_MAX_WAIT_SECONDS, _wake, called)
        try:
            await called
        finally:
            timer.cancel()


def _wake(one: "asyncio.Future[None]") -> bool:
    """Whether one who waits was called in; False if they have been already, or have left."""
    if one.done():
        return False
    one.set_result(None)
    return True


class RequestCoalescer:
    """The requests that are being dealt with.

    A shared answer is never older than its question: whoever asks while a page is being read waits for the next reading
    of it, together with all who have come meanwhile.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy, self._pacer, self._read_slots = busy, RequestPacer(busy, _REPLIES_PER_CYCLE), ReadSlots()
        #: Until when the scheduler comes first, by the clock of the loop.
        self._yield_until = 0.0
        self._queued_reads: dict[Hashable, asyncio.Task[Reply]] = {}
        self._active_reads: dict[Hashable, asyncio.Task[Reply]] = {}

    async def coalesced(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        """What is read for the key after this moment, in JSON already."""
        coming = self._queued_reads.get(key)
        if coming is None:
            coming = self._queued_reads[key] = asyncio.ensure_future(self._read_next(key, read))
        # One who no longer wants to know leaves it to the others.
        reply = await asyncio.shield(coming)
        await self._pacer()
        return reply

    async def _read_next(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        before = self._active_reads.get(key)
        if before is not None:
            await asyncio.wait([before])
        async with self._read_slots:
            await self._pacer()
            await self._yield_to_scheduler()
            # Whoever comes from now on comes too late for this one.
            own = self._active_reads[key] = self._queued_reads.pop(key)
            began = asyncio.get_running_loop().time()
            try:
                reply = await read()
                return msgspec.structs.replace(reply, body=msgspec.Raw(msgspec.json.encode(reply.body)))
            finally:
                self._set_yield_after(began)
                if self._active_reads.get(key) is own:
                    del self._active_reads[key]

    def _set_yield_after(self, began: float) -> None:
        now = asyncio.get_running_loop().time()
        self._yield_until = now + min(_MAX_WAIT_SECONDS, _YIELD_FACTOR * (now - began))

    async def _yield_to_scheduler(self) -> None:
        """Wait until the scheduler has had its share, if it has something in hand."""
        left = self._yield_until - asyncio.get_running_loop().time()
        if left > 0 and self._busy():
            await asyncio.sleep(left)
