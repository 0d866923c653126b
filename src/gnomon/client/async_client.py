"""The asyncio client, on aiohttp."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from gnomon.client import requests
from gnomon.client.methods import ClientMethods
from gnomon.client.transport import (
    STREAM_TARGET,
    STREAM_TIMEOUT_SECONDS,
    ApiRequest,
    EventStreamParser,
    decode_response,
    error_from_response,
    iterate_items,
    wait_until_done,
)
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import ExecutionDetail
from gnomon.core.responses.system import StreamChange

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

T = TypeVar("T")
P = ParamSpec("P")


class AsyncClient(ClientMethods):
    """The same as `Client`, for coroutines; it can send many requests at once."""

    _session: "ClientSession | None" = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def finished(self, execution_id: str) -> ExecutionDetail:
        """Wait until the execution has completed and return it."""
        return await wait_until_done(self.send, requests.execution(execution_id))

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[StreamChange]]:
        """The changes from now on, as they happen.

        The stream ends when the server closes the connection. Unauthenticated is raised when the token expires.
        """
        response = await self._open_stream()
        try:
            yield self._read_changes(response.content)
        finally:
            response.close()

    async def _open_stream(self) -> "ClientResponse":
        from aiohttp import ClientError, ClientTimeout

        timeout = ClientTimeout(sock_connect=self._connect_seconds, sock_read=STREAM_TIMEOUT_SECONDS)
        try:
            response = await self._connect().get(
                self._url(STREAM_TARGET), headers=self._endpoint.headers, timeout=timeout
            )
            if response.status != HTTPStatus.OK:
                raise error_from_response(response.status, await response.read())
            # The first line confirms the subscription: later changes are in the stream.
            await response.content.readline()
        except (ClientError, TimeoutError, OSError) as error:
            raise self._endpoint.unreachable(error) from None
        return response

    async def _read_changes(self, lines: AsyncIterable[bytes]) -> AsyncIterator[StreamChange]:
        from aiohttp import ClientError

        parser = EventStreamParser()
        try:
            async for line in lines:
                if (change := parser.feed_line(line)) is not None:
                    yield change
        except (ClientError, TimeoutError, OSError) as error:
            raise self._endpoint.disconnected(error) from None

    async def send(self, request: ApiRequest[T]) -> T:
        """Send a request and return its response, or raise the error that the server reports."""
        from aiohttp import ClientError, ClientTimeout, ConnectionTimeoutError

        headers, timeout = self._endpoint.headers_for(request), self._timeout_for(request)
        try:
            async with self._connect().request(
                request.method,
                self._url(request.target),
                data=request.content,
                headers=headers,
                allow_redirects=False,
                timeout=ClientTimeout(total=timeout, sock_connect=self._connect_seconds),
            ) as response:
                status, content = response.status, await response.read()
        except TimeoutError as error:
            connecting = isinstance(error, ConnectionTimeoutError)
            raise self._endpoint.unanswered(self._connect_seconds if connecting else timeout) from None
        except (ClientError, OSError) as error:
            raise self._endpoint.unreachable(error) from None
        return decode_response(request, status, content)

    def _url(self, target: str) -> "URL":
        from yarl import URL

        return URL(self._endpoint.address + target, encoded=True)

    def _connect(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, TCPConnector

            self._session = ClientSession(connector=TCPConnector(ssl=self._tls or True))
        return self._session

    # ---- binding the methods of the table ----------------------------------------------------

    def bind_single(self, make: Callable[P, ApiRequest[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """See SingleMethod."""

        @wraps(make)
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.send(make(*args, **kwargs))

        return method

    def bind_list(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, Coroutine[Any, Any, list[T]]]:
        """See ListMethod."""

        @wraps(make)
        async def method(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            return [item async for item in iterate_items(self.send, make(*args, **kwargs))]

        return method

    def bind_pages(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, AsyncIterator[T]]:
        """See PagedMethod."""

        @wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            return iterate_items(self.send, make(*args, **kwargs))

        return method
