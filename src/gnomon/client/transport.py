"""The HTTP protocol of the API apart from its transport: requests, responses, errors, pages and the stream of changes.

`Client` and `AsyncClient` share it; each adds only its connection.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import ExecutionDetail
from gnomon.core.responses.system import StreamChange
from gnomon.errors import FieldError, GnomonError, Unauthenticated, Unavailable, UsageError
from gnomon.version import __version__

T = TypeVar("T")
DEFAULT_ADDRESS = "http://127.0.0.1:8062"
#: The environment variable with the default token.
_TOKEN_VARIABLE = "GNOMON_TOKEN"  # noqa: S105 - a name, not a token
#: How long a client waits for a response, for one that takes the server long, and for a connection.
DEFAULT_TIMEOUT_SECONDS = 30.0
LONG_TIMEOUT_SECONDS = 120.0
CONNECT_TIMEOUT_SECONDS = 5.0
#: The delay between two polls of an execution doubles from the first value to the second.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0


class ApiRequest(Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and the type of its response."""

    method: str
    path: str
    answer: Any
    query: Mapping[str, object] = {}
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}
    #: How long to wait for the response, unless the client has a limit of its own.
    timeout: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def target(self) -> str:
        """The path with the query."""
        query = {field: _query_value(value) for field, value in self.query.items() if value is not None}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    @property
    def content(self) -> bytes | None:
        """The encoded body."""
        return None if self.body is None else msgspec.json.encode(self.body)

    @property
    def is_idempotent(self) -> bool:
        """Whether sending the request twice has the same effect as sending it once."""
        return self.method != "POST" or "Idempotency-Key" in self.headers


class Endpoint(Struct, frozen=True):
    """The address of a server and the headers of every request to it."""

    address: str
    headers: Mapping[str, str]

    def headers_for(self, request: ApiRequest[Any]) -> dict[str, str]:
        """All headers of a request."""
        content_type = {} if request.body is None else {"Content-Type": "application/json"}
        return {**self.headers, **content_type, **request.headers}

    def unreachable(self, error: BaseException) -> Unavailable:
        """The error for a request that got no response."""
        return Unavailable(f"{self.address} cannot be reached: {str(error) or type(error).__name__}")

    def unanswered(self, seconds: float) -> Unavailable:
        """The error for a connection, or a response, that did not come in time."""
        return Unavailable(f"{self.address} did not answer within {seconds:g} s")

    def disconnected(self, error: BaseException) -> Unavailable:
        """The error for a connection that the server closed."""
        return Unavailable(f"{self.address} closed the connection: {str(error) or type(error).__name__}")


def endpoint_at(address: str, token: str | None) -> Endpoint:
    """The endpoint at an address, with the token or that of GNOMON_TOKEN; UsageError if the address is invalid."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{address!r} is not an address such as {DEFAULT_ADDRESS}")
    token = os.environ.get(_TOKEN_VARIABLE) if token is None else token
    headers = {"User-Agent": f"gnomon/{__version__}", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token.strip()}"
    return Endpoint(address.rstrip("/"), headers)


def decode_response(request: ApiRequest[T], status: int, content: bytes) -> T:
    """Return the decoded response, or raise the error that it describes.

    An unhealthy server answers the health request with 503 and a report, which is a response and not an error.
    """
    if status < 400 or (status == 503 and request.path == "/v1/health"):
        try:
            found: T = None if request.answer is None else msgspec.json.decode(content, type=request.answer)  # type: ignore[assignment]
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the response cannot be decoded: {error}") from None
        return found
    raise error_from_response(status, content)


def next_page_request(page: Page[Any], request: ApiRequest[Page[T]]) -> ApiRequest[Page[T]] | None:
    """The request for the next page, with the same body and headers; None after the last."""
    return None if page.next is None else replace(request, path=page.next, query={})


async def iterate_items(
    send: Callable[[ApiRequest[Page[T]]], Awaitable[Page[T]]], request: ApiRequest[Page[T]]
) -> AsyncIterator[T]:
    """Yield the items of all pages; a page is requested when the items before it are consumed."""
    more: ApiRequest[Page[T]] | None = request
    while more is not None:
        page = await send(more)
        for item in page.items:
            yield item
        more = next_page_request(page, more)


def poll_delays() -> Iterator[float]:
    """The seconds to wait between polls of an execution: short at first, then up to a second."""
    delay = _MIN_POLL_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, _MAX_POLL_SECONDS)


async def poll_until_done(
    send: Callable[[ApiRequest[ExecutionDetail]], Awaitable[ExecutionDetail]], request: ApiRequest[ExecutionDetail]
) -> AsyncIterator[ExecutionDetail]:
    """Yield the execution at every poll until it has completed; the last one is completed."""
    delays = poll_delays()
    while (found := await send(request)).completed_at is None:
        yield found
        await asyncio.sleep(next(delays))
    yield found


async def wait_until_done(
    send: Callable[[ApiRequest[ExecutionDetail]], Awaitable[ExecutionDetail]], request: ApiRequest[ExecutionDetail]
) -> ExecutionDetail:
    """Poll the execution until it has completed and return it."""
    async for found in poll_until_done(send, request):
        completed = found
    return completed


def api_path(*parts: str) -> str:
    """A path of the API; parts may contain any characters."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _query_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# ---- errors --------------------------------------------------------------------------------------


def error_from_response(status: int, content: bytes) -> GnomonError:
    """The error of a problem document, of the class that the server raised if this version knows it."""
    try:
        document = msgspec.json.decode(content)
        detail, code = str(document["detail"]), str(document["type"]).rpartition(":")[2]
        faults = document.get("errors") or []
    except (msgspec.DecodeError, KeyError, TypeError):
        unread = Unavailable if status >= 500 else UsageError
        return unread(f"the server answered {status} without a problem document")
    if code == FieldError.code and faults:
        refused = FieldError(faults[0]["field"], faults[0]["value"], faults[0]["reason"])
        # The server sends every value as text, so the constructor would quote numbers: keep the server's sentence.
        refused.args = (detail,)
        return refused
    kind = _error_classes().get(code) or (Unavailable if status >= 500 else UsageError)
    # The detail is the complete message; the constructor of the class would compose another one.
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


#: The server sends a comment every fifteen seconds; after three missed ones the connection counts as lost.
STREAM_TIMEOUT_SECONDS = 45.0
STREAM_TARGET = "/v1/stream"


class EventStreamParser:
    """Parses the lines of a server-sent event stream into changes."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed_line(self, line: bytes) -> StreamChange | None:
        """Return the change that this line completes; None while it is incomplete.

        Unauthenticated if the server ends the stream because the token has expired or is refused.
        """
        text = line.decode().rstrip("\r\n")
        if text:
            # A line that begins with a colon is a keep-alive comment: its name is empty and its value unused.
            name, _, value = text.partition(": ")
            self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        try:
            facts = msgspec.json.decode(fields["data"], type=dict[str, object])
            if fields.get("event") == "end":
                raise Unauthenticated(f"the stream has ended: {facts.get('error')}")
            values = {"kind": fields["event"], "number": int(fields["id"]), "facts": facts, **facts}
            known = {field: values.get(field) for field in StreamChange.__struct_fields__}
            return msgspec.convert(known, StreamChange)
        except (KeyError, ValueError) as error:
            raise Unavailable(f"the stream cannot be decoded: {error}") from None
