"""Hints between those who share one loop."""

import asyncio

from gnomon.ports.coordination import Heard, Topic


class Board:
    """Where those who share it hear each other."""

    def __init__(self) -> None:
        self.listeners: dict[MemoryHints, Heard] = {}


class MemoryHints:
    """The port Hints."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._closed = False

    def tell(self, topic: Topic) -> None:
        """See Hints.tell."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        for other, heard in self._board.listeners.items():
            if other is not self:
                loop.call_soon(heard, topic)

    async def listen(self, heard: Heard) -> None:
        """See Hints.listen."""
        self._board.listeners[self] = heard
        for topic in Topic:
            heard(topic)

    async def close(self) -> None:
        """See Hints.close."""
        self._closed = True
        self._board.listeners.pop(self, None)
