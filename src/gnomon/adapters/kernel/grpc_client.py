"""Asks a policy kernel over gRPC."""

from typing import TYPE_CHECKING

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.wire_format import decode, encode
from gnomon.adapters.kernel.wire_messages import CHECK_METHOD, CHECK_REQUEST, CHECK_RESPONSE
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.runs.admission import clean_reason
from gnomon.errors import KernelUnavailable
from gnomon.ports.policy import PolicyKernel

if TYPE_CHECKING:
    import grpc

#: The largest answer in bytes. A ruling has some hundred.
LARGEST_ANSWER = 256 * 1024
#: How soon a lost connection is opened again: the first time, and at most. The library would wait up to two minutes.
_FIRST_RECONNECT_MS, _LONGEST_RECONNECT_MS = 100, 1_000


class GrpcKernel(PolicyKernel):
    """A kernel at an address. The connection is opened with the first question."""

    def __init__(
        self, target: str, *, timeout_ms: int, tls: bool, ca: bytes | None, token: BearerToken | None = None
    ) -> None:
        """`ca`: the certificates that may sign the kernel's one, in PEM; None for those of the library."""
        self._target, self._timeout_ms, self._tls, self._ca = target, timeout_ms, tls, ca
        self._token = token
        self._channel: grpc.aio.Channel | None = None
        self._check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] | None = None

    async def check(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        """See PolicyKernel.check."""
        import grpc

        asked = encode(CHECK_REQUEST, request)
        metadata = None if self._token is None else (("authorization", self._token.header),)
        try:
            said = await self._method()(asked, timeout=self._timeout_ms / 1000, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise KernelUnavailable(self._failure(error)) from None
        answer = decode(CHECK_RESPONSE, said)
        assert isinstance(answer, PolicyCheckResponse)  # noqa: S101 - tells the type checker
        return answer

    def _method(self) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
        if self._check is None:
            self._channel = self._opened()
            # Bytes: an answer that is none must be told from a call that failed.
            self._check = self._channel.unary_unary(CHECK_METHOD)
        return self._check

    def _opened(self) -> "grpc.aio.Channel":
        import grpc

        options = [
            ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
            # Despite its name: how long opening a connection may take.
            ("grpc.min_reconnect_backoff_ms", 2 * self._timeout_ms),
            ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_MS),
            ("grpc.max_receive_message_length", LARGEST_ANSWER),
            ("grpc.enable_http_proxy", 0),
        ]
        if not self._tls:
            return grpc.aio.insecure_channel(self._target, options=options)
        credentials = grpc.ssl_channel_credentials(root_certificates=self._ca)
        return grpc.aio.secure_channel(self._target, credentials, options=options)

    def _failure(self, error: "grpc.aio.AioRpcError") -> str:
        import grpc

        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the policy kernel has not answered within {self._timeout_ms / 1000:g} s"
        said = clean_reason(error.details() or "")
        return f"the policy kernel cannot be asked ({error.code().name}{f', {said}' if said else ''})"

    async def close(self) -> None:
        """See PolicyKernel.close."""
        if self._channel is not None:
            await self._channel.close()
