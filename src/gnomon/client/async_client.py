"""The client that is awaited."""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

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

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
P = ParamSpec("P")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0


class AsyncClient(ClientMethods):
    """The same as `Client`, for coroutines; many requests may be under way at once."""

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
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def finished(self, execution_id: str) -> responses.ExecutionDetail:
        """The execution, once it is over."""
        patience = _MIN_POLL_SECONDS
        while (found := await self.execution(execution_id)).completed_at is None:
            await asyncio.sleep(patience)
            patience = min(2 * patience, _MAX_POLL_SECONDS)
        return found

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[StreamChange]]:
        """What changes from now on, as it changes; it ends when the server hangs up."""
        answer = await self._open_stream()
        try:
            yield self._read_changes(answer.content)
        finally:
            answer.close()

    async def _open_stream(self) -> "ClientResponse":
        from aiohttp import ClientError, ClientTimeout
        from yarl import URL

        url, patience = (
            URL(self._endpoint.address + STREAM_TARGET, encoded=True),
            ClientTimeout(sock_read=STREAM_TIMEOUT_SECONDS),
        )
        try:
            answer = await self._connect().get(url, headers=self._endpoint.headers, timeout=patience)
            if answer.status != HTTPStatus.OK:
                raise error_from_response(answer.status, await answer.read())
            # The server says first that it is listening.
            await answer.content.readline()
        except (ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"{self._endpoint.address} cannot be reached: {str(error) or type(error).__name__}"
            ) from None
        return answer

    async def _read_changes(self, lines: AsyncIterable[bytes]) -> AsyncIterator[StreamChange]:
        from aiohttp import ClientError

        listening = EventStreamParser()
        try:
            async for line in lines:
                if (change := listening.feed_line(line)) is not None:
                    yield change
        except (ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{self._endpoint.address} hung up: {str(error) or type(error).__name__}") from None

    async def send(self, request: ApiRequest[T]) -> T:
        """The answer to a request; the error that the server told of, if it did."""
        from aiohttp import ClientError
        from yarl import URL

        url = URL(self._endpoint.address + request.target, encoded=True)
        try:
            async with self._connect().request(
                request.method,
                url,
                data=request.content,
                headers=request_headers(request, self._endpoint),
                allow_redirects=False,
            ) as answer:
                status, content = answer.status, await answer.read()
        except (ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"{self._endpoint.address} cannot be reached: {str(error) or type(error).__name__}"
            ) from None
        return decode_response(request, status, content)

    def _connect(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, TCPConnector

            connector = TCPConnector(ssl=self._tls or True)
            self._session = ClientSession(connector=connector, timeout=ClientTimeout(total=self._timeout))
        return self._session

    # ---- how the methods of the table are made -----------------------------------------------

    def bind_single(self, make: Callable[P, ApiRequest[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """See Answered."""

        @wraps(make)
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.send(make(*args, **kwargs))

        return method

    def bind_list(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, Coroutine[Any, Any, list[T]]]:
        """See Listed."""

        @wraps(make)
        async def method(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            return [one async for one in self.bind_pages(make)(*args, **kwargs)]

        return method

    def bind_pages(self, make: Callable[P, ApiRequest[Page[T]]]) -> Callable[P, AsyncIterator[T]]:
        """See Paged."""

        @wraps(make)
        async def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            request: ApiRequest[Page[T]] | None = make(*args, **kwargs)
            while request is not None:
                found = await self.send(request)
                for one in found.items:
                    yield one
                request = next_page_request(found, request)

        return method
