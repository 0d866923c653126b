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

from gnomon.client.methods import Offers
from gnomon.client.transport import (
    DEFAULT_ADDRESS,
    SECONDS,
    SILENCE_SECONDS,
    TARGET,
    Ask,
    Listening,
    after,
    error_of,
    reached,
    read,
    sent_headers,
)
from gnomon.core import responses
from gnomon.core.responses import Page, StreamChange
from gnomon.errors import Unavailable

T = TypeVar("T")
P = ParamSpec("P")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_FIRST_LOOK_SECONDS, _SELDOM_SECONDS = 0.05, 1.0


class Client(Offers):
    """A scheduler at an address. The token is the one that is given, or that of the environment (GNOMON_TOKEN)."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float = SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._to = reached(address, token)
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
            self._hang_up()

    def finished(self, execution_id: str, *, timeout: float | None = None) -> responses.ExecutionDetail:
        """The execution, once it is over; TimeoutError if that takes longer."""
        until = None if timeout is None else time.monotonic() + timeout
        patience = _FIRST_LOOK_SECONDS
        while (found := self.execution(execution_id)).completed_at is None:
            if until is not None and time.monotonic() + patience > until:
                raise TimeoutError(f"{execution_id} is still {found.status}")
            time.sleep(patience)
            patience = min(2 * patience, _SELDOM_SECONDS)
        return found

    @contextmanager
    def changes(self) -> Iterator[Iterator[StreamChange]]:
        """What changes from now on, as it changes, on a connection of its own; it ends when the server hangs up."""
        connection = self._connected(timeout=SILENCE_SECONDS)
        try:
            yield self._told(self._followed(connection))
        finally:
            connection.close()

    def _followed(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        try:
            connection.request("GET", urlsplit(self._to.address).path + TARGET, headers=dict(self._to.headers))
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise error_of(answer.status, answer.read())
            # The server says first that it is listening.
            answer.readline()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._to.address} cannot be reached: {error}") from None
        return answer

    def _told(self, answer: http.client.HTTPResponse) -> Iterator[StreamChange]:
        listening = Listening()
        try:
            while line := answer.readline():
                if (change := listening.heard(line)) is not None:
                    yield change
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._to.address} hung up: {error}") from None

    def ask(self, ask: Ask[T]) -> T:
        """The answer to a request; the error that the server told of, if it did."""
        with self._lock:
            kept = self._connection is not None
            try:
                status, content = self._sent(ask)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._hang_up()
                if not kept or not _again(ask):
                    raise Unavailable(f"{self._to.address} hung up: {error}") from None
                # It was hung up on us while nothing was asked.
                status, content = self._sent(ask)
            except (OSError, http.client.HTTPException) as error:
                self._hang_up()
                raise Unavailable(f"{self._to.address} cannot be reached: {error}") from None
        return read(ask, status, content)

    def _sent(self, ask: Ask[Any]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connected()
        prefix = urlsplit(self._to.address).path
        self._connection.request(ask.method, prefix + ask.target, ask.content, sent_headers(ask, self._to))
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connected(self, timeout: float | None = None) -> http.client.HTTPConnection:
        seconds = self._timeout if timeout is None else timeout
        parts = urlsplit(self._to.address)
        host = parts.hostname or ""
        if parts.scheme == "https":
            tls = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=tls)
        return http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- how the methods of the table are made -----------------------------------------------

    def answering(self, make: Callable[P, Ask[T]]) -> Callable[P, T]:
        """See Answered."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.ask(make(*args, **kwargs))

        return method

    def listing(self, make: Callable[P, Ask[Page[T]]]) -> Callable[P, list[T]]:
        """See Listed."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            return list(self.paging(make)(*args, **kwargs))

        return method

    def paging(self, make: Callable[P, Ask[Page[T]]]) -> Callable[P, Iterator[T]]:
        """See Paged."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            ask: Ask[Page[T]] | None = make(*args, **kwargs)
            while ask is not None:
                found = self.ask(ask)
                yield from found.items
                ask = after(found, ask)

        return method


def _again(ask: Ask[Any]) -> bool:
    """Whether asking twice is the same as asking once."""
    return ask.method != "POST" or "Idempotency-Key" in ask.headers
