"""Asks a policy kernel, or a service that judges outputs, over gRPC."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.wire_format import decode, encode
from gnomon.adapters.kernel.wire_messages import (
    CHECK_METHOD,
    CHECK_OUTPUT_METHOD,
    CHECK_REQUEST,
    CHECK_RESPONSE,
    OUTPUT_REQUEST,
    OUTPUT_RESPONSE,
)
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.runs.admission import clean_reason
from gnomon.errors import KernelUnavailable
from gnomon.ports.output_policy import OutputKernel
from gnomon.ports.policy import PolicyKernel

if TYPE_CHECKING:
    import grpc

#: The largest answer in bytes. A ruling has some hundred; about an output, it may hold the redacted one.
LARGEST_ANSWER, LARGEST_OUTPUT_ANSWER = 256 * 1024, 17 << 20
#: How soon a lost connection is opened again: the first time, and at most. The library would wait up to two minutes.
_FIRST_RECONNECT_MS, _LONGEST_RECONNECT_MS = 100, 1_000


class _GrpcConnection:
    """A connection to a service. It is opened with the first call."""

    def __init__(
        self,
        service: str,
        target: str,
        *,
        timeout_ms: int,
        tls: bool,
        ca: bytes | None,
        token: BearerToken | None,
        largest: int,
    ) -> None:
        """`service` names it in errors. `ca`: the certificates that may sign its one; None for those of the library."""
        self._service, self._target, self._largest = service, target, largest
        self._timeout_ms, self._tls, self._ca, self._token = timeout_ms, tls, ca, token
        self._channel: grpc.aio.Channel | None = None
        self._call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] | None = None

    async def ask(self, method: str, asked: bytes) -> bytes:
        """The answer of the method in bytes: one that cannot be read must be told from a call that failed."""
        import grpc

        metadata = None if self._token is None else (("authorization", self._token.header),)
        if self._call is None:
            self._channel = self._opened()
            self._call = self._channel.unary_unary(method)
        try:
            return await self._call(asked, timeout=self._timeout_ms / 1000, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise KernelUnavailable(self._failure(error)) from None

    def _opened(self) -> "grpc.aio.Channel":
        import grpc

        options = [
            ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
            # Despite its name: how long opening a connection may take.
            ("grpc.min_reconnect_backoff_ms", 2 * self._timeout_ms),
            ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_MS),
            ("grpc.max_receive_message_length", self._largest),
            ("grpc.enable_http_proxy", 0),
        ]
        if not self._tls:
            return grpc.aio.insecure_channel(self._target, options=options)
        credentials = grpc.ssl_channel_credentials(root_certificates=self._ca)
        return grpc.aio.secure_channel(self._target, credentials, options=options)

    def _failure(self, error: "grpc.aio.AioRpcError") -> str:
        import grpc

        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"{self._service} has not answered within {self._timeout_ms / 1000:g} s"
        said = clean_reason(error.details() or "")
        return f"{self._service} cannot be asked ({error.code().name}{f', {said}' if said else ''})"

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()


class GrpcKernel(PolicyKernel):
    """A kernel at an address. The connection is opened with the first question."""

    def __init__(
        self, target: str, *, timeout_ms: int, tls: bool, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """`ca`: the certificates that may sign the kernel's one, in PEM; None for those of the library."""
        self._connection = _GrpcConnection(
            "the policy kernel",
            target,
            timeout_ms=timeout_ms,
            tls=tls,
            ca=ca,
            token=token,
            largest=LARGEST_ANSWER,
        )

    async def check(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        """See PolicyKernel.check."""
        said = await self._connection.ask(CHECK_METHOD, encode(CHECK_REQUEST, request))
        answer = decode(CHECK_RESPONSE, said)
        assert isinstance(answer, PolicyCheckResponse)  # noqa: S101 - tells the type checker
        return answer

    async def close(self) -> None:
        """See PolicyKernel.close."""
        await self._connection.close()


class GrpcOutputKernel(OutputKernel):
    """A service at an address that judges outputs."""

    def __init__(
        self, target: str, *, timeout_ms: int, tls: bool, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """The arguments are those of GrpcKernel."""
        self._connection = _GrpcConnection(
            "the output policy service",
            target,
            timeout_ms=timeout_ms,
            tls=tls,
            ca=ca,
            token=token,
            largest=LARGEST_OUTPUT_ANSWER,
        )

    async def check_output(self, request: OutputCheckRequest) -> OutputCheckResponse:
        """See OutputKernel.check_output."""
        said = await self._connection.ask(CHECK_OUTPUT_METHOD, encode(OUTPUT_REQUEST, request))
        answer = decode(OUTPUT_RESPONSE, said)
        assert isinstance(answer, OutputCheckResponse)  # noqa: S101 - tells the type checker
        # The first number of an enumeration is not sent.
        return answer if answer.decision else replace(answer, decision=OutputDecision.ALLOW.value)

    async def close(self) -> None:
        """See OutputKernel.close."""
        await self._connection.close()
