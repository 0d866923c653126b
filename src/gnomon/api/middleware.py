"""What comes before a route is looked for: a turn, and a refusal of odd addresses and of what foreign pages send."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from gnomon.api.fair_queue import RequestPacer
from gnomon.api.problems import MEDIA_TYPE, problem

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
_ODD = msgspec.json.encode(problem(400, "the address is not one that can be meant", code="bad_address"))
_FOREIGN = msgspec.json.encode(
    problem(403, "a page of another site asks, and shows no token of its own", code="other_site")
)

#: What goes on until its caller has had enough, so that there is no end to wait for.
_WITHOUT_END = ("/v1/stream",)


def with_request_checks(app: App, busy: Callable[[], bool]) -> App:
    """The application, behind a queue for all that comes in at once and a look at the address."""
    pace = RequestPacer(busy)

    async def look(scope: _Message, receive: _Receive, send: _Send) -> None:
        await pace()
        if scope["type"] == "http" and _is_malformed_path(scope["path"]):
            await _refuse(send, 400, _ODD)
        elif scope["type"] == "http" and _is_cross_site(scope):
            await _refuse(send, 403, _FOREIGN)
        elif scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] not in _WITHOUT_END:
            await app({**scope, "method": "GET"}, receive, _without_body(send))
        else:
            await app(scope, receive, send)

    return look


def _without_body(send: _Send) -> _Send:
    """Sends the head of an answer, which is the same as if all had been asked for."""

    async def sent(message: _Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sent


def _is_malformed_path(path: str) -> bool:
    """Whether two readers could understand the address differently."""
    parts = path.split("/")
    return not path.startswith("/") or "" in parts[1:-1] or "." in parts or ".." in parts or not path.isprintable()


def _is_cross_site(scope: _Message) -> bool:
    """Whether a browser asks for a change on behalf of a page that was not sent from here.

    Only where something else than a token lets its user in, such as a certificate: that the browser shows by itself.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False
    said = dict(scope["headers"])
    origin, host = said.get(b"origin"), said.get(b"host", b"")
    return b"authorization" not in said and origin is not None and origin.partition(b"://")[2] != host


async def _refuse(send: _Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
