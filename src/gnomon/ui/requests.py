"""The request of a page: who asks, for which place, and what the API answers to them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from gnomon.api.route import may_call
from gnomon.api.route_runner import RouteRunner
from gnomon.api.routes import ROUTES
from gnomon.errors import FieldError
from gnomon.services.loop import compute_limit
from gnomon.ui.form_fields import FormFields
from gnomon.ui.sessions import Session
from gnomon.ui.view import ReaderView

#: Returns the jobs of a file with this text, as they are written, at a moment; JobsFileError names the lines.
JobsReader = Callable[[str, int], Sequence[Mapping[str, Any]]]
#: A field for date and time has no zone; the page says that it is in UTC.
_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?")
#: The processor time that reading a jobs file may take.
_READ_SECONDS = 20
_ROUTES = {route.name: route for route in ROUTES}


class PageRequest(Struct, frozen=True, kw_only=True):
    """A request of an authenticated caller for a page, or the form that it sent."""

    runner: RouteRunner
    session: Session
    #: The path, its parameters, the query and the fields of the form.
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = {}
    #: The same fields with those that occur several times.
    fields: FormFields = FormFields()
    jobs_reader: JobsReader
    #: The time zone and theme that the reader has chosen.
    view: ReaderView = ReaderView()
    #: The only part of the page that is asked for; None for all of it.
    part: str | None = None

    def wants(self, part: str) -> bool:
        """Whether the answer shows this part: a page need not ask the API for the others."""
        return self.part in (None, part)

    def allows(self, route: str) -> bool:
        """Whether the caller has a role that may call the route with that name."""
        return may_call(_ROUTES[route], self.session.caller)

    async def read_jobs(self, text: str) -> Sequence[Mapping[str, Any]]:
        """The jobs of a file with this text; JobsFileError names the lines of its mistakes."""
        now = self.now()
        with compute_limit(_READ_SECONDS, FieldError("body", "", f"costs more than {_READ_SECONDS} s to read")):
            return await self.runner.read_file(self.session.caller, lambda: self.jobs_reader(text, now))

    def now(self) -> int:
        """The time of the server."""
        return self.runner.services.clock.now()

    async def get(self, path: str, **query: str | int | None) -> Any:  # noqa: ANN401 - JSON
        """The answer of the API to GET, as a client of it would read it."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        target = f"{path}?{urlencode(given)}" if given else path
        return await self._send("GET", target)

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Any:  # noqa: ANN401 - JSON
        """The answer of the API to a change; the same request with the same idempotency key changes nothing more."""
        return await self._send(method, path, None if body is None else msgspec.json.encode(body), key=key)

    async def _send(self, method: str, target: str, content: bytes | None = None, *, key: str | None = None) -> Any:  # noqa: ANN401 - JSON
        headers = {"idempotency-key": key} if key else {}
        reply = await self.runner.send(self.session.caller, method, target, content, headers=headers)
        return None if reply.body is None else msgspec.json.decode(bytes(reply.body))

    def field(self, name: str) -> str:
        """A field of the form; FieldError if it is missing."""
        found = self.form.get(name)
        if found is None:
            raise FieldError(name, None, "is missing in the form")
        return found


def address(path: str, **query: str | int | None) -> str:
    """The address of a page with these fields in its query; empty ones are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def utc_moment(text: str) -> str:
    """The moment that a field holds: in UTC unless it names a zone."""
    return f"{text}Z" if _WITHOUT_ZONE.fullmatch(text) else text


def segment(text: str) -> str:
    """A name as a part of a path."""
    return quote(text, safe="")


def read_json_field(request: PageRequest, name: str) -> Any:  # noqa: ANN401 - JSON
    """The JSON value in a field of the form; an empty object if the field is empty, FieldError if it is no JSON."""
    text = request.form.get(name, "")
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise FieldError(name, text, "is nested too deep") from None
    except msgspec.DecodeError as error:
        raise FieldError(name, text, f"is no JSON: {error}") from None
