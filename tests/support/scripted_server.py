"""An aiohttp server that records every request and answers as the test scripts it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web


class ReceivedRequest(NamedTuple):
    """A request as it arrived."""

    method: str
    #: Path and query exactly as they were sent.
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON
        return json.loads(self.body)


class ScriptedReply(NamedTuple):
    """One answer."""

    status: int = 200
    body: bytes = b"OK"
    headers: Mapping[str, str] = {}
    #: Close the connection after this part of the body.
    cut_after: int | None = None
    #: Never answer.
    silent: bool = False
    #: Send so many bytes again and again, for ever.
    endless: int = 0
    #: Close the connection instead of an answer.
    hangs_up: bool = False


def json_reply(value: object, status: int = 200, **headers: str) -> ScriptedReply:
    """An answer in JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = json.dumps(value, ensure_ascii=False).encode()
    return ScriptedReply(status, body, {"Content-Type": "application/json", **named})


class ScriptedServer:
    """The requests so far, and the answers to come; `200 OK` once there are none left."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.replies: list[ScriptedReply] = []
        self.received = asyncio.Condition()
        #: Set once a client has closed its connection before it got its answer.
        self.given_up = asyncio.Event()
        self.port = 0

    def url(self, target: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{target}"

    def forget(self) -> None:
        """Forget the requests and the answers of one test before the next one."""
        self.requests, self.replies, self.given_up = [], [], asyncio.Event()

    async def until(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with self.received:
            await self.received.wait_for(lambda: len(self.requests) >= count)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Record a request and answer it."""
        body = await request.read()
        async with self.received:
            self.requests.append(ReceivedRequest(request.method, request.path_qs, dict(request.headers), body))
            self.received.notify_all()
        reply = self.replies.pop(0) if self.replies else ScriptedReply()
        if reply.silent:
            await self._wait_for_close(request)
        if reply.hangs_up:
            assert request.transport is not None
            request.transport.abort()
        if reply.endless:
            return await self._send_endlessly(request, b" " * reply.endless)
        if reply.cut_after is not None:
            return await self._cut(request, reply)
        return web.Response(status=reply.status, body=reply.body, headers=dict(reply.headers))

    async def _wait_for_close(self, request: web.BaseRequest) -> None:
        given_up = self.given_up
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        del request

    async def _send_endlessly(self, request: web.BaseRequest, piece: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(0.01)

    async def _cut(self, request: web.BaseRequest, reply: ScriptedReply) -> web.StreamResponse:
        headers = {**reply.headers, "Content-Length": str(len(reply.body))}
        response = web.StreamResponse(status=reply.status, headers=headers)
        await response.prepare(request)
        await response.write(reply.body[: reply.cut_after])
        assert request.transport is not None
        request.transport.close()
        return response


@asynccontextmanager
async def scripted_server(address: str = "127.0.0.1") -> AsyncIterator[ScriptedServer]:
    """A server on a port of its own."""
    server = ScriptedServer()
    runner = web.ServerRunner(web.Server(server.answer, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, address, 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
