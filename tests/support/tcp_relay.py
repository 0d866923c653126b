"""The base of proxies between clients and a server: a port of its own, on a thread of its own."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self

_PATIENCE = 10.0


class TcpRelay(ABC):
    """Handles connections to its port on its own event loop, so that the loop of the test may be busy."""

    def __init__(self, port: int) -> None:
        #: The port of the server.
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__.lower(), daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    @abstractmethod
    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a connection until it ends."""

    # ---- lifecycle ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._run_on_loop(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run_on_loop(self._close())
        self._run_on_loop(_run_pending_callbacks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    # ---- inside ------------------------------------------------------------------------------

    def _run_on_loop(self, what: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the thread of the relay."""
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_PATIENCE)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _run_pending_callbacks() -> None:
    """Run pending callbacks: transports close their sockets in later iterations of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)
