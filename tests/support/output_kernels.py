"""Services that judge outputs: real servers on loopback, and those that do as the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import yaml

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.grpc_client import GrpcOutputKernel
from gnomon.adapters.kernel.grpc_server import GrpcKernelServer
from gnomon.adapters.kernel.http_client import HttpOutputKernel
from gnomon.adapters.kernel.http_server import HttpKernelServer
from gnomon.adapters.kernel.server_address import ServerAddress, ServerCertificate
from gnomon.core.output_policy.compiled import CompiledOutputPolicy
from gnomon.core.output_policy.kernel import answer_output
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.policy.reader import read_policy
from gnomon.ports.output_policy import OutputKernel
from support.output_policies import HOLD_ALL, policy_text
from support.policy_kernels import Answers

OutputAnswer = Callable[[OutputCheckRequest], OutputCheckResponse]


class OutputAnswers:
    """Answers by the rules of a policy, and keeps the questions."""

    def __init__(self, text: str = "") -> None:
        rules = read_policy(yaml.safe_load(text or policy_text(*HOLD_ALL))).output_rules
        assert rules is not None
        self._policy = CompiledOutputPolicy(rules, 0)
        self.asked: list[OutputCheckRequest] = []

    def __call__(self, asked: OutputCheckRequest) -> OutputCheckResponse:
        self.asked.append(asked)
        return answer_output(self._policy, "snapshot-1", asked)


class ScriptedOutputKernel(OutputKernel):
    """Answers as the test says: by a function that may wait, raise or lie."""

    def __init__(self, answer: Callable[[OutputCheckRequest], Awaitable[OutputCheckResponse]]) -> None:
        self.answer = answer
        self.asked: list[OutputCheckRequest] = []
        self.under_way = self.most = 0

    async def check_output(self, request: OutputCheckRequest) -> OutputCheckResponse:
        self.asked.append(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self.answer(request)
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        """Nothing is open."""


def always(answer: OutputCheckResponse) -> Callable[[OutputCheckRequest], Awaitable[OutputCheckResponse]]:
    async def answered(_: OutputCheckRequest) -> OutputCheckResponse:
        return answer

    return answered


def raises(error: Exception) -> Callable[[OutputCheckRequest], Awaitable[OutputCheckResponse]]:
    async def failed(_: OutputCheckRequest) -> OutputCheckResponse:
        raise error

    return failed


async def hangs(_: OutputCheckRequest) -> OutputCheckResponse:
    await asyncio.Event().wait()
    raise AssertionError("never set")


@asynccontextmanager
async def served_outputs(
    transport: str,
    answer: OutputAnswer | None,
    *,
    certificate: ServerCertificate | None = None,
    token: str = "",
) -> AsyncIterator[int]:
    """The port of a server that gives these answers about outputs; None: it judges none."""
    made = GrpcKernelServer if transport == "grpc" else HttpKernelServer
    server = made(Answers(), certificate, BearerToken("token", token) if token else None, answer_output=answer)
    try:
        yield await server.listen(ServerAddress("127.0.0.1", 0))
    finally:
        await server.close()


@asynccontextmanager
async def connected_output_kernel(
    transport: str,
    port: int,
    *,
    timeout_ms: int = 20_000,
    tls: bool = False,
    ca: bytes | None = None,
    token: str = "",
) -> AsyncIterator[OutputKernel]:
    """The client of a service at a port of this machine."""
    said = BearerToken("token", token) if token else None
    kernel: OutputKernel
    if transport == "grpc":
        kernel = GrpcOutputKernel(f"127.0.0.1:{port}", timeout_ms=timeout_ms, tls=tls, ca=ca, token=said)
    else:
        url = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1/check-output"
        kernel = HttpOutputKernel(url, timeout_ms=timeout_ms, parallel=64, ca=ca, token=said)
    try:
        yield kernel
    finally:
        await kernel.close()
