"""The client that waits for each answer."""

import http.client
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
    DEFAULT_TIMEOUT_SECONDS,
    STREAM_TARGET,
    STREAM_TIMEOUT_SECONDS,
    ApiRequest,
    EventStreamParser,
    decode_response,
    endpoint_at,
    error_from_response,
    next_page_request,
    request_headers,
)
from gnomon.core import responses
from gnomon.core.responses import Page, StreamChange
from gnomon.errors import Unavailable

T = TypeVar("T")
P = ParamSpec("P")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0


class Client(ClientMethods):
    """A scheduler at an address. The token is the one that is given, or that of the environment (GNOMON_TOKEN)."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = endpoint_at(address, token)
        self._timeout = timeout
        self._tls = tls
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._disconnect()

    def finished(self, execution_id: str, *, timeout: float | None = None) -> responses.ExecutionDetail:
        """The execution, once it is over; TimeoutError if that takes longer."""
        until = None if timeout is None else time.monotonic() + timeout
        patience = _MIN_POLL_SECONDS
        while (found := self.execution(execution_id)).completed_at is None:
            if until is not None and time.monotonic() + patience > until:
                raise TimeoutError(f"{execution_id} is still {found.status}")
            time.sleep(patience)
            patience = min(2 * patience, _MAX_POLL_SECONDS)
        return found

    @contextmanager
    def changes(self) -> Iterator[Iterator[StreamChange]]:
        """What changes from now on, as it changes, on a connection of its own; it ends when the server hangs up."""
        connection = self._connect(timeout=STREAM_TIMEOUT_SECONDS)
        try:
            yield self._read_changes(self._open_stream(connection))
        finally:
            connection.close()

    def _open_stream(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        try:
            connection.request(
                "GET", urlsplit(self._endpoint.address).path + STREAM_TARGET, headers=dict(self._endpoint.headers)
            )
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise error_from_response(answer.status, answer.read())
            # The server says first that it is listening.
            answer.readline()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._endpoint.address} cannot be reached: {error}") from None
        return answer

    def _read_changes(self, answer: http.client.HTTPResponse) -> Iterator[StreamChange]:
        listening = EventStreamParser()
        try:
            while line := answer.readline():
                if (change := listening.feed_line(line)) is not None:
                    yield change
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._endpoint.address} hung up: {error}") from None

    def send(self, request: ApiRequest[T]) -> T:
        """The answer to a request; the error that the server told of, if it did."""
        with self._lock:
            kept = self._connection is not None
            try:
                status, content = self._exchange(request)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._disconnect()
                if not kept or not _is_idempotent(request):
                    raise Unavailable(f"{self._endpoint.address} hung up: {error}") from None
                # It was hung up on us while nothing was asked.
                status, content = self._exchange(request)
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                raise Unavailable(f"{self._endpoint.address} cannot be reached: {error}") from None
        return decode_response(request, status, content)

    def _exchange(self, request: ApiRequest[Any]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        prefix = urlsplit(self._endpoint.address).path
        self._connection.request(
            request.method, prefix + request.target, request.content, request_headers(request, self._endpoint)
        )
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connect(self, timeout: float | None = None) -> http.client.HTTPConnection:
        seconds = self._timeout if timeout is None else timeout
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

    # ---- how the methods of the table are made -----------------------------------------------

    def bind_single(self, make: Callable[P, ApiRequest[T]]) -> Callable[P, T]:
        """See Answered."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.send(make(*args, **kwargs))

        return method

    def bind_list(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, list[T]]:
        """See Listed."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            return list(self.bind_pages(make)(*args, **kwargs))

        return method

    def bind_pages(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, Iterator[T]]:
        """See Paged."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            request: ApiRequest[Page[T]] | None = make(*args, **kwargs)
            while request is not None:
                found = self.send(request)
                yield from found.items
                request = next_page_request(found, request)

        return method


def _is_idempotent(request: ApiRequest[Any]) -> bool:
    """Whether asking twice is the same as asking once."""
    return request.method != "POST" or "Idempotency-Key" in request.headers
