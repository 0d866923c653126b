"""The blocking client, on the standard library's http.client."""

import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from http import HTTPStatus
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

from gnomon.client.methods import ClientMethods
from gnomon.client.transport import (
    DEFAULT_ADDRESS,
    STREAM_TARGET,
    STREAM_TIMEOUT_SECONDS,
    ApiRequest,
    EventStreamParser,
    decode_response,
    error_from_response,
    next_page_request,
    poll_delays,
)
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import ExecutionDetail
from gnomon.core.responses.system import StreamChange

T = TypeVar("T")
P = ParamSpec("P")


class Client(ClientMethods):
    """A scheduler at an address. The token defaults to that of the environment (GNOMON_TOKEN).

    Threads may share a client; it sends one request at a time.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, token=token, timeout=timeout, tls=tls)
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def finished(self, execution_id: str, *, timeout: float | None = None) -> ExecutionDetail:
        """Wait until the execution has completed and return it; TimeoutError after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        delays = poll_delays()
        while (found := self.execution(execution_id)).completed_at is None:
            delay = next(delays)
            if until is not None and time.monotonic() + delay > until:
                raise TimeoutError(f"{execution_id} is still {found.status}")
            time.sleep(delay)
        return found

    @contextmanager
    def changes(self) -> Iterator[Iterator[StreamChange]]:
        """The changes from now on, as they happen, on a connection of their own.

        The stream ends when the server closes the connection. Unauthenticated is raised when the token expires.
        """
        connection = self._connection_to_server()
        try:
            yield self._read_changes(self._open_stream(connection))
        finally:
            connection.close()

    def _open_stream(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        try:
            self._connect(connection, STREAM_TIMEOUT_SECONDS)
            connection.request("GET", self._prefix + STREAM_TARGET, headers=dict(self._endpoint.headers))
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise error_from_response(response.status, response.read())
            # The first line confirms the subscription: later changes are in the stream.
            response.readline()
        except (OSError, http.client.HTTPException) as error:
            raise self._endpoint.unreachable(error) from None
        return response

    def _read_changes(self, response: http.client.HTTPResponse) -> Iterator[StreamChange]:
        parser = EventStreamParser()
        try:
            while line := response.readline():
                if (change := parser.feed_line(line)) is not None:
                    yield change
        except (OSError, http.client.HTTPException) as error:
            raise self._endpoint.disconnected(error) from None

    def send(self, request: ApiRequest[T]) -> T:
        """Send a request and return its response, or raise the error that the server reports."""
        with self._lock:
            reused = self._connection is not None
            try:
                status, content = self._exchange(request)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._disconnect()
                if not reused or not request.is_idempotent:
                    raise self._endpoint.disconnected(error) from None
                # The server closed the idle connection between two requests.
                status, content = self._exchange(request)
            except TimeoutError:
                self._disconnect()
                raise self._endpoint.unanswered(self._timeout_for(request)) from None
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                raise self._endpoint.unreachable(error) from None
        return decode_response(request, status, content)

    def _exchange(self, request: ApiRequest[Any]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connection_to_server()
        connection = self._connection
        self._connect(connection, self._timeout_for(request))
        connection.request(
            request.method, self._prefix + request.target, request.content, self._endpoint.headers_for(request)
        )
        response = connection.getresponse()
        return response.status, response.read()

    @property
    def _prefix(self) -> str:
        """The path that the address itself has."""
        return urlsplit(self._endpoint.address).path

    def _connect(self, connection: http.client.HTTPConnection, timeout: float) -> None:
        """Open the connection unless it is open; from then on each read may take `timeout` seconds."""
        if connection.sock is not None and _is_readable(connection.sock):
            # The server has closed the idle connection: a request on it would be lost.
            connection.close()
        if connection.sock is None:
            try:
                connection.connect()
            except TimeoutError:
                raise self._endpoint.unanswered(self._connect_seconds) from None
        connection.sock.settimeout(timeout)

    def _connection_to_server(self) -> http.client.HTTPConnection:
        seconds = self._connect_seconds
        parts = urlsplit(self._endpoint.address)
        host = parts.hostname or ""
        if parts.scheme == "https":
            tls = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=tls)
        return http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- binding the methods of the table ----------------------------------------------------

    def bind_single(self, make: Callable[P, ApiRequest[T]]) -> Callable[P, T]:
        """See SingleMethod."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.send(make(*args, **kwargs))

        return method

    def bind_list(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, list[T]]:
        """See ListMethod."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            return list(self._iterate_items(make(*args, **kwargs)))

        return method

    def bind_pages(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, Iterator[T]]:
        """See PagedMethod."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return self._iterate_items(make(*args, **kwargs))

        return method

    def _iterate_items(self, request: ApiRequest[Page[T]]) -> Iterator[T]:
        more: ApiRequest[Page[T]] | None = request
        while more is not None:
            page = self.send(more)
            yield from page.items
            more = next_page_request(page, more)


def _is_readable(connection: socket.socket) -> bool:
    """Whether something has arrived on an idle connection: its end, since no response is awaited."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(0))
