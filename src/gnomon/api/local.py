"""Calls the routes of the API without HTTP.

The command line uses the same routes for a local database as a server does for HTTP requests. Validation,
permissions, services and response types are the same; `gnomon.app.gateway.LocalGateway` sends requests here, and
`gnomon.client.AsyncClient` sends the same requests to a server.

| step            | server (`api.app`)                  | local database (`api.local`)                        |
| --------------- | ----------------------------------- | --------------------------------------------------- |
| transport       | uvicorn, Litestar                   | a function call: `handle_locally`                   |
| route           | Litestar's router                   | `find_route` on the same table `ROUTES`             |
| caller          | bearer token or client certificate  | the local user, with the role admin                 |
| limits          | rate, body size, fair queue         | none                                                |
| query and body  | `read_query`, `read_object`         | `read_query`, `read_object`                         |
| handler         | `handle_call(route, ApiCall)`       | `handle_call(route, ApiCall)`                       |
| response        | encoded as JSON                     | the response object itself                          |
| error           | a problem document                  | the exception itself                                |
| recorded source | `api`                               | `manual`                                            |
| recorded origin | `api`                               | `cli`; of `gnomon cron` `cron`                      |
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from gnomon.api.requests import read_object, read_query
from gnomon.api.route import ApiCall, ApiServices, find_route, handle_call, missing_role
from gnomon.api.routes import ROUTES
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.model import RunSource
from gnomon.ports.auth import Caller


class LocalRequest(Struct, frozen=True, kw_only=True):
    """A request as a client would send it."""

    method: str
    #: The path and, after a question mark, the query.
    target: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}


async def handle_locally(
    services: ApiServices, caller: Caller, request: LocalRequest, *, source: RunSource, origin: OriginKind
) -> Any:  # noqa: ANN401 - each route has its own response type
    """Call the route of the request and return the body of its reply; its errors are raised."""
    parts = urlsplit(request.target)
    route, path = find_route(ROUTES, request.method, parts.path)
    if not caller.roles & route.permission.value:
        raise missing_role(route.permission, caller)
    raw_query = dict(parse_qsl(parts.query, keep_blank_values=True))

    async def authenticate() -> Caller:
        return caller

    call = ApiCall(
        services=services,
        caller=caller,
        url=parts.path,
        path=path,
        query=read_query(route.query, raw_query),
        raw_query=raw_query,
        body={} if request.content is None else read_object(request.content),
        headers={name.lower(): value for name, value in request.headers.items()},
        source=source,
        origin=origin,
        authenticate=authenticate,
    )
    return (await handle_call(route, call)).body
