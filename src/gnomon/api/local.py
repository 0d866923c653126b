"""Asking without HTTP: the same routes, for whoever has the store at hand."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from gnomon.api.requests import read_object, read_query
from gnomon.api.route import ApiCall, ApiRoute, ApiServices
from gnomon.api.routes import ROUTES
from gnomon.core.model import Source
from gnomon.errors import Forbidden, NotFound
from gnomon.ports.auth import Caller


class LocalRequest(Struct, frozen=True, kw_only=True):
    """What a client would send."""

    method: str
    #: The path, with what is asked for after a question mark.
    target: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}


async def handle_locally(services: ApiServices, caller: Caller, request: LocalRequest, *, source: Source) -> Any:  # noqa: ANN401 - each route has an answer of its own
    """What the route of the request answers; what it refuses is raised."""
    parts = urlsplit(request.target)
    route, path = _match_route(request.method, parts.path)
    if not caller.roles & route.permission.value:
        raise Forbidden(f"this needs one of the roles {', '.join(sorted(route.permission.value))}")
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    call = ApiCall(
        services=services,
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


def _match_route(method: str, path: str) -> tuple[ApiRoute, dict[str, str]]:
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
