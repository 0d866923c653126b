"""Outgoing HTTP requests: every address is checked where the connection to it is made.

A name is resolved once, every address that it has is checked, and the connection goes to one of these addresses: a
second answer of the name server changes nothing. `Host` and the name in TLS stay those of the URL. Redirects are not
followed, proxies of the environment are not used, and answers are bounded in size and time.
"""

import asyncio
import errno
import io
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from gnomon.core.outgoing import Address, AllowedHosts, AnyHost, parse_address
from gnomon.core.pings import is_http_url
from gnomon.errors import PingFailed, RequestFailed
from gnomon.ports.http import HttpAnswer, HttpRequest
from gnomon.version import __version__

if TYPE_CHECKING:
    import aiohappyeyeballs
    import aiohttp

_GOOD = range(200, 400)
_CHUNK = 65_536
#: How many names a client resolves at once.
_LOOKUPS = 8
#: Returns the addresses of a host name, in numeric form.
ResolveName = Callable[[str, int], Awaitable[Sequence[str]]]


class HostPolicy(Protocol):
    """Decides which addresses outgoing requests may reach."""

    def check(self, host: str, address: Address, port: int) -> None:
        """AddressRefused unless requests may reach the address, which the host of the URL leads to."""
        ...


class NameResolver:
    """Resolves names as the system does, in threads of its own.

    The system cannot be interrupted: a name server that never answers holds a thread for many seconds, whoever waits
    for it. In the threads of the event loop, the names of one job would stop everything else that is done there.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_LOOKUPS)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of the name; OSError if it has none."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[str]] = loop.create_future()

        def look_up() -> None:
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                result: Sequence[str] | Exception = [str(entry[4][0]) for entry in entries]
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result = error
            with suppress(RuntimeError):  # the loop is closed, so no caller waits any more
                loop.call_soon_threadsafe(self._deliver, found, result)

        try:
            # A daemon: the end of the process does not wait for it.
            threading.Thread(target=look_up, name="gnomon-resolve", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise OSError(errno.EAGAIN, "no thread can be started") from error
        return await found

    def _deliver(self, found: "asyncio.Future[Sequence[str]]", result: Sequence[str] | Exception) -> None:
        self._free.release()
        if found.done():
            return
        if isinstance(result, Exception):
            found.set_exception(result)
        else:
            found.set_result(result)


class HttpClient:
    """Sends requests to addresses that a policy permits, and keeps no connection open."""

    def __init__(self, policy: HostPolicy, *, resolve: ResolveName | None = None) -> None:
        self._policy = policy
        self._resolve = resolve or NameResolver()

    async def get(
        self, url: str, *, timeout_ms: int, max_bytes: int = 0, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """The answer to a GET request. Its body is not read if `max_bytes` is 0.

        AddressRefused if the URL leads to an address that the policy does not permit, RequestFailed if there is no
        answer within `timeout_ms`, or its body is larger than `max_bytes`.
        """
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        request = HttpRequest(method="GET", url=url, headers=sent)
        return await self._send(request, encoded=False, timeout_ms=timeout_ms, max_bytes=max_bytes, cut_body=False)

    async def send(
        self, request: HttpRequest, *, timeout_ms: int, max_bytes: int, cut_body: bool = False
    ) -> HttpAnswer:
        """See HttpSender.send."""
        return await self._send(request, encoded=True, timeout_ms=timeout_ms, max_bytes=max_bytes, cut_body=cut_body)

    async def _send(
        self, request: HttpRequest, *, encoded: bool, timeout_ms: int, max_bytes: int, cut_body: bool
    ) -> HttpAnswer:
        # Most nodes send no request; they do not need the import.
        import aiohttp
        import yarl

        if not is_http_url(request.url):
            raise RequestFailed("it is not an http or https URL without credentials")
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        sent = {"User-Agent": f"gnomon/{__version__}", **request.headers}
        try:
            async with (
                aiohttp.ClientSession(
                    connector=self._connector(),
                    timeout=timeout,
                    headers=sent,
                    trust_env=False,
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    middlewares=(_send_once,),
                ) as session,
                session.request(
                    request.method,
                    yarl.URL(request.url, encoded=encoded),
                    data=io.BytesIO(request.body) if request.body else None,
                    allow_redirects=False,
                ) as answer,
            ):
                read = await _read_body(answer, max_bytes, cut=cut_body) if max_bytes else b""
                named = {name.lower(): value for name, value in answer.headers.items()}
                cut = bool(max_bytes) and len(read) > max_bytes
                return HttpAnswer(answer.status, read[:max_bytes], named, cut)
        except TimeoutError:
            raise RequestFailed(f"no answer within {timeout_ms / 1000:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise RequestFailed(f"cannot be called: {_error_kind(error)}") from None

    def _connector(self) -> "aiohttp.TCPConnector":
        import aiohttp

        checked = _CheckedConnections(self._policy, self._resolve)
        return aiohttp.TCPConnector(
            resolver=cast("aiohttp.abc.AbstractResolver", checked),
            socket_factory=checked.open_socket,
            use_dns_cache=False,
            force_close=True,
        )


async def _send_once(
    request: "aiohttp.ClientRequest", handler: "aiohttp.ClientHandlerType"
) -> "aiohttp.ClientResponse":
    """Keep the library from sending a request again whose connection was lost, as it does for GET, PUT and DELETE.

    The server may have taken the first one; whether there is a second one is for the caller to decide.
    """
    import aiohttp

    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise RequestFailed(f"cannot be called: {_error_kind(error)}") from None


class _CheckedConnections:
    """The resolver and the socket factory of one connector: no socket is opened to an address that is not permitted."""

    def __init__(self, policy: HostPolicy, resolve: ResolveName) -> None:
        self._policy = policy
        self._resolve = resolve
        #: The addresses of names that were checked.
        self._permitted: set[Address] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[dict[str, object]]:
        """The addresses of a name, in the form of the library; AddressRefused if one of them is not permitted."""
        del family
        addresses = [parse_address(text) for text in await self._resolve(host, port)]
        for address in addresses:
            self._policy.check(host, address, port)
        self._permitted.update(addresses)
        return [_resolved(host, address, port) for address in addresses]

    async def close(self) -> None:
        """Nothing is kept open."""

    def open_socket(self, info: "aiohappyeyeballs.AddrInfoType") -> socket.socket:
        """A socket for the address. An address in the URL itself is checked here: it needs no resolver."""
        family, kind, protocol, _, (host, port, *_) = info
        address = parse_address(str(host))
        if address not in self._permitted:
            self._policy.check(str(host), address, int(port))
        return socket.socket(family, kind, protocol)


def _resolved(host: str, address: Address, port: int) -> dict[str, object]:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    return {
        "hostname": host,
        "host": str(address),
        "port": port,
        "family": family,
        "proto": socket.IPPROTO_TCP,
        "flags": socket.AI_NUMERICHOST,
    }


async def _read_body(answer: "aiohttp.ClientResponse", max_bytes: int, *, cut: bool) -> bytes:
    """The body, or more than `max_bytes` of it if it may be cut; RequestFailed if it is longer and may not."""
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > max_bytes:
            if cut:
                break
            raise RequestFailed(f"the answer has more than {max_bytes} bytes")
    return bytes(body)


def _error_kind(error: Exception) -> str:
    """The kind of the error, without its text: that may contain the address, which may contain a secret."""
    number = error.errno if isinstance(error, OSError) else None
    return f"{type(error).__name__} ({os.strerror(number)})" if number else type(error).__name__


def configured_client(*, resolve: ResolveName | None = None) -> HttpClient:
    """The client for URLs in the configuration: the administrator has chosen them, so any address is permitted."""
    return HttpClient(AnyHost(), resolve=resolve)


class HttpPingSender:
    """Sends pings. The URLs of jobs lead only to public addresses, and to others that the settings allow."""

    def __init__(self, allowed: AllowedHosts, *, resolve: ResolveName | None = None) -> None:
        # Each has threads of its own: names of jobs do not delay the ping of the installation.
        self._client = HttpClient(allowed, resolve=resolve)
        self._configured = configured_client(resolve=resolve)

    async def send(self, url: str, *, timeout_ms: int, configured: bool = False) -> None:
        """See PingSender.send."""
        client = self._configured if configured else self._client
        try:
            answer = await client.get(url, timeout_ms=timeout_ms)
        except RequestFailed as error:
            raise PingFailed(str(error)) from None
        if answer.status not in _GOOD:
            raise PingFailed(f"answered {answer.status}")
