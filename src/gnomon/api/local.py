"""Asking without HTTP: the same routes, for whoever has the store at hand."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from gnomon.api.requests import read_object, read_query
from gnomon.api.route import Call, Desk, Route
from gnomon.api.routes import ROUTES
from gnomon.core.model import Source
from gnomon.errors import Forbidden, NotFound
from gnomon.ports.auth import Caller


class Request(Struct, frozen=True, kw_only=True):
    """What a client would send."""

    method: str
    #: The path, with what is asked for after a question mark.
    target: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}


async def answered(desk: Desk, caller: Caller, request: Request, *, source: Source) -> Any:  # noqa: ANN401 - each route has an answer of its own
    """What the route of the request answers; what it refuses is raised."""
    parts = urlsplit(request.target)
    route, path = _found(request.method, parts.path)
    if not caller.roles & route.needs.value:
        raise Forbidden(f"this needs one of the roles {', '.join(sorted(route.needs.value))}")
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    call = Call(
        desk=desk,
        caller=caller,
        url=parts.path,
        path=path,
        query=read_query(route.query, asked),
        asked=asked,
        body={} if request.content is None else read_object(request.content),
        headers={name.lower(): value for name, value in request.headers.items()},
        source=source,
    )
    return (await route.handle(call)).body


def _found(method: str, path: str) -> tuple[Route, dict[str, str]]:
    said = path.split("/")
    for route in ROUTES:
        parts = route.path.split("/")
        fits = len(parts) == len(said) and all(
            part.startswith("{") or part == word for part, word in zip(parts, said, strict=True)
        )
        if fits and route.method == method:
            pairs = zip(parts, said, strict=True)
            return route, {part[1:-1]: unquote(word) for part, word in pairs if part.startswith("{")}
    raise NotFound("address", path)
