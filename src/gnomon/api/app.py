"""The Litestar application: authenticates, limits and decodes requests, calls their route and encodes the response."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from gnomon.api.callers import caller_of_token, refuse_actor_of_model
from gnomon.api.event_stream import ClosedStream
from gnomon.api.middleware import ENDLESS_PATHS
from gnomon.api.openapi import document
from gnomon.api.problems import MEDIA_TYPE, Problem, headers_of, problem, problem_of
from gnomon.api.requests import read_object_in_turn, read_query
from gnomon.api.route import (
    CERTIFICATE,
    ApiCall,
    ApiRoute,
    ApiServices,
    Permission,
    Reply,
    RequestBody,
    model_of,
    refuse_without_role,
)
from gnomon.api.route_runner import RouteRunner
from gnomon.api.routes import ROUTES
from gnomon.core.auth import certificate_names
from gnomon.core.jobs.origins import OriginKind
from gnomon.errors import (
    FieldError,
    Forbidden,
    GnomonError,
    TokenMissing,
    TooLarge,
    TooMany,
    Unauthenticated,
    WrongType,
)
from gnomon.ports.auth import Caller

_ANONYMOUS = Caller("", frozenset())
#: Exactly one space, and no character that another parser could strip or split at.
_BEARER = re.compile("[Bb][Ee][Aa][Rr][Ee][Rr] ([A-Za-z0-9._~+/-]+=*)")
_AnyRequest = Request[Any, Any, Any]


def create_app(
    services: ApiServices,
    *,
    on_unexpected_error: Callable[[BaseException], None],
    routes: Sequence[ApiRoute] = ROUTES,
    pages: Callable[[RouteRunner], Sequence[HTTPRouteHandler]] = lambda _: (),
) -> Litestar:
    """The API on these services, and pages that are made of it.

    Unexpected errors go to `on_unexpected_error`; callers see only that one occurred.
    """
    runner = RouteRunner(services)

    @cache
    def openapi_document() -> msgspec.Raw:
        # Built on the first request: few callers ask for it, and it takes long.
        return msgspec.Raw(msgspec.json.encode(document((*routes, *_DESCRIPTION))))

    async def describe(call: ApiCall) -> Reply:
        return Reply(body=await call.services.compute.run_in_thread(openapi_document))

    served = [*routes, *(msgspec.structs.replace(route, handle=describe) for route in _DESCRIPTION)]
    return _MsgspecApplication(
        # OPTIONS first: Litestar adds a handler of its own to a path that has none.
        route_handlers=[
            *_options_handlers(served),
            *(_handler(route, services, runner) for route in served),
            *pages(runner),
        ],
        exception_handlers={
            GnomonError: _error_response,
            HTTPException: _http_error_response,
            Exception: lambda request, error: _internal_error_response(request, error, on_unexpected_error),
        },
        openapi_config=None,
        # _receive_body enforces the configured limit.
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


class _MsgspecApplication(Litestar):
    """An application whose handlers know only msgspec: plugins for pydantic and attrs would take 9 MiB for nothing."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


async def _describe(call: ApiCall) -> Reply:
    """Describe the API as an OpenAPI 3.1 document."""
    del call
    return Reply()


_DESCRIPTION = (
    ApiRoute(
        method="GET",
        path="/openapi.json",
        name="describe",
        permission=Permission.EVERYBODY,
        handle=_describe,
        answer=dict[str, Any],
        success={200: "The OpenAPI document."},
    ),
)


def _handler(route: ApiRoute, services: ApiServices, runner: RouteRunner) -> HTTPRouteHandler:
    if not isinstance(route.permission, Permission):
        raise TypeError(f"{route.name} has no permission")

    async def handle(request: _AnyRequest) -> Response[Any]:
        caller = _ANONYMOUS
        if route.permission is not Permission.EVERYBODY:
            caller = await _authenticate(route, services, request)
            runner.rate_limiter.admit(caller)
        try:
            return await respond(request, caller)
        except Forbidden as error:
            requested = f"{route.method} {request.url.path}"
            await runner.record_refusal(error, route, caller, requested, _headers(request))
            raise

    async def respond(request: _AnyRequest, caller: Caller) -> Response[Any]:
        refuse_without_role(route, caller)
        with runner.body_budget.reserve(caller) as more:
            raw = None if route.body is None else await _receive_body(route.body, services, request, more)
            build = partial(_build_call, route, services, caller, request, raw)
            return _to_response(route, await runner.run(route, caller, build, raw=raw))

    return HTTPRouteHandler(_typed(route.path), http_method=[route.method], status_code=200, name=route.name)(handle)


def _typed(path: str) -> str:
    """The path as Litestar writes it."""
    return path.replace("}", ":str}")


def _options_handlers(routes: Sequence[ApiRoute]) -> list[HTTPRouteHandler]:
    """One handler of OPTIONS for each path: by itself Litestar names the methods of one handler only."""
    methods: dict[str, set[str]] = defaultdict(set)
    for route in routes:
        methods[route.path].add(route.method)
    return [_options_handler(path, _allowed(path, of_path)) for path, of_path in methods.items()]


def _options_handler(path: str, allowed: str) -> HTTPRouteHandler:
    async def handle() -> Response[Any]:
        return Response(b"", status_code=204, headers={"Allow": allowed})

    return HTTPRouteHandler(_typed(path), http_method=["OPTIONS"], status_code=200)(handle)


