"""Sends hints in batches: each topic once per batch, so that hints never cost more than they save."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from gnomon.errors import Unavailable
from gnomon.ports.coordination import HintTopic
from gnomon.ports.runtime import Events

SendHints = Callable[[Collection[HintTopic]], Awaitable[None]]
#: The first hint is sent at once; those of the next so many seconds are sent together.
_BATCH_SECONDS = 0.003
#: How long close() waits for the last batch.
_LAST_SECONDS = 1.0


class HintBatcher:
    """Sends topics from a task of its own, so that the caller never waits."""

    def __init__(self, send: SendHints, events: Events) -> None:
        self._send = send
        self._events = events
        self._topics: dict[HintTopic, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._lost = False
        self._closed = False

    def send(self, topic: HintTopic) -> None:
        """See Hints.send."""
        if self._closed:
            return
        self._topics[topic] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_all(), name="gnomon-hints")

    async def close(self) -> None:
        """Send the last batch; give up after a second."""
        self._closed = True
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, _LAST_SECONDS)

    async def _send_all(self) -> None:
        while self._topics:
            topics, self._topics = list(self._topics), {}
            try:
                await self._send(topics)
            except Unavailable as error:
                if not self._lost:
                    self._events.emit("hints_lost", error=str(error))
                self._lost = True
            else:
                self._lost = False
            if not self._closed:
                await asyncio.sleep(_BATCH_SECONDS)
