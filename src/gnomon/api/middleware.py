"""ASGI middleware before routing: paces requests, refuses ambiguous paths and cross-site requests, and adds headers."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from gnomon.api.fair_queue import RequestPacer
from gnomon.api.problems import MEDIA_TYPE, problem
from gnomon.core.security_headers import encoded_security_headers

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
_BAD_PATH = msgspec.json.encode(
    problem(400, "the path is ambiguous or has characters that are not allowed", code="bad_address")
)
_CROSS_SITE = msgspec.json.encode(
    problem(403, "the request comes from a page of another site and has no token", code="other_site")
)

_SECURITY_HEADERS = encoded_security_headers()

#: Responses that end only when the client disconnects; HEAD would wait for them forever.
ENDLESS_PATHS = ("/v1/stream", "/ui/stream")


def with_request_checks(app: App, busy: Callable[[], bool]) -> App:
    """The application behind the request pacer and the checks of path and origin."""
    pace = RequestPacer(busy)

    async def check(scope: _Message, receive: _Receive, send: _Send) -> None:
        await pace()
        if scope["type"] == "http" and _is_malformed_path(scope["path"]):
            await _refuse(send, 400, _BAD_PATH)
        elif scope["type"] == "http" and _is_cross_site(scope):
            await _refuse(send, 403, _CROSS_SITE)
        elif scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] not in ENDLESS_PATHS:
            await app({**scope, "method": "GET"}, receive, _without_body(send))
        else:
            await app(scope, receive, send)

    return check


def with_security_headers(app: App) -> App:
    """The application with the security headers on each response; a page may send some of them with other values."""

    async def serve(scope: _Message, receive: _Receive, send: _Send) -> None:
        async def send_with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                named = {name.lower() for name, _ in own}
                added = [header for header in _SECURITY_HEADERS if header[0] not in named]
                message = {**message, "headers": [*own, *added]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return serve


def _without_body(send: _Send) -> _Send:
    """Send the headers of the response to GET, without its body."""

    async def sent(message: _Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sent


def _is_malformed_path(path: str) -> bool:
    """Whether two parsers could understand the path differently."""
    parts = path.split("/")
    return not path.startswith("/") or "" in parts[1:-1] or "." in parts or ".." in parts or not path.isprintable()


def _is_cross_site(scope: _Message) -> bool:
    """Whether a browser sends a change on behalf of a page of another origin.

    Requests with a token are safe: a browser adds a client certificate by itself, but never a token.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    return b"authorization" not in headers and origin is not None and origin.partition(b"://")[2] != host


async def _refuse(send: _Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
