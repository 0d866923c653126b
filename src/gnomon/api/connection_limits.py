"""The HTTP protocol of connections: strict about ambiguous requests, and bounded in memory, time and log lines.

It extends uvicorn's protocol, which trusts its clients in several ways:

| uvicorn                                          | here                                                    |
|--------------------------------------------------|---------------------------------------------------------|
| trailers become headers                          | they are dropped, and limited by `server.max_header`    |
| chunk extensions and tiny chunks are not limited | framing may be as large as the headers and the body     |
| a body goes on after its response                | the connection is closed after a while                  |
| every pipelined request is parsed at once        | at most a few; more are refused                         |
| all received data is parsed at once              | for half a millisecond, then other tasks have a turn    |
| a malformed request is answered at once          | after the response to the request before it             |
| the body of a request for an upgrade is skipped  | the request is parsed again without the upgrade         |
| Host is not checked                              | it is required, unique, as in the target, and allowed   |
| an unread response stays in memory               | for `server.patience`, and all of them within a budget  |
| the next response is made while one is unread    | a connection has at most one unread response            |
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import httptools
import msgspec
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gnomon.api.problems import MEDIA_TYPE, problem
from gnomon.api.route import CERTIFICATE
from gnomon.config.sections import ServerSettings
from gnomon.core.security_headers import encoded_security_headers
from gnomon.core.served_hosts import ServedHosts, host_of
from gnomon.ports.connections import ConnectionSlot
from gnomon.ports.runtime import Events
from gnomon.services.observed_events import ThrottledEvents

#: The maximum number of headers of a request, and of requests that wait for the response to an earlier one.
_MAX_HEADERS, _MAX_PIPELINED = 100, 16
#: The bytes that are read from a connection at once, and parsed at once; a limit can be exceeded by the latter.
_READ_BYTES, _SLICE_BYTES = 65_536, 4096
#: The microseconds that parsing may take in a cycle of the event loop, and those of a request and of a part of a body.
_PARSING_PER_CYCLE, _REQUEST_COST, _PART_COST = 500, 50, 1
#: The delay of the next cycle while the scheduler is busy.
_YIELD_SECONDS = 0.003
#: The bytes of a body that are read and dropped after its response, so that the client sees the response; a small part
#: counts as this many.
_MAX_DROPPED_BYTES, _MIN_DROPPED_BYTES = 16 * 2**20, 4096
#: The bytes of responses that clients have not read yet, of all connections together.
_MAX_UNREAD_BYTES = 64 * 2**20
_VERSIONS = ("1.0", "1.1")
#: Headers that ask for another protocol.
_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")


class RequestRefused(Exception):
    """A request that is refused before it reaches the application."""

    def __init__(self, status: HTTPStatus, detail: str, *, code: str = "bad_request") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code


def refusal(refused: RequestRefused, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The whole response to a refused request, after which the connection is closed."""
    status = refused.status
    body = msgspec.json.encode(problem(status, refused.detail, code=refused.code))
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    lines += f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n".encode()
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, status.phrase.encode(), lines, body)


