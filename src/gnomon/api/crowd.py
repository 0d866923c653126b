"""Many at once: those who ask for the same page share an answer, and no crowd keeps the scheduler from its turn."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType

import msgspec

from gnomon.api.routes import Reply

#: How many requests are worked at in one turn of the loop, so that the scheduler comes in between; and how long
#: others wait for that at most, as those inside may wait for something themselves.
_AT_ONCE, _PATIENCE_SECONDS = 4, 0.1


class Turns:
    """Lets a few in at once, in the order in which they came, and nobody wait for long."""

    def __init__(self) -> None:
        self._inside = 0
        self._outside: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._inside >= _AT_ONCE:
            await self._called()
        self._inside += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        while self._outside and self._inside < _AT_ONCE:
            if _call(self._outside.popleft()):
                return

    async def _called(self) -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        self._outside.append(called)
        timer = loop.call_later(_PATIENCE_SECONDS, _call, called)
        try:
            await called
        finally:
            timer.cancel()


def _call(one: "asyncio.Future[None]") -> bool:
    """Whether one who waits was called in; False if they have been already, or have left."""
    if one.done():
        return False
    one.set_result(None)
    return True


class Crowd:
    """The requests that are being dealt with.

    A shared answer is never older than its question: whoever asks while a page is being read waits for the next reading
    of it, together with all who have come meanwhile.
    """

    def __init__(self) -> None:
        #: Those who are worked at.
        self.turns = Turns()
        self._coming: dict[Hashable, asyncio.Task[Reply]] = {}
        self._reading: dict[Hashable, asyncio.Task[Reply]] = {}

    async def shared(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        """What is read for the key after this moment, in JSON already."""
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(self._next(key, read))
        # One who no longer wants to know leaves it to the others.
        return await asyncio.shield(coming)

    async def _next(self, key: Hashable, read: Callable[[], Awaitable[Reply]]) -> Reply:
        before = self._reading.get(key)
        if before is not None:
            await asyncio.wait([before])
        async with self.turns:
            # Whoever comes from now on comes too late for this one.
            own = self._reading[key] = self._coming.pop(key)
            try:
                reply = await read()
                return msgspec.structs.replace(reply, body=msgspec.Raw(msgspec.json.encode(reply.body)))
            finally:
                if self._reading.get(key) is own:
                    del self._reading[key]
