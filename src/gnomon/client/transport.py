"""What is asked of a server and how its answers are read: the same for everybody who asks, whatever carries it."""

import os
from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from gnomon.core.responses import Page, StreamChange
from gnomon.errors import FieldError, GnomonError, Unavailable, UsageError
from gnomon.version import __version__

T = TypeVar("T")
DEFAULT_ADDRESS = "http://127.0.0.1:8062"
#: Where the token is looked for if none is given.
_TOKEN_VARIABLE = "GNOMON_TOKEN"  # noqa: S105 - a name, not a token
DEFAULT_TIMEOUT_SECONDS = 30.0


class ApiRequest(Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and the type of its answer."""

    method: str
    path: str
    answer: Any
    query: Mapping[str, object] = {}
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}

    @property
    def target(self) -> str:
        """The path with what is asked for."""
        said = {field: _query_value(value) for field, value in self.query.items() if value is not None}
        return f"{self.path}?{urlencode(said)}" if said else self.path

    @property
    def content(self) -> bytes | None:
        """What is sent along."""
        return None if self.body is None else msgspec.json.encode(self.body)


class Endpoint(Struct, frozen=True):
    """Where a server is, and what it is shown."""

    address: str
    headers: Mapping[str, str]


def endpoint_at(address: str, token: str | None) -> Endpoint:
    """The server at an address, and the token to show it; UsageError if that is no address."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{address!r} is no address such as {DEFAULT_ADDRESS}")
    token = os.environ.get(_TOKEN_VARIABLE) if token is None else token
    headers = {"User-Agent": f"gnomon/{__version__}", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token.strip()}"
    return Endpoint(address.rstrip("/"), headers)


def request_headers(request: ApiRequest[Any], to: Endpoint) -> dict[str, str]:
    """All headers of a request."""
    kind = {} if request.body is None else {"Content-Type": "application/json"}
    return {**to.headers, **kind, **request.headers}


def decode_response(request: ApiRequest[T], status: int, content: bytes) -> T:
    """The answer; the error that the server told of, if it did."""
    if status < 400 or (status == 503 and request.path == "/v1/health"):
        try:
            found: T = None if request.answer is None else msgspec.json.decode(content, type=request.answer)  # type: ignore[assignment]
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the answer cannot be read: {error}") from None
        return found
    raise error_from_response(status, content)


def next_page_request(page: Page[Any], request: ApiRequest[Page[T]]) -> ApiRequest[Page[T]] | None:
    """The request for the next page; None after the last."""
    return None if page.next is None else ApiRequest(method=request.method, path=page.next, answer=request.answer)


def api_path(*parts: str) -> str:
    """A path of the API, with names that may hold anything."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _query_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# ---- errors --------------------------------------------------------------------------------------


def error_from_response(status: int, content: bytes) -> GnomonError:
    """The error of a problem document: of the same class as on the server, as far as it is known here."""
    try:
        said = msgspec.json.decode(content)
        detail, code = str(said["detail"]), str(said["type"]).rpartition(":")[2]
        faults = said.get("errors") or []
    except (msgspec.DecodeError, KeyError, TypeError):
        unread = Unavailable if status >= 500 else UsageError
        return unread(f"the server answered {status} in words that are not understood")
    if code == FieldError.code and faults:
        refused = FieldError(faults[0]["field"], faults[0]["value"], faults[0]["reason"])
        # A value that is no text was sent as one.
        refused.args = (detail,)
        return refused
    kind = _error_classes().get(code) or (Unavailable if status >= 500 else UsageError)
    # What a constructor makes of its arguments is in the detail already.
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    return error


def _error_classes() -> dict[str, type[GnomonError]]:
    found: dict[str, type[GnomonError]] = {}
    ahead: list[type[GnomonError]] = [GnomonError]
    while ahead:
        kind = ahead.pop()
        found.setdefault(kind.code, kind)
        ahead += kind.__subclasses__()
    return found


#: The server says every fifteen seconds that it is still there: whoever is silent for so long is gone.
STREAM_TIMEOUT_SECONDS = 45.0
STREAM_TARGET = "/v1/stream"


class EventStreamParser:
    """Makes changes out of lines, one after the other."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed_line(self, line: bytes) -> StreamChange | None:
        """The change that this line completes, if it does."""
        text = line.decode().rstrip("\r\n")
        if text:
            # A line that begins with a colon only says that somebody is there.
            name, _, value = text.partition(": ")
            self._fields[name] = value
            return None
        said, self._fields = self._fields, {}
        if "data" not in said:
            return None
        try:
            facts = msgspec.json.decode(said["data"], type=dict[str, object])
            told = {"kind": said["event"], "number": int(said["id"]), "facts": facts, **facts}
            known = {field: told.get(field) for field in StreamChange.__struct_fields__}
            return msgspec.convert(known, StreamChange)
        except (KeyError, ValueError) as error:
            raise Unavailable(f"the stream cannot be read: {error}") from None