class UnreadResponses:
    """The responses that clients do not read. Beyond the budget, the connection that is unread longest is aborted."""

    def __init__(self, max_bytes: int = _MAX_UNREAD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[asyncio.WriteTransport, int] = {}

    def add(self, transport: asyncio.WriteTransport) -> None:
        """Count a connection whose client has stopped reading."""
        self._sizes[transport] = transport.get_write_buffer_size()
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._max_bytes:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.abort()

    def remove(self, transport: asyncio.WriteTransport) -> None:
        """Forget a connection: its client reads again, or it is closed."""
        self._sizes.pop(transport, None)


class ParsingPacer:
    """Bounds the time that all connections together parse before other tasks have their turn, first in first out.

    Without it, a few hundred clients that send thousands of tiny chunks each would delay ticks by seconds.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy` tells whether the scheduler has work to do, which takes precedence."""
        self._busy = busy
        self._left = _PARSING_PER_CYCLE
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    @property
    def exhausted(self) -> bool:
        """Whether parsing has to wait for the next cycle."""
        return self._left <= 0

    def spend(self, cost: int) -> None:
        """Note the cost of what was parsed."""
        self._left -= cost
        if self.exhausted:
            self._schedule_cycle()

    def wait(self, parse: Callable[[], None]) -> None:
        """Call this function in a later cycle."""
        self._waiting.append(parse)
        self._schedule_cycle()

    def _schedule_cycle(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if self.exhausted and self._busy():
            loop.call_later(_YIELD_SECONDS, self._begin_cycle)
        else:
            loop.call_soon(self._begin_cycle)

    def _begin_cycle(self) -> None:
        self._left, self._scheduled = _PARSING_PER_CYCLE, False
        while self._waiting and not self.exhausted:
            self._waiting.popleft()()
        if self._waiting:
            self._schedule_cycle()


class HeldFlowControl(FlowControl):
    """Flow control that does not resume reading while received data waits to be parsed."""

    _held = False

    def hold(self) -> None:
        """Stop reading until `release`."""
        self._held = True
        self._transport.pause_reading()

    def release(self) -> None:
        """Read again, unless the application has paused that."""
        self._held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        """Read again, if no data waits to be parsed."""
        if self._held:
            self.read_paused = False
        else:
            super().resume_reading()


class ConnectionRules:
    """The limits and collaborators that all connections of a server share."""

    def __init__(self, server: ServerSettings, events: ThrottledEvents, busy: Callable[[], bool]) -> None:
        self.max_header_bytes = server.max_header
        self.timeout_seconds = server.patience_ms / 1000
        self.hosts = ServedHosts(server.hosts, bound_to=server.host)
        self.events = events
        self.logger = _logger(events)
        self.unread = UnreadResponses()
        self.pacer = ParsingPacer(busy)
        #: Received data is copied from here before anything else is received.
        self.receive_buffer = memoryview(bytearray(_READ_BYTES))


class BoundedHttpProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """uvicorn's HTTP protocol with limits, on a connection that has a slot."""

    flow: HeldFlowControl

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        *,
        slot: ConnectionSlot,
        rules: ConnectionRules,
    ) -> None:
        super().__init__(config, server_state, {})
        self.logger = rules.logger
        self._slot = slot
        self._rules = rules
        self._certificate: dict[Any, Any] | None = None
        self._receive_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        #: The request that the application handles; `self.cycle` is the request that arrived last.
        self._running: RequestResponseCycle | None = None
        self._in_headers = True
        self._in_body = False
        #: The bytes of the current body that were dropped.
        self._dropped_bytes = 0
        #: Received data that waits to be parsed.
        self._held = b""
        #: The bytes of headers and framing of the current request, less the bytes of the body that they carry.
        self._framing_bytes = 0
        self._trailer_bytes = 0
        #: Whether the current request asks for another protocol, and has to be parsed again without that.
        self._upgrade_requested = False
        #: Whether the connection closes after the response in progress.
        self._refused = False
        #: Whether the next request waits until the client has read the last response.
        self._awaits_reader = False

    # ---- connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self.flow = HeldFlowControl(transport)
        self._slot.opened(transport)
        found = transport.get_extra_info("ssl_object")
        self._certificate = None if found is None else found.getpeercert() or None
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers, free the slot, and tell the application."""
        self._slot.closed()
        self._stop_waiting()
        self.resume_writing()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._stop_waiting()
        self._receive_timer = self.loop.call_later(self._rules.timeout_seconds, self._abort)

    def _stop_waiting(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _abort(self) -> None:
        self.transport.abort()

    # ---- requests ----------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for received data."""
        del sizehint
        return self._rules.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the received data from the buffer."""
        self.data_received(bytes(self._rules.receive_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Parse the data, or hold it until other connections have been parsed."""
        self._unset_keepalive_if_required()
        if self._held or self._rules.pacer.exhausted:
            self._hold(data)
        else:
            self._parse(data)

    def _hold(self, data: bytes) -> None:
        if not self._held:
            self.flow.hold()
            self._rules.pacer.wait(self._parse_held)
        self._held += data

    def _parse_held(self) -> None:
        data, self._held = self._held, b""
        if self.transport.is_closing():
            return
        self._parse(data)
        if not self._held:
            self.flow.release()

    def _parse(self, data: bytes) -> None:
        """Refuse a malformed request, and one whose framing exceeds the limit."""
        try:
            self._parse_slices(data)
        except httptools.HttpParserError as error:
            refused = error.__context__
            self._refuse(refused if isinstance(refused, RequestRefused) else _malformed(error))
        except RequestRefused as refused:
            self._refuse(refused)

    def _parse_slices(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self._refused:
            if start and self._rules.pacer.exhausted:
                self._hold(data[start:])
                return
            part = data[start : start + _SLICE_BYTES]
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade as upgrade:
                data, start = self._head_without_upgrade() + data[start + upgrade.args[0] :], 0
                self.parser = httptools.HttpRequestParser(self)
                self._upgrade_requested = False
                continue
            start += len(part)
            # Checked after parsing, which finds the end of the headers: the same slice may hold most of a body.
            self._framing_bytes = max(0, self._framing_bytes + len(part))
            if self._framing_bytes > self._rules.max_header_bytes + _SLICE_BYTES:
                raise _too_large()

    def _head_without_upgrade(self) -> bytes:
        """The head of the current request without its request for another protocol, which a server may ignore."""
        kept = [header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        lines = b"".join(b"%s: %s\r\n" % header for header in (*kept, (b"connection", b"close")))
        version = self.parser.get_http_version().encode()
        return b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self.url, version, lines)

    def on_message_begin(self) -> None:
        """Reset the counters for the next request and start its timer."""
        super().on_message_begin()
        self._in_headers, self._framing_bytes, self._trailer_bytes, self._dropped_bytes = True, 0, 0, 0
        if self._certificate is not None:
            self.scope["extensions"] = {CERTIFICATE: self._certificate}
        self._await_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; drop a trailer."""
        if not self._in_headers:
            self._trailer_bytes += len(name) + len(value)
            if self._trailer_bytes > self._rules.max_header_bytes:
                raise _too_large()
        elif len(self.headers) >= _MAX_HEADERS:
            raise _too_large()
        else:
            # White space around a value is not part of it; the parser strips it only before the value.
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Check the head of the request, and let it start or wait for the one before it."""
        self._in_headers = False
        self._rules.pacer.spend(_REQUEST_COST)
        self._check_head()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, "the server is no proxy")
            self._upgrade_requested = True
            return
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "too many requests are sent without waiting for a response")
        self._in_body = True
        super().on_headers_complete()
        if self.expect_100_continue:
            # A client that gets another response than 100 may leave out the body, or not.
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        """Raise RequestRefused if the head is too large, or if two parsers could understand it differently."""
        size, hosts, version = len(self.url), [], self.parser.get_http_version()
        for name, value in self.headers:
            size += len(name) + len(value)
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version == "1.0"):
                raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, "the only transfer encoding is chunked, in HTTP/1.1")
        if size > self._rules.max_header_bytes:
            raise _too_large()
        if version not in _VERSIONS:
            raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the server speaks HTTP/1.1")
        if len(hosts) != 1 and (hosts or version != "1.0"):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "a request must have exactly one Host header")
        if hosts and not self._rules.hosts.accepts(hosts[0]):
            raise _unknown_host(hosts[0])
        if not self.url.startswith(b"/"):
            _check_target(self.url, hosts)

    def on_body(self, body: bytes) -> None:
        """Add a part of the body, or drop it if the request has its response already."""
        # Once for the bytes themselves, once for as many bytes of framing.
        self._framing_bytes -= 2 * len(body)
        self._rules.pacer.spend(_PART_COST)
        if self.cycle.response_complete:
            self._dropped_bytes += max(len(body), _MIN_DROPPED_BYTES)
            if self._dropped_bytes > _MAX_DROPPED_BYTES:
                raise RequestRefused(HTTPStatus.BAD_REQUEST, "the body continues long after its response")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer of the request."""
        if self._upgrade_requested:
            return
        self._in_body = False
        self._stop_waiting()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._slot.busy()
        super()._start_asgi_task(cycle, app)

    def _refuse(self, refused: RequestRefused) -> None:
        """Answer a refused request and close the connection, after the response to an earlier request."""
        self._rules.events.emit("http_request_refused", cause=refused.detail, address=self.client and self.client[0])
        self._refused = True
        running, waits_for_another = self._running, bool(self.pipeline)
        self.pipeline.clear()
        if running is not None and not running.more_body:
            self.flow.pause_reading()
            running.keep_alive = False
            return
        has_response = self._in_body if running is None else running.response_started
        if not has_response and not waits_for_another:
            headers = [*encoded_security_headers(), *self.server_state.default_headers]
            self.transport.write(refusal(refused, headers))
        self._close()

    # ---- responses ---------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Start the next request, or wait for it."""
        self._running = None
        if self.flow.write_paused and self.pipeline:
            self._awaits_reader = True
            return
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_if_unread()
        elif self._running is None:
            self._slot.waiting()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._close()

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        self._slot.waiting()
        self._abort_if_unread()
        self._rules.unread.add(self.transport)

    def resume_writing(self) -> None:
        """Stop the timer: the client reads again."""
        super().resume_writing()
        self._rules.unread.remove(self.transport)
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        if self._running is not None:
            self._slot.busy()
        elif self._awaits_reader:
            self._awaits_reader = False
            self.on_response_complete()

    def _close(self) -> None:
        self.transport.close()
        self._abort_if_unread()

    def _abort_if_unread(self) -> None:
        """Give the client a limited time to read the rest of a response: closing alone would wait for it forever."""
        if self._send_timer is None and self.transport.get_write_buffer_size():
            self._send_timer = self.loop.call_later(self._rules.timeout_seconds, self._abort)


