"""Many at once: those who ask for the same page share an answer, and no crowd keeps the scheduler from its turn."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

import msgspec

from gnomon.api.routes import Reply

#: How many requests are taken up in one turn of the loop.
_AT_ONCE = 4


class Pace:
    """Lets a few pass in each turn of the loop, in the order in which they came: the scheduler comes in between."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self) -> None:
        """Wait for a turn, behind those who came before."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._let_pass, loop)
        passes = loop.create_future()
        self._waiting.append(passes)
        await passes

    def _let_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            passes = self._waiting.popleft()
            if not passes.done():
                passes.set_result(None)
        if self._waiting:
            loop.call_soon(self._let_pass, loop)


class Crowd:
    """The requests that are being dealt with.

    A shared answer is never older than its question: whoever asks while a page is being read waits for the next reading
    of it, together with all who have come meanwhile.
    """

    def __init__(self) -> None:
        self._pace = Pace()
        self._coming: dict[Hashable, asyncio.Task[Reply]] = {}
        self._reading: dict[Hashable, asyncio.Task[Reply]] = {}

    async def shared(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        """What is read for the key after this moment, in JSON already."""
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(self._next(key, read))
        # One who no longer wants to know leaves it to the others.
        reply = await asyncio.shield(coming)
        await self._pace()
        return reply

    async def _next(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        before = self._reading.get(key)
        if before is not None:
            await asyncio.wait([before])
        # Whoever comes from now on comes too late for this one.
        own = self._reading[key] = self._coming.pop(key)
        try:
            reply = await read()
            return msgspec.structs.replace(reply, body=msgspec.Raw(msgspec.json.encode(reply.body)))
        finally:
            if self._reading.get(key) is own:
                del self._reading[key]
