"""What comes before a route is looked for: a turn, and a look at the address, which all must understand alike."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from gnomon.api.crowd import Pace
from gnomon.api.problems import MEDIA_TYPE, problem

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
_REFUSED = msgspec.json.encode(problem(400, "the address is not one that can be meant", code="bad_address"))


def guarded(app: App) -> App:
    """The application, behind a queue for all that comes in at once and a look at the address."""
    pace = Pace()

    async def look(scope: _Message, receive: _Receive, send: _Send) -> None:
        await pace()
        if scope["type"] == "http" and _odd(scope["path"]):
            await _refuse(send)
        else:
            await app(scope, receive, send)

    return look


def _odd(path: str) -> bool:
    parts = path.split("/")
    return not path.startswith("/") or "" in parts[1:-1] or "." in parts or ".." in parts or not path.isprintable()


async def _refuse(send: _Send) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(_REFUSED)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