def _allowed(path: str, methods: Iterable[str]) -> str:
    """The header Allow of a path with these methods. HEAD is served wherever GET is and the response ends."""
    found = {*methods, "OPTIONS"}
    if "GET" in found and path not in ENDLESS_PATHS:
        found.add("HEAD")
    return ", ".join(sorted(found))


def _to_response(route: ApiRoute, reply: Reply) -> Response[Any]:
    headers = dict(reply.headers)
    if reply.stream is not None:
        return ClosedStream(reply.stream, media_type=route.media_type, headers=headers)
    content = b"" if reply.body is None else msgspec.json.encode(reply.body)
    media_type = route.media_type if content else None
    return Response(content, status_code=reply.status, media_type=media_type, headers=headers)


async def _build_call(
    route: ApiRoute, services: ApiServices, caller: Caller, request: _AnyRequest, raw: bytes | None
) -> ApiCall:
    """Parse query and body; called only after the caller is authenticated and authorized."""
    raw_query, headers = _query_params(request), _headers(request)
    path = {name: str(request.path_params[name]) for name in route.names}
    return ApiCall(
        services=services,
        caller=caller,
        url=route.path.format(**{name: quote(value, safe="") for name, value in path.items()}),
        path=path,
        query=read_query(route.query, raw_query),
        raw_query=raw_query,
        body={} if raw is None else await read_object_in_turn(raw, services.compute),
        headers=headers,
        origin=OriginKind.API if model_of(headers) is None else OriginKind.MCP,
        authenticate=partial(_authenticate, route, services, request),
    )


async def _authenticate(route: ApiRoute, services: ApiServices, request: _AnyRequest) -> Caller:
    """The caller of the request. Unauthenticated, which is a failed authentication, if it cannot be identified."""
    try:
        return await _identify(services, request)
    except Unauthenticated as error:
        # A probe needs no token.
        if route.permission is not Permission.EVERYBODY or not isinstance(error, TokenMissing):
            services.login_failed(error, "unknown" if request.client is None else request.client.host)
        raise


async def _identify(services: ApiServices, request: _AnyRequest) -> Caller:
    values = request.headers.getall("authorization", [])
    if len(values) > 1:
        raise Unauthenticated("there are two Authorization headers")
    token = _bearer_token(values[0], services.max_token_length) if values else ""
    service = None if values else _certificate_caller(services, request)
    if service is None:
        return await caller_of_token(services, token)
    refuse_actor_of_model(service)
    return service


def _bearer_token(header: str, max_length: int) -> str:
    """The token of an Authorization header; Unauthenticated unless it has the one form that RFC 6750 defines."""
    found = _BEARER.fullmatch(header)
    if found is None or len(found[1]) > max_length:
        raise Unauthenticated("the Authorization header contains no bearer token")
    return found[1]


def _certificate_caller(services: ApiServices, request: _AnyRequest) -> Caller | None:
    """The caller that the client certificate of the connection identifies; None if no name in it is known."""
    certificate: Any = (request.scope.get("extensions") or {}).get(CERTIFICATE)
    names = () if certificate is None else certificate_names(certificate)
    return next((services.certificates[name] for name in names if name in services.certificates), None)


def _query_params(request: _AnyRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, value in request.query_params.multi_items():
        if field in found:
            raise FieldError(field, value, "is given a second time")
        found[field] = str(value)
    return found


def _headers(request: _AnyRequest) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found.setdefault(name.lower(), value)
    return found


async def _receive_body(
    body: RequestBody, services: ApiServices, request: _AnyRequest, more: Callable[[int], None]
) -> bytes | None:
    """Receive the body; TooLarge as soon as it exceeds the limit, before any of it is parsed."""
    limit = max(services.server.max_body, services.server.max_jobs_body) if body.many else services.server.max_body
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise TooLarge(limit)
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > limit:
            raise TooLarge(limit)
        more(len(piece))
    if raw or body.required:
        _check_type(request)
    # A missing body that is required is parsed as a blank one, so that it is refused with the usual error.
    return bytes(raw) or (b" " if body.required else None)


def _check_type(request: _AnyRequest) -> None:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongType("the body is compressed: send it without Content-Encoding")
    kind, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise WrongType("the body must be application/json in UTF-8")


# ---- errors --------------------------------------------------------------------------------------


def _error_response(_: _AnyRequest, error: GnomonError) -> Response[Any]:
    headers = {"Retry-After": str(error.seconds)} if isinstance(error, TooMany) else {}
    return _problem_response(problem_of(error), headers)


def _http_error_response(request: _AnyRequest, error: HTTPException) -> Response[Any]:
    details = {404: "there is no such path", 405: "this path does not support this method"}
    detail = details.get(error.status_code, error.detail or "the request cannot be served")
    code = {404: "no_address", 405: "no_method", 413: "too_large"}.get(error.status_code, "bad_request")
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if "allow" in headers:
        headers["allow"] = _allowed(request.url.path, headers["allow"].replace(",", " ").split())
    return _problem_response(problem(error.status_code, detail, code=code), headers)


def _internal_error_response(
    _: _AnyRequest, error: BaseException, on_unexpected_error: Callable[[BaseException], None]
) -> Response[Any]:
    on_unexpected_error(error)
    return _problem_response(problem(500, "an unexpected error occurred; see the log of the server", code="internal"))


def _problem_response(found: Problem, headers: dict[str, str] | None = None) -> Response[Any]:
    return Response(
        msgspec.json.encode(found),
        status_code=found.status,
        media_type=MEDIA_TYPE,
        headers={**(headers or {}), **headers_of(found.status)},
    )
