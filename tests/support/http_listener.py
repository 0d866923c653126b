"""An HTTP server that records requests and responds as the test sets it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class HttpListener:
    """The recorded requests in order, and the responses to come."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.agents: list[str] = []
        self.hosts: list[str] = []
        #: The statuses of the next responses; 200 once there are none left.
        self.statuses: list[int] = []
        #: Accept requests and never respond.
        self.hangs = False
        self.called = asyncio.Condition()
        self.port = 0
        self._answering: set[asyncio.Task[None]] = set()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with self.called:
            await self.called.wait_for(lambda: len(self.calls) >= count)

    def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Record a request and respond."""
        task = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def close_connections(self) -> None:
        """Close open connections: a later test would be blamed for those left when the loop ends."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._say(reader, writer)
        finally:
            writer.close()

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        async with self.called:
            self.calls.append(head.split(" ")[1])
            self.agents += [line.partition(": ")[2] for line in head.splitlines() if line.startswith("User-Agent")]
            self.hosts += [line.partition(": ")[2] for line in head.splitlines() if line.startswith("Host")]
            self.called.notify_all()
        if self.hangs:
            await reader.read()
        else:
            status = self.statuses.pop(0) if self.statuses else 200
            writer.write(f"HTTP/1.1 {status} As told\r\nContent-Length: 2\r\n\r\nOK".encode())


@asynccontextmanager
async def listener() -> AsyncIterator[HttpListener]:
    """A server on a port of its own."""
    heard = HttpListener()
    server = await asyncio.start_server(heard.answer, "127.0.0.1", 0)
    heard.port = server.sockets[0].getsockname()[1]
    try:
        yield heard
    finally:
        server.close()
        await heard.close_connections()
