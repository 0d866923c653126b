"""Runs calls of routes within the limits that all callers of a server share.

Two kinds of callers come here: requests to the API (`gnomon.api.app`), and pages of the dashboard (`gnomon.ui`), which
read and change everything through the same routes. Roles, limits, fairness and the record of refusals are the same.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from gnomon.api.event_stream import EventStream, EventWriter
from gnomon.api.fair_queue import RequestCoalescer, RequestSlots
from gnomon.api.rate_limit import BodyBudget, RateLimiter
from gnomon.api.requests import read_object_in_turn, read_query
from gnomon.api.route import ApiCall, ApiRoute, ApiServices, Reply, acting, find_route, handle_call, refuse_without_role
from gnomon.api.routes import ROUTES
from gnomon.errors import FieldError, Forbidden, Unavailable
from gnomon.ports.auth import Caller
from gnomon.services.loop import ComputeQueue

T = TypeVar("T")
#: A list with more items than this is encoded item by item.
_LONG_LIST = 100
_NO_HEADERS: Mapping[str, str] = {}


class RouteRunner:
    """Calls routes for callers that are authenticated."""

    def __init__(self, services: ApiServices) -> None:
        self.services = services
        self.rate_limiter = RateLimiter(services.server, services.clock)
        self.body_budget = BodyBudget(services.server)
        self._coalescer = RequestCoalescer(services.busy)
        self._slots = RequestSlots()
        #: A file takes seconds to read, and in one piece: bodies, which others wait for, do not wait behind it.
        self._files = ComputeQueue(services.busy)

    async def read_file(self, caller: Caller, read: Callable[[], T]) -> T:
        """The result of `read`, which reads a file that a page was sent: one at a time, in turns by caller."""
        async with self._slots.file_slot(caller):
            return await self._files.run_in_thread(read)

    async def run(
        self, route: ApiRoute, caller: Caller, build: Callable[[], Awaitable[ApiCall]], *, raw: bytes | None
    ) -> Reply:
        """The reply with an encoded body. The call is built when it is its turn."""
        if route.shared:
            call = await build()
            return await self._coalescer.coalesced(_coalescing_key(route, call), partial(_handle, route, call), caller)
        async with self._slots.slot(_working_route(route, raw), caller, size=len(raw or b"")):
            return await _handle(route, await build())

    async def send(
        self,
        caller: Caller,
        method: str,
        target: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Reply:
        """The reply to a request of a page, with an encoded body; errors are raised, and refusals recorded."""
        parts = urlsplit(target)
        route, path = find_route(ROUTES, method, parts.path)

        async def build() -> ApiCall:
            raw_query = dict(parse_qsl(parts.query, keep_blank_values=True))
            return ApiCall(
                services=self.services,
                caller=caller,
                url=parts.path,
                path=path,
                query=read_query(route.query, raw_query),
                raw_query=raw_query,
                body={} if content is None else await read_object_in_turn(content, self.services.compute),
                headers=headers,
                authenticate=partial(_known, caller),
            )

        try:
            refuse_without_role(route, caller)
            return await self.run(route, caller, build, raw=content)
        except Forbidden as error:
            await self.record_refusal(error, route, caller, f"{method} {parts.path}", headers)
            raise

    async def stream(
        self, caller: Caller, path: str, writer: EventWriter, authenticate: Callable[[], Awaitable[Caller]]
    ) -> EventStream:
        """The changes that the route at this path would stream, written in another way."""
        route, _ = find_route(ROUTES, "GET", path)
        try:
            refuse_without_role(route, caller)
        except Forbidden as error:
            await self.record_refusal(error, route, caller, f"GET {path}", _NO_HEADERS)
            raise
        call = ApiCall(
            services=self.services,
            caller=caller,
            url=path,
            path={},
            query=None,
            raw_query={},
            body={},
            headers=_NO_HEADERS,
            authenticate=authenticate,
        )
        return EventStream(call, writer)

    async def record_refusal(
        self, error: Forbidden, route: ApiRoute, caller: Caller, requested: str, headers: Mapping[str, str]
    ) -> None:
        """Record the refused request in the audit trail; it is refused even if the store is unavailable."""
        with suppress(Unavailable, FieldError):
            actor, now = acting(caller, headers), self.services.clock.now()
            await self.services.audit.refused(
                route.name, requested, str(error), actor=actor, tenant=caller.tenant, now=now
            )


async def _known(caller: Caller) -> Caller:
    return caller


def _working_route(route: ApiRoute, raw: bytes | None) -> ApiRoute:
    """The route whose slots a request needs: a message of a model costs as much as the route that it calls."""
    name = route.body.works_as(raw) if raw and route.body is not None and route.body.works_as is not None else None
    return next((one for one in ROUTES if one.name == name), route)


def _coalescing_key(route: ApiRoute, call: ApiCall) -> Hashable:
    """Everything that the response of a shared route depends on, besides the time."""
    return route.name, call.tenant, call.url, frozenset(call.raw_query.items())


async def _handle(route: ApiRoute, call: ApiCall) -> Reply:
    """The reply of the route, encoded: a long list item by item, because the encoder holds the interpreter."""
    reply = await handle_call(route, call)
    if reply.body is None:
        return reply
    body, encoded = reply.body, call.services.compute
    if isinstance(body, msgspec.Struct):
        lists = {name: getattr(body, name) for name in body.__struct_fields__}
        long = {name: one for name, one in lists.items() if isinstance(one, list) and len(one) > _LONG_LIST}
        body = msgspec.structs.replace(body, **{name: await encoded.map(_raw, one) for name, one in long.items()})
    return msgspec.structs.replace(reply, body=_raw(body))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
