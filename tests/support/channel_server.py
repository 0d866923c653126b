"""A service that announcements are sent to: it records requests, and answers as the test scripts it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from aiohttp import web


class ReceivedRequest(NamedTuple):
    """A request as the service got it."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


class ScriptedAnswer(NamedTuple):
    """One answer: a status, JSON and headers; or none, or a connection that is cut off."""

    status: int = 200
    json: object = None
    headers: Mapping[str, str] = {}
    #: Never answer; or begin an answer and close the connection.
    silent: bool = False
    cut_off: bool = False


GOOD = ScriptedAnswer(json={"ok": True})
SILENT, CUT_OFF = ScriptedAnswer(silent=True), ScriptedAnswer(cut_off=True)


class ChannelServer:
    """The recorded requests in order, and the answers to come."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        #: The next answers; then `usual`.
        self.answers: list[ScriptedAnswer] = []
        self.usual = GOOD
        #: How long each answer takes.
        self.delay = 0.0
        self.port = 0
        self._changed = asyncio.Condition()
        self.under_way = self.most_under_way = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def texts(self) -> list[str]:
        """The texts that were sent, whatever the service calls them."""
        return [
            str(next(one.json[name] for name in ("text", "content", "message") if name in one.json))
            for one in self.requests
        ]

    async def until(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Record a request and answer."""
        body = await request.read()
        script = self.answers.pop(0) if self.answers else self.usual
        async with self._changed:
            self.requests.append(ReceivedRequest(request.path, dict(request.headers), body))
            self._changed.notify_all()
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            return await self._scripted(request, script)
        finally:
            self.under_way -= 1

    async def _scripted(self, request: web.Request, script: ScriptedAnswer) -> web.StreamResponse:
        if script.silent:
            await asyncio.Event().wait()
        if script.cut_off:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            assert request.transport is not None
            request.transport.close()
            return response
        return web.json_response(script.json, status=script.status, headers=script.headers)


@asynccontextmanager
async def channel_server() -> AsyncIterator[ChannelServer]:
    """A service on a port of its own."""
    server = ChannelServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
