"""Many at once: those who ask for the same page share an answer, and no crowd keeps the scheduler from its turn."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType

import msgspec

from gnomon.api.route import Reply

#: How many requests are taken up in one turn of the loop, and how long the next ones wait while the scheduler has
#: something in hand.
_AT_ONCE, _REST_SECONDS = 4, 0.003
#: How many are sent what was read for them in one turn of the loop, which is soon done.
_ANSWERED_AT_ONCE = 8
#: How many times as long as a page took nobody reads the next one, while the scheduler has something in hand.
_REST_TIMES = 3
#: How many pages are read at once, as each reader takes time from the scheduler; and how long others wait for that at
#: most, as those inside may wait for a store that does not answer.
_READERS, _PATIENCE_SECONDS = 1, 0.1


class Pace:
    """Lets a few pass in each turn of the loop, in the order in which they came: the scheduler comes in between."""

    def __init__(self, busy: Callable[[], bool], at_once: int = _AT_ONCE) -> None:
        self._busy = busy
        self._at_once = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: How many may still pass before the others have a turn.
        self._left = at_once

    async def __call__(self) -> None:
        """Wait for a turn, behind those who came before; one who comes alone does not wait at all."""
        loop = asyncio.get_running_loop()
        if self._left == self._at_once:
            self._go_on(loop)
        if self._left:
            self._left -= 1
            return
        passes = loop.create_future()
        self._waiting.append(passes)
        await passes

    def _let_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._at_once
        while self._waiting and self._left:
            self._left -= _call(self._waiting.popleft())
        if self._left < self._at_once:
            self._go_on(loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._busy():
            loop.call_later(_REST_SECONDS, self._let_pass, loop)
        else:
            loop.call_soon(self._let_pass, loop)


class Turns:
    """Lets a few in at once, in the order in which they came, and nobody wait for long."""

    def __init__(self) -> None:
        self._inside = 0
        self._outside: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._inside >= _READERS:
            await self._called()
        self._inside += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        while self._outside and self._inside < _READERS:
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

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy, self._pace, self._turns = busy, Pace(busy, _ANSWERED_AT_ONCE), Turns()
        #: Until when the scheduler comes first, by the clock of the loop.
        self._resting_until = 0.0
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
        async with self._turns:
            await self._pace()
            await self._rest()
            # Whoever comes from now on comes too late for this one.
            own = self._reading[key] = self._coming.pop(key)
            began = asyncio.get_running_loop().time()
            try:
                reply = await read()
                return msgspec.structs.replace(reply, body=msgspec.Raw(msgspec.json.encode(reply.body)))
            finally:
                self._rest_from(began)
                if self._reading.get(key) is own:
                    del self._reading[key]

    def _rest_from(self, began: float) -> None:
        now = asyncio.get_running_loop().time()
        self._resting_until = now + min(_PATIENCE_SECONDS, _REST_TIMES * (now - began))

    async def _rest(self) -> None:
        """Wait until the scheduler has had its share, if it has something in hand."""
        left = self._resting_until - asyncio.get_running_loop().time()
        if left > 0 and self._busy():
            await asyncio.sleep(left)