def _too_large() -> RequestRefused:
    return RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large", code="too_large")


def _malformed(error: httptools.HttpParserError) -> RequestRefused:
    return RequestRefused(HTTPStatus.BAD_REQUEST, f"the request is not valid HTTP: {error}")


def _unknown_host(header: bytes) -> RequestRefused:
    if host_of(header) is None:
        return RequestRefused(HTTPStatus.BAD_REQUEST, "the Host header is malformed")
    return RequestRefused(
        HTTPStatus.MISDIRECTED_REQUEST,
        "the server does not answer for this Host; server.hosts names those that it answers for",
        code="unknown_host",
    )


def _check_target(url: bytes, hosts: list[bytes]) -> None:
    """Raise RequestRefused unless the target is a URL of the same host as the Host header."""
    try:
        target = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        target = None
    if target is None or not target.host or not target.path or target.userinfo:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "the target of the request is no path")
    port = b"" if target.port is None else b":%d" % target.port
    if [(target.host + port).lower()] != [host.lower() for host in hosts]:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, "the target of the request names another host than its Host header"
        )


# ---- errors of requests --------------------------------------------------------------------------


class _EventHandler(logging.Handler):
    """Turns the log records of uvicorn about requests into events."""

    def __init__(self, events: Events) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, asyncio.CancelledError):
            cause = record.getMessage().strip()
            self._events.emit("request_failed", cause=cause, error=cause if error is None else repr(error))


def _logger(events: Events) -> logging.Logger:
    """A logger of this server alone: another program in this process may use uvicorn, too."""
    logger = logging.Logger("gnomon.api", logging.WARNING)  # noqa: LOG001 - see above
    logger.addHandler(_EventHandler(events))
    return logger
