"""The door: lets requests in, hands them to their route, and sends back what comes of it."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from gnomon.api.fair_queue import Crowd
from gnomon.api.openapi import document
from gnomon.api.problems import MEDIA_TYPE, Problem, headers_of, problem, problem_of
from gnomon.api.rate_limit import Intake, Limiter
from gnomon.api.requests import read_object, read_query
from gnomon.api.route import CERTIFICATE, Body, Call, Desk, Permission, Reply, Route
from gnomon.api.routes import ROUTES
from gnomon.core.auth import names_in
from gnomon.errors import FieldError, Forbidden, GnomonError, TooLarge, TooMany, Unauthenticated, Unavailable, WrongType
from gnomon.ports.auth import Caller

_NOBODY = Caller("", frozenset())
#: From so many bytes on a body is read beside everything else.
_LARGE = 65_536
_Anything = Request[Any, Any, Any]


class _Limits(NamedTuple):
    limiter: Limiter
    intake: Intake
    crowd: Crowd


def application(
    desk: Desk, *, surprised: Callable[[BaseException], None], routes: Sequence[Route] = ROUTES
) -> Litestar:
    """The API on a desk. `surprised` is told of what no one thought of; callers are not."""
    limits = _Limits(Limiter(desk.server, desk.clock), Intake(desk.server), Crowd(desk.busy))

    @cache
    def described() -> msgspec.Raw:
        # Few ask, and it takes a while.
        return msgspec.Raw(msgspec.json.encode(document((*routes, *_DESCRIPTION))))

    async def describe(call: Call) -> Reply:
        del call
        return Reply(body=described())

    own = [*routes, *(msgspec.structs.replace(route, handle=describe) for route in _DESCRIPTION)]
    return Litestar(
        route_handlers=[_handler(route, desk, limits) for route in own],
        exception_handlers={
            GnomonError: _refusal,
            HTTPException: _no_route,
            Exception: lambda request, error: _surprise(request, error, surprised),
        },
        openapi_config=None,
        # The door counts by itself, with the limit that is configured.
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


async def _described(call: Call) -> Reply:
    """Describe everything that can be asked for, as OpenAPI 3.1."""
    del call
    return Reply()


_DESCRIPTION = (
    Route(
        method="GET",
        path="/openapi.json",
        name="describe",
        needs=Permission.EVERYBODY,
        handle=_described,
        answer=dict[str, Any],
        success={200: "It is described."},
    ),
)


def _handler(route: Route, desk: Desk, limits: _Limits) -> HTTPRouteHandler:
    if not isinstance(route.needs, Permission):
        raise TypeError(f"{route.name} does not say who may")

    async def handle(request: _Anything) -> Response[Any]:
        caller = await _caller(route, desk, request)
        if caller is not _NOBODY:
            limits.limiter.admit(caller)
        try:
            return await answered(request, caller)
        except Forbidden as error:
            await _write_down(error, route, desk, caller, request)
            raise

    async def answered(request: _Anything, caller: Caller) -> Response[Any]:
        _refuse_without_role(route, caller)
        with limits.intake.held() as more:
            raw = None if route.body is None else await _raw(route.body, desk, request, more)
            if route.shared:
                call = await _call(route, desk, caller, request, raw)
                return _answer(route, await limits.crowd.shared(_question(route, call), partial(route.handle, call)))
            async with limits.intake.turn if _many(route) else nullcontext():
                return _answer(route, await route.handle(await _call(route, desk, caller, request, raw)))

    path = route.path.replace("}", ":str}")
    return HTTPRouteHandler(path, http_method=[route.method], status_code=200, name=route.name)(handle)


def _question(route: Route, call: Call) -> Hashable:
    """All that the answer of a shared route depends on, besides the moment."""
    return route.name, call.tenant, call.url, frozenset(call.asked.items())


def _answer(route: Route, reply: Reply) -> Response[Any]:
    headers = dict(reply.headers)
    if reply.stream is not None:
        return Stream(reply.stream, media_type=route.media_type, headers=headers)
    content = b"" if reply.body is None else msgspec.json.encode(reply.body)
    media_type = route.media_type if content else None
    return Response(content, status_code=reply.status, media_type=media_type, headers=headers)


async def _call(route: Route, desk: Desk, caller: Caller, request: _Anything, raw: bytes | None) -> Call:
    """The call, once it is known who asks and that they may; only then is anything read."""
    asked = _asked(request)
    path = {name: str(request.path_params[name]) for name in route.names}
    return Call(
        desk=desk,
        caller=caller,
        url=route.path.format(**{name: quote(value, safe="") for name, value in path.items()}),
        path=path,
        query=read_query(route.query, asked),
        asked=asked,
        body={} if raw is None else await _read(raw),
        headers=_headers(request),
    )


async def _caller(route: Route, desk: Desk, request: _Anything) -> Caller:
    if route.needs is Permission.EVERYBODY:
        return _NOBODY
    said = request.headers.getall("authorization", [])
    if len(said) > 1:
        raise Unauthenticated("there are two Authorization headers")
    scheme, _, token = (said[0] if said else "").partition(" ")
    if said and (scheme.lower() != "bearer" or not token or len(token) > desk.longest_token):
        raise Unauthenticated("the Authorization header holds no bearer token")
    service = None if said else _service(desk, request)
    return await desk.tokens.caller(token.strip()) if service is None else service


def _refuse_without_role(route: Route, caller: Caller) -> None:
    if route.needs is not Permission.EVERYBODY and not caller.roles & route.needs.value:
        raise Forbidden(f"this needs one of the roles {', '.join(sorted(route.needs.value))}")


async def _write_down(error: Forbidden, route: Route, desk: Desk, caller: Caller, request: _Anything) -> None:
    """Who asked for what they may not do is in the audit trail; a store that is away changes nothing about the no."""
    asked = f"{route.method} {request.url.path}"
    with suppress(Unavailable):
        await desk.audit.refused(
            route.name, asked, str(error), actor=caller.subject, tenant=caller.tenant, now=desk.clock.now()
        )


def _service(desk: Desk, request: _Anything) -> Caller | None:
    """The service that opened the connection with a certificate, if we know one of its names."""
    certificate: Any = (request.scope.get("extensions") or {}).get(CERTIFICATE)
    names = () if certificate is None else names_in(certificate)
    return next((desk.certificates[name] for name in names if name in desk.certificates), None)


def _asked(request: _Anything) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, value in request.query_params.multi_items():
        if field in found:
            raise FieldError(field, value, "is said a second time")
        found[field] = str(value)
    return found


def _headers(request: _Anything) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found.setdefault(name.lower(), value)
    return found


async def _raw(said: Body, desk: Desk, request: _Anything, more: Callable[[int], None]) -> bytes | None:
    """What was sent, if it is not more than may be: that is known before any of it is read as anything."""
    limit = max(desk.server.max_body, desk.server.max_jobs_body) if said.many else desk.server.max_body
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise TooLarge(limit)
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > limit:
            raise TooLarge(limit)
        more(len(piece))
    if raw or said.required:
        _check_type(request)
    # A body that is needed and not there is read all the same, and refused.
    return bytes(raw) or (b" " if said.required else None)


async def _read(raw: bytes) -> dict[str, Any]:
    # What takes long to read must not keep the clock waiting.
    return read_object(raw) if len(raw) < _LARGE else await asyncio.to_thread(read_object, raw)


def _many(route: Route) -> bool:
    return route.body is not None and route.body.many


def _check_type(request: _Anything) -> None:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongType("the body is packed: send it as it is")
    kind, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise WrongType("the body must be application/json in UTF-8")


# ---- what went wrong -----------------------------------------------------------------------------


def _refusal(_: _Anything, error: GnomonError) -> Response[Any]:
    headers = {"Retry-After": str(error.seconds)} if isinstance(error, TooMany) else {}
    return _sent(problem_of(error), headers)


def _no_route(_: _Anything, error: HTTPException) -> Response[Any]:
    words = {404: "there is nothing at this address", 405: "this address does not take this method"}
    detail = words.get(error.status_code, error.detail or "the request cannot be served")
    code = {404: "no_address", 405: "no_method", 413: "too_large"}.get(error.status_code, "bad_request")
    return _sent(problem(error.status_code, detail, code=code), dict(error.headers or {}))


def _surprise(_: _Anything, error: BaseException, surprised: Callable[[BaseException], None]) -> Response[Any]:
    surprised(error)
    return _sent(problem(500, "this should not have happened; the log of the server says more", code="internal"))


def _sent(found: Problem, headers: dict[str, str] | None = None) -> Response[Any]:
    return Response(
        msgspec.json.encode(found),
        status_code=found.status,
        media_type=MEDIA_TYPE,
        headers={**(headers or {}), **headers_of(found.status)},
    )
