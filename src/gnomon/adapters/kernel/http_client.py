"""Asks a policy kernel, or a service that judges outputs, over HTTP, with JSON in both directions."""

import os
import ssl
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import KernelUnavailable
from gnomon.ports.output_policy import OutputKernel
from gnomon.ports.policy import PolicyKernel

if TYPE_CHECKING:
    import aiohttp

#: The largest answer in bytes. A ruling has some hundred; about an output, it may hold the redacted one.
LARGEST_ANSWER, LARGEST_OUTPUT_ANSWER = 256 * 1024, 17 << 20
_OK = 200
#: The library sends a larger body from a file, so that other requests go on.
_LARGEST_AT_ONCE = 512 * 1024
_ENCODER = msgspec.json.Encoder()
_DECODER, _OUTPUT_DECODER = (
    msgspec.json.Decoder(PolicyCheckResponse),
    msgspec.json.Decoder(OutputCheckResponse),
)


class _HttpConnection:
    """Connections to a service at a URL. They are opened with the first question, and kept."""

    def __init__(
        self,
        service: str,
        url: str,
        *,
        timeout_ms: int,
        parallel: int,
        ca: bytes | None,
        token: BearerToken | None,
        largest: int,
    ) -> None:
        """`service` names it in errors. `ca`: the certificates that may sign its one; None for those of the system."""
        self._service, self._url, self._largest = service, url, largest
        self._timeout_ms, self._parallel, self._ca, self._token = timeout_ms, parallel, ca, token
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, asked: bytes) -> bytes:
        """The body of the answer."""
        import aiohttp

        try:
            headers, data = self._headers(), asked if len(asked) <= _LARGEST_AT_ONCE else BytesIO(asked)
            async with self._opened().post(self._url, data=data, headers=headers, allow_redirects=False) as answer:
                if answer.status != _OK:
                    raise KernelUnavailable(f"{self._service} has answered with the status {answer.status}")
                return await _body(answer, self._largest)
        except TimeoutError:
            seconds = self._timeout_ms / 1000
            raise KernelUnavailable(f"{self._service} has not answered within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise KernelUnavailable(f"{self._service} cannot be asked ({_cause(error)})") from None

    def _headers(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": self._token.header}

    def _opened(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            context = ssl.create_default_context(cadata=None if self._ca is None else self._ca.decode("ascii"))
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._parallel, ssl=context),
                timeout=aiohttp.ClientTimeout(total=self._timeout_ms / 1000),
                headers={"Content-Type": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class HttpKernel(PolicyKernel):
    """A kernel at a URL. Connections are opened with the first question, and kept."""

    def __init__(
        self, url: str, *, timeout_ms: int, parallel: int, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """`ca`: the certificates that may sign the kernel's one, in PEM; None for those of the system."""
        self._connection = _HttpConnection(
            "the policy kernel",
            url,
            timeout_ms=timeout_ms,
            parallel=parallel,
            ca=ca,
            token=token,
            largest=LARGEST_ANSWER,
        )

    async def check(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        """See PolicyKernel.check."""
        said = await self._connection.ask(_ENCODER.encode(request))
        try:
            return _DECODER.decode(said)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

    async def close(self) -> None:
        """See PolicyKernel.close."""
        await self._connection.close()


class HttpOutputKernel(OutputKernel):
    """A service at a URL that judges outputs."""

    def __init__(
        self, url: str, *, timeout_ms: int, parallel: int, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """The arguments are those of HttpKernel."""
        self._connection = _HttpConnection(
            "the output policy service",
            url,
            timeout_ms=timeout_ms,
            parallel=parallel,
            ca=ca,
            token=token,
            largest=LARGEST_OUTPUT_ANSWER,
        )

    async def check_output(self, request: OutputCheckRequest) -> OutputCheckResponse:
        """See OutputKernel.check_output."""
        said = await self._connection.ask(_ENCODER.encode(request))
        try:
            return _OUTPUT_DECODER.decode(said)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

    async def close(self) -> None:
        """See OutputKernel.close."""
        await self._connection.close()


def _cause(error: Exception) -> str:
    """The cause in words; the text of the library may quote what the kernel has sent."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else type(error).__name__


async def _body(answer: "aiohttp.ClientResponse", largest: int) -> bytes:
    """The body; ValueError if it is too large."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > largest:
            raise ValueError(f"it has more than {largest} bytes")
    return bytes(body)
