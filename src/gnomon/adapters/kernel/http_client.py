"""Asks a policy kernel over HTTP, with JSON in both directions."""

import os
import ssl
from typing import TYPE_CHECKING

import msgspec

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import KernelUnavailable
from gnomon.ports.policy import PolicyKernel

if TYPE_CHECKING:
    import aiohttp

#: The largest answer in bytes. A ruling has some hundred.
LARGEST_ANSWER = 256 * 1024
_OK = 200
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(PolicyCheckResponse)


class HttpKernel(PolicyKernel):
    """A kernel at a URL. Connections are opened with the first question, and kept."""

    def __init__(
        self, url: str, *, timeout_ms: int, parallel: int, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """`ca`: the certificates that may sign the kernel's one, in PEM; None for those of the system."""
        self._url, self._timeout_ms, self._parallel, self._ca = url, timeout_ms, parallel, ca
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def check(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        """See PolicyKernel.check."""
        import aiohttp

        try:
            asked, headers = _ENCODER.encode(request), self._headers()
            async with self._opened().post(self._url, data=asked, headers=headers, allow_redirects=False) as answer:
                if answer.status != _OK:
                    raise KernelUnavailable(f"the policy kernel has answered with the status {answer.status}")
                said = await _body(answer)
        except TimeoutError:
            seconds = self._timeout_ms / 1000
            raise KernelUnavailable(f"the policy kernel has not answered within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise KernelUnavailable(f"the policy kernel cannot be asked ({_cause(error)})") from None
        try:
            return _DECODER.decode(said)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

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
        """See PolicyKernel.close."""
        if self._session is not None:
            await self._session.close()


def _cause(error: Exception) -> str:
    """The cause in words; the text of the library may quote what the kernel has sent."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else type(error).__name__


async def _body(answer: "aiohttp.ClientResponse") -> bytes:
    """The body; ValueError if it is too large."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise ValueError(f"it has more than {LARGEST_ANSWER} bytes")
    return bytes(body)
