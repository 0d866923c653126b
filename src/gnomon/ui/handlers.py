"""The HTTP handlers of the dashboard: pages, forms, signing in and out, and static files."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from litestar import Response
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from gnomon.api.event_stream import ClosedStream
from gnomon.api.problems import Problem, problem, problem_of
from gnomon.api.route import short_roles
from gnomon.api.route_runner import RouteRunner
from gnomon.config.sections import DashboardSettings
from gnomon.core.security_headers import PAGE_SECURITY_HEADERS
from gnomon.errors import Forbidden, GnomonError, NotFound, TokenMissing, TooLarge, Unauthenticated
from gnomon.ports.auth import Caller, SessionTokens
from gnomon.ui.form_fields import FormFields, read_form_fields
from gnomon.ui.menu import menu_for, menu_path
from gnomon.ui.pages import FILES, FORMS, PAGES
from gnomon.ui.pages.page import DashboardFile, DashboardForm, DashboardPage
from gnomon.ui.rendering import compressed, render, static_files
from gnomon.ui.requests import JobsReader, PageRequest, address
from gnomon.ui.search import search_page
from gnomon.ui.sessions import FORM_TOKEN, ROOT, AnyRequest, Session, Sessions, check_origin
from gnomon.ui.stale_topics import StaleTopics, position
from gnomon.ui.view import ReaderView

_SIGN_IN = "/ui/login"
_HTML = "text/html"
#: In bytes: longer forms need a share of the memory, which a stranger who signs in does not have.
_SMALL_FORM = 65_536
#: The field of the query that asks for one part of a page.
_PART = "part"
#: The route of the API whose changes the stream of pages tells.
_FOLLOWED = "/v1/stream"
#: From this status on, the server is to blame, and the same request may succeed later.
_UNAVAILABLE = 500
#: Static files never change under their address.
_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}


class Dashboard:
    """The pages of one server."""

    def __init__(
        self,
        runner: RouteRunner,
        tokens: SessionTokens,
        settings: DashboardSettings,
        *,
        read_jobs: JobsReader,
        on_unexpected_error: Callable[[BaseException], None],
    ) -> None:
        """`read_jobs` returns the jobs of a file with this text, as they are written; JobsFileError if it is none."""
        self._runner = runner
        self._services = runner.services
        self._sessions = Sessions(runner.services, tokens)
        self._settings = settings
        self._read_jobs = read_jobs
        self._on_unexpected_error = on_unexpected_error

    def handlers(self) -> Sequence[HTTPRouteHandler]:
        """All handlers."""
        return [
            _handler("GET", "/", self._first_page),
            *(_handler("GET", page.path, partial(self._page, page)) for page in (*PAGES, search_page(PAGES))),
            *(_handler("GET", file.path, partial(self._file, file)) for file in FILES),
            *(_handler("POST", form.path, partial(self._send_form, form)) for form in FORMS),
            _handler("GET", _SIGN_IN, self._sign_in_page),
            _handler("POST", _SIGN_IN, self._sign_in),
            _handler("POST", "/ui/logout", self._sign_out),
            _handler("POST", "/ui/view", self._change_view),
            _handler("GET", "/ui/stream", self._stream),
            _handler("GET", "/ui/static/{name}", self._static_file),
        ]

    async def _first_page(self, request: AnyRequest) -> Response[Any]:
        del request
        return _redirect(ROOT)

    async def _page(self, page: DashboardPage, request: AnyRequest) -> Response[Any]:
        session = None
        try:
            session = await self._sessions.find(request)
            self._runner.rate_limiter.admit(session.caller)
            asked = self._request(request, session)
            _refuse_without_permission(page, asked)
            seen = position(*self._services.change_stream.count_for(session.caller))
            values = {"title": page.title, "seen": seen, **await page.load(asked)}
            return await self._rendered(request, page.template, values, asked, part=asked.part)
        except Exception as error:  # noqa: BLE001 - shown as a page
            return await self._error_page(request, error, session)

    async def _file(self, file: DashboardFile, request: AnyRequest) -> Response[Any]:
        session = None
        try:
            session = await self._sessions.find(request)
            self._runner.rate_limiter.admit(session.caller)
            found = await file.load(self._request(request, session))
        except Exception as error:  # noqa: BLE001 - shown as a page
            return await self._error_page(request, error, session)
        headers = {**PAGE_SECURITY_HEADERS, "content-disposition": f'attachment; filename="{found.name}"'}
        return Stream(found.pieces, media_type=found.media_type, headers=headers)

    async def _send_form(self, form: DashboardForm, request: AnyRequest) -> Response[Any]:
        session = None
        try:
            session = await self._sessions.find(request)
            self._runner.rate_limiter.admit(session.caller)
            with self._runner.body_budget.reserve(session.caller) as more:
                return await self._run_form(form, request, session, await self._read_form(request, form, more))
        except Exception as error:  # noqa: BLE001 - shown as a page
            return await self._error_page(request, error, session)

    async def _run_form(
        self, form: DashboardForm, request: AnyRequest, session: Session, fields: FormFields
    ) -> Response[Any]:
        await self._sessions.check_form(request, session, fields.as_mapping().get(FORM_TOKEN, ""))
        asked = self._request(request, session, fields)
        done = await form.run(asked)
        if isinstance(done, str):
            return _redirect(done)
        return await self._rendered(request, done.template, done.values, asked, status=done.status)

    async def _stream(self, request: AnyRequest) -> Response[Any]:
        """The topics that have changed, for as long as the session lasts."""
        try:
            session = await self._sessions.find(request)
            self._runner.rate_limiter.admit(session.caller)
            again, writer = partial(self._caller_again, request), StaleTopics(self._services.clock)
            stream = await self._runner.stream(session.caller, _FOLLOWED, writer, again)
        except Exception as error:  # noqa: BLE001 - told as a status: no page reads more
            return Response(b"", status_code=self._problem_of(error).status, media_type=_HTML)
        headers = {**PAGE_SECURITY_HEADERS, "X-Accel-Buffering": "no"}
        return ClosedStream(stream, media_type="text/event-stream", headers=headers)

    async def _caller_again(self, request: AnyRequest) -> Caller:
        return (await self._sessions.find(request)).caller

    # ---- sessions ----------------------------------------------------------------------------

    async def _sign_in_page(self, request: AnyRequest) -> Response[Any]:
        try:
            await self._sessions.find(request)
        except GnomonError:
            return await self._sign_in_form(request)
        return _redirect(_next_page(request.query_params.get("next")))

    async def _sign_in_form(self, request: AnyRequest, problem_text: str = "", status: int = 200) -> Response[Any]:
        values = {
            "title": "Sign in",
            "problem_text": problem_text,
            "next": _next_page(request.query_params.get("next")),
            "code": "" if problem_text else str(request.query_params.get("code", "")),
        }
        return await self._rendered(request, "login.html", values, None, status=status)

    async def _sign_in(self, request: AnyRequest) -> Response[Any]:
        try:
            check_origin(request)
            form = await self._read_small_form(request)
            code, token = form.get("code", ""), form.get("token", "").strip()
            cookie = await (
                self._sessions.sign_in_by_code(request, code) if code else self._sessions.sign_in(request, token)
            )
        except Exception as error:  # noqa: BLE001 - shown as a page
            shown = self._problem_of(error)
            return await self._sign_in_form(request, shown.detail, shown.status)
        return _redirect(_next_page(form.get("next")), cookie)

    async def _change_view(self, request: AnyRequest) -> Response[Any]:
        """Keep the time zone and theme that a reader has chosen."""
        session = None
        try:
            session = await self._sessions.find(request)
            self._runner.rate_limiter.admit(session.caller)
            form = await self._read_small_form(request)
            await self._sessions.check_form(request, session, form.get(FORM_TOKEN, ""))
            cookie = self._sessions.view_cookie(request, ReaderView.from_form(form))
        except Exception as error:  # noqa: BLE001 - shown as a page
            return await self._error_page(request, error, session)
        return _redirect(_next_page(form.get("next")), cookie)

    async def _sign_out(self, request: AnyRequest) -> Response[Any]:
        try:
            check_origin(request)
        except Forbidden as error:
            return await self._error_page(request, error, None)
        return _redirect(_SIGN_IN, self._sessions.ended(request))

    # ---- answers -----------------------------------------------------------------------------

    async def _static_file(self, request: AnyRequest) -> Response[Any]:
        found = static_files().get(str(request.path_params["name"]))
        if found is None:
            return await self._error_page(request, NotFound("file", str(request.path_params["name"])), None)
        kind, content = found
        return Response(content, media_type=kind, headers=_FOREVER)

    async def _error_page(self, request: AnyRequest, error: Exception, session: Session | None) -> Response[Any]:
        if isinstance(error, TokenMissing) and request.method == "GET":
            return _redirect(address(_SIGN_IN, next=_address(request)))
        if isinstance(error, Unauthenticated):
            return _redirect(_SIGN_IN, self._sessions.ended(request))
        shown = self._problem_of(error)
        asked = None if session is None else self._request(request, session)
        retry = _address(request) if request.method == "GET" and shown.status >= _UNAVAILABLE else ""
        values = {"title": shown.title, "problem": shown, "retry": retry}
        return await self._rendered(request, "error.html", values, asked, status=shown.status)

    def _problem_of(self, error: Exception) -> Problem:
        if isinstance(error, GnomonError):
            return problem_of(error)
        self._on_unexpected_error(error)
        return problem(500, "an unexpected error occurred; see the log of the server", code="internal")

    async def _rendered(
        self,
        request: AnyRequest,
        template: str,
        values: Mapping[str, Any],
        asked: PageRequest | None,
        *,
        status: int = 200,
        part: str | None = None,
    ) -> Response[Any]:
        view = self._sessions.view(request)
        common = {
            "asked": asked,
            "caller": None if asked is None else asked.session.caller,
            "form_token": "" if asked is None else asked.session.form_token,
            "has_cookie": asked is not None and asked.session.has_cookie,
            "role_names": [] if asked is None else short_roles(asked.session.caller),
            "menu": [] if asked is None else menu_for(asked, PAGES),
            "current": menu_path(_path(request)),
            "path": _path(request),
            "here": _address(request) if request.method == "GET" else ROOT,
            "installation": self._settings,
            "view": view,
            "zone": view.zone,
            "zone_for": view.zone_for,
            "seen": "",
        }
        html = await render(template, common | dict(values), self._services.compute, part=part)
        body, headers = compressed(html, request.headers.get("accept-encoding", ""))
        return Response(body, status_code=status, media_type=_HTML, headers={**PAGE_SECURITY_HEADERS, **headers})

    # ---- requests ----------------------------------------------------------------------------

    def _request(self, request: AnyRequest, session: Session, fields: FormFields | None = None) -> PageRequest:
        names = {name: str(value) for name, value in request.path_params.items()}
        query = {name: str(value) for name, value in request.query_params.items()}
        fields = fields or FormFields()
        part = query.pop(_PART, None)
        return PageRequest(
            runner=self._runner,
            session=session,
            path=_path(request),
            names=names,
            query=query,
            form=fields.as_mapping(),
            fields=fields,
            part=part,
            view=self._sessions.view(request),
            jobs_reader=self._read_jobs,
        )

    async def _read_small_form(self, request: AnyRequest) -> Mapping[str, str]:
        return (await self._read_fields(request, _SMALL_FORM, lambda _: None)).as_mapping()

    async def _read_form(self, request: AnyRequest, form: DashboardForm, more: Callable[[int], None]) -> FormFields:
        """The fields of the form; TooLarge or FieldError if it is none. `more` reserves memory."""
        server = self._services.server
        limit = max(server.max_body, server.max_jobs_body) if form.many else server.max_body
        return await self._read_fields(request, limit, more)

    async def _read_fields(self, request: AnyRequest, limit: int, more: Callable[[int], None]) -> FormFields:
        raw = bytearray()
        async for piece in request.stream():
            if len(raw) + len(piece) > limit:
                raise TooLarge(limit)
            more(len(piece))
            raw += piece
        return await self._services.compute.run(read_form_fields(request.headers.get("content-type", ""), bytes(raw)))


def _handler(method: Literal["GET", "POST"], path: str, answer: Callable[[AnyRequest], Any]) -> HTTPRouteHandler:
    async def handle(request: AnyRequest) -> Response[Any]:
        return await answer(request)  # type: ignore[no-any-return]

    return HTTPRouteHandler(path.replace("}", ":str}"), http_method=[method], status_code=200)(handle)


def _refuse_without_permission(page: DashboardPage, asked: PageRequest) -> None:
    if not page.shown_to(asked):
        raise Forbidden("your roles do not allow this page")


def _path(request: AnyRequest) -> str:
    """The path of the page: the router takes the slash from the end of the first one."""
    path = request.url.path
    return ROOT if f"{path}/" == ROOT else path


def _address(request: AnyRequest) -> str:
    """The address of the page with its query, without the part that is asked for."""
    query = [pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != _PART]
    return _path(request) + (f"?{urlencode(query)}" if query else "")


def _redirect(target: str, cookie: Cookie | None = None) -> Response[Any]:
    cookies = [] if cookie is None else [cookie]
    return Response(b"", status_code=303, headers={"location": quote(target, safe="/?&=%:+-_.~")}, cookies=cookies)


def _next_page(given: str | None) -> str:
    """The page to show after signing in: one of ours, wherever the address came from."""
    parts = urlsplit(given or ROOT)
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(ROOT) and "\\" not in parts.path
    return given if ours and given else ROOT
