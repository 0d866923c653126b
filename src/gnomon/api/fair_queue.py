"""Fairness between requests and the scheduler, which share one event loop.

`RequestPacer` admits a few requests per cycle of the loop. `RequestCoalescer` lets concurrent requests for the same
page share one read of the store. Without them a burst of requests would delay ticks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType

import msgspec

from gnomon.api.route import Reply

#: The requests admitted per cycle of the event loop, and the delay of the next batch while the scheduler is busy.
_REQUESTS_PER_CYCLE, _YIELD_SECONDS = 4, 0.003
#: The shared responses sent per cycle: sending is cheaper than reading.
_REPLIES_PER_CYCLE = 8
#: While the scheduler is busy, the next page waits this many times as long as the last one took to read.
_YIELD_FACTOR = 3
#: The pages read at once, since every read takes time from the scheduler; and the longest wait for a slot, since a
#: read may hang on a store that does not respond.
_MAX_CONCURRENT_READS, _MAX_WAIT_SECONDS = 1, 0.1


class RequestPacer:
    """Admits a few requests per cycle of the event loop, first in first out; the scheduler runs in between."""

    def __init__(self, busy: Callable[[], bool], at_once: int = _REQUESTS_PER_CYCLE) -> None:
        self._busy = busy
        self._batch_size = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: The number of requests that may still pass in this cycle.
        self._remaining = at_once

    async def __call__(self) -> None:
        """Wait for admission behind earlier requests; a single request does not wait."""
        loop = asyncio.get_running_loop()
        if self._remaining == self._batch_size:
            self._schedule_release(loop)
        if self._remaining:
            self._remaining -= 1
            return
        admitted = loop.create_future()
        self._waiting.append(admitted)
        await admitted

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


class FairReadSemaphore:
    """A FIFO semaphore that admits a waiter after a maximum wait even if no slot is free."""

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
        woken = loop.create_future()
        self._waiters.append(woken)
        timer = loop.call_later(_MAX_WAIT_SECONDS, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()


def _wake(waiter: "asyncio.Future[None]") -> bool:
    """Wake a waiter; return False if it was awake already or is cancelled."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class RequestCoalescer:
    """Lets concurrent requests for the same page share one read of the store.

    A shared response is never older than the request: a request that arrives during a read waits for the next read,
    together with all others that have arrived since.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy, self._pacer, self._read_slots = busy, RequestPacer(busy, _REPLIES_PER_CYCLE), FairReadSemaphore()
        #: The scheduler has precedence until this time of the loop's clock.
        self._yield_until = 0.0
        self._queued_reads: dict[Hashable, asyncio.Task[Reply]] = {}
        self._active_reads: dict[Hashable, asyncio.Task[Reply]] = {}

    async def coalesced(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        """The response of a read that starts after this call, encoded as JSON."""
        coming = self._queued_reads.get(key)
        if coming is None:
            coming = self._queued_reads[key] = asyncio.ensure_future(self._read_next(key, read))
        # A request that is cancelled must not cancel the read that others wait for.
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
            # A request that arrives from now on needs the next read.
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
        """Wait until the scheduler has had its share of the loop, if it is busy."""
        left = self._yield_until - asyncio.get_running_loop().time()
        if left > 0 and self._busy():
            await asyncio.sleep(left)
