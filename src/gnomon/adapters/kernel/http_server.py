"""A policy kernel over HTTP: questions in JSON at `/v1/check` and `/v1/check-output`, and its state at `/health`."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.server_address import GRACE_SECONDS, ServerAddress, ServerCertificate
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

#: The largest question in bytes.
LARGEST_QUESTION = 17 << 20
CHECK_PATH, CHECK_OUTPUT_PATH, HEALTH_PATH = "/v1/check", "/v1/check-output", "/health"
Question = TypeVar("Question")
_ENCODER = msgspec.json.Encoder()
_DECODER, _OUTPUT_DECODER = msgspec.json.Decoder(PolicyCheckRequest), msgspec.json.Decoder(OutputCheckRequest)


class HttpKernelServer:
    """Serves the answers of a function about tasks, and of one about outputs."""

    def __init__(
        self,
        answer: Callable[[PolicyCheckRequest], PolicyCheckResponse],
        certificate: ServerCertificate | None,
        token: BearerToken | None = None,
        *,
        answer_output: Callable[[OutputCheckRequest], OutputCheckResponse] | None = None,
    ) -> None:
        """`token` is what callers must send; None: everybody may ask. Without `answer_output` it judges no outputs."""
        self._answer, self._certificate, self._token = answer, certificate, token
        self._answer_output = answer_output
        self._runner: web.AppRunner | None = None
        self._serving = False

    async def listen(self, address: ServerAddress) -> int:
        """Start to listen and return the port; UsageError if that fails."""
        from aiohttp import web

        app = web.Application(client_max_size=LARGEST_QUESTION)
        app.router.add_post(CHECK_PATH, self._check)
        if self._answer_output is not None:
            app.router.add_post(CHECK_OUTPUT_PATH, self._check_output)
        app.router.add_get(HEALTH_PATH, self._health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=GRACE_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address.host, address.port, ssl_context=self._tls())
        try:
            await site.start()
        except OSError:
            raise UsageError(f"--http: {address} cannot be listened on") from None
        self._serving = True
        port: int = self._runner.addresses[0][1]
        return port

    def _tls(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate.chain_file, self._certificate.key_file)
        return context

    async def close(self) -> None:
        """Take no more questions, and wait a moment for the answers under way."""
        self._serving = False
        if self._runner is not None:
            await self._runner.cleanup()

    async def _check(self, request: "web.Request") -> "web.Response":
        return await self._answered(request, _DECODER, self._answer)

    async def _check_output(self, request: "web.Request") -> "web.Response":
        answer = self._answer_output
        assert answer is not None  # noqa: S101 - it is served only then
        return await self._answered(request, _OUTPUT_DECODER, answer, in_thread=True)

    async def _answered(
        self,
        request: "web.Request",
        decoder: "msgspec.json.Decoder[Question]",
        answer: Callable[[Question], object],
        *,
        in_thread: bool = False,
    ) -> "web.Response":
        """The answer to a caller that may ask. `in_thread`: it may take long."""
        from aiohttp import web

        if self._token is not None and not self._token.admits(request.headers.get("Authorization", "")):
            body = {"error": "its token is not the one of this kernel"}
            return web.json_response(body, status=401, headers={"WWW-Authenticate": "Bearer"})
        try:
            asked = decoder.decode(await request.read())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        found = await asyncio.to_thread(answer, asked) if in_thread else answer(asked)
        return web.Response(body=_ENCODER.encode(found), content_type="application/json")

    async def _health(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        del request
        state = "serving" if self._serving else "not serving"
        return web.json_response({"status": state}, status=200 if self._serving else 503)
