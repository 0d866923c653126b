"""A policy kernel over gRPC: `SafetyKernel`, `OutputPolicyService`, and the health service that load balancers ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.server_address import GRACE_SECONDS, ServerAddress, ServerCertificate
from gnomon.adapters.kernel.wire_format import WireMessage, decode, encode
from gnomon.adapters.kernel.wire_messages import (
    CHECK_METHOD,
    CHECK_OUTPUT_METHOD,
    CHECK_REQUEST,
    CHECK_RESPONSE,
    HEALTH_METHOD,
    HEALTH_RESPONSE,
    OUTPUT_REQUEST,
    OUTPUT_RESPONSE,
    HealthStatus,
)
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import UsageError

if TYPE_CHECKING:
    import grpc

#: The largest question in bytes, and how many are answered at once; of more, the rest is refused.
LARGEST_QUESTION, _MOST_QUESTIONS = 17 << 20, 1000
_Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class GrpcKernelServer:
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
        self._server: grpc.aio.Server | None = None
        self._serving = False

    async def listen(self, address: ServerAddress) -> int:
        """Start to listen and return the port; UsageError if that fails."""
        import grpc

        options = [("grpc.max_receive_message_length", LARGEST_QUESTION), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_MOST_QUESTIONS)
        self._server.add_generic_rpc_handlers((_methods("cordum.agent.v1.SafetyKernel", CHECK_METHOD, self._check),))
        if self._answer_output is not None:
            service = _methods("cordum.v1.OutputPolicyService", CHECK_OUTPUT_METHOD, self._check_output)
            self._server.add_generic_rpc_handlers((service,))
        self._server.add_generic_rpc_handlers((_methods("grpc.health.v1.Health", HEALTH_METHOD, self._health),))
        try:
            port = self._bind(self._server, address)
        except RuntimeError:
            raise UsageError(f"--grpc: {address} cannot be listened on") from None
        await self._server.start()
        self._serving = True
        return port

    def _bind(self, server: "grpc.aio.Server", address: ServerAddress) -> int:
        import grpc

        if self._certificate is None:
            return server.add_insecure_port(str(address))
        pair = [(self._certificate.key, self._certificate.chain)]
        return server.add_secure_port(str(address), grpc.ssl_server_credentials(pair))

    async def close(self) -> None:
        """Take no more questions, and wait a moment for the answers under way."""
        self._serving = False
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)

    async def _check(self, asked: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        request = await self._request(CHECK_REQUEST, asked, context)
        assert isinstance(request, PolicyCheckRequest)  # noqa: S101 - tells the type checker
        return encode(CHECK_RESPONSE, self._answer(request))

    async def _check_output(self, asked: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        request = await self._request(OUTPUT_REQUEST, asked, context)
        assert isinstance(request, OutputCheckRequest)  # noqa: S101 - tells the type checker
        assert self._answer_output is not None  # noqa: S101 - it is served only then
        return encode(OUTPUT_RESPONSE, await asyncio.to_thread(self._answer_output, request))

    async def _request(
        self, message: WireMessage, asked: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> Struct:
        """The question of a caller that may ask."""
        import grpc

        if self._token is not None and not self._token.admits(_authorization(context)):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "its token is not the one of this kernel")
        try:
            return decode(message, asked)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _health(self, asked: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        del asked, context
        return encode(HEALTH_RESPONSE, HealthStatus("serving" if self._serving else "not serving"))


def _authorization(context: "grpc.aio.ServicerContext[bytes, bytes]") -> str:
    """The header of that name; empty without one."""
    found = dict(context.invocation_metadata() or ()).get("authorization", "")
    return found if isinstance(found, str) else ""


def _methods(service: str, method: str, handler: _Handler) -> "grpc.GenericRpcHandler":
    """The service with its one method, in bytes."""
    import grpc

    return grpc.method_handlers_generic_handler(
        service, {method.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(handler)}
    )
