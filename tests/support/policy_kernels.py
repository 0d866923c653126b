"""Policy kernels for tests: real servers on loopback, kernels that misbehave, and the policies that ask them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.grpc_client import GrpcKernel
from gnomon.adapters.kernel.grpc_server import GrpcKernelServer
from gnomon.adapters.kernel.http_client import HttpKernel
from gnomon.adapters.kernel.http_server import HttpKernelServer
from gnomon.adapters.kernel.server_address import ServerAddress, ServerCertificate
from gnomon.adapters.memory import MemoryStore
from gnomon.core.breakers import BreakerLimits
from gnomon.core.named_breakers import NO_TENANT, BreakerKey
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.kernel import answer_check
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.policy.reader import read_policy
from gnomon.ports.breakers import Breakers
from gnomon.ports.policy import PolicyKernel
from gnomon.ports.runtime import Clock, Events
from gnomon.services.execution.kernel_policy import KernelLimits, KernelPolicy
from gnomon.services.execution.shared_breaker import SharedBreaker
from gnomon.testing.clock import Recorder, VirtualClock
from support.certificates import Pair

THROTTLE_MS = 5_000


def compiled_policy(text: str) -> CompiledPolicy:
    """The policy in a text, without a version."""
    return CompiledPolicy(read_policy(yaml.safe_load(text)), 0, throttle_ms=THROTTLE_MS)


class Answers:
    """Answers questions by a policy that the test may replace."""

    def __init__(self, text: str = "default_decision: allow", *, now: int = 0) -> None:
        self.now, self.asked = now, 0
        self._snapshot = 0
        self.apply(compiled_policy(text))

    def apply(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self._snapshot += 1

    def __call__(self, check: PolicyCheckRequest) -> PolicyCheckResponse:
        self.asked += 1
        return answer_check(self.policy, f"snapshot-{self._snapshot}", check, now=self.now)


class ScriptedKernel(PolicyKernel):
    """Answers as the test says: by a function that may wait, raise or lie."""

    def __init__(self, answer: Callable[[PolicyCheckRequest], Awaitable[PolicyCheckResponse]]) -> None:
        self.answer = answer
        self.asked = self.under_way = self.most = 0

    async def check(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self.answer(request)
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        """Nothing is open."""


def server_certificate(pair: Pair) -> ServerCertificate:
    return ServerCertificate(Path(pair.cert).read_bytes(), Path(pair.key).read_bytes(), pair.cert, pair.key)


@asynccontextmanager
async def served(
    transport: str,
    answer: Callable[[PolicyCheckRequest], PolicyCheckResponse],
    *,
    certificate: ServerCertificate | None = None,
    port: int = 0,
    token: str = "",
) -> AsyncIterator[int]:
    """The port of a server that gives these answers."""
    made = GrpcKernelServer if transport == "grpc" else HttpKernelServer
    server = made(answer, certificate, BearerToken("token", token) if token else None)
    try:
        yield await server.listen(ServerAddress("127.0.0.1", port))
    finally:
        await server.close()


@asynccontextmanager
async def connected(
    transport: str, port: int, *, timeout_ms: int = 5_000, tls: bool = False, ca: bytes | None = None
) -> AsyncIterator[PolicyKernel]:
    """The client of a kernel at a port of this machine."""
    kernel: PolicyKernel
    if transport == "grpc":
        kernel = GrpcKernel(f"127.0.0.1:{port}", timeout_ms=timeout_ms, tls=tls, ca=ca)
    else:
        url = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1/check"
        kernel = HttpKernel(url, timeout_ms=timeout_ms, parallel=64, ca=ca)
    try:
        yield kernel
    finally:
        await kernel.close()


def kernel_policy(
    kernel: PolicyKernel,
    clock: Clock | None = None,
    *,
    events: Events | None = None,
    breakers: Breakers | None = None,
    opens: bool = False,
    **limits: Any,  # noqa: ANN401 - fields of KernelLimits
) -> KernelPolicy:
    """A policy that asks a kernel, with a breaker of its own."""
    clock = clock or VirtualClock(0)
    events = events or Recorder()
    store = MemoryStore(clock.now).breakers if breakers is None else breakers
    said = {"parallel": 64, "cache_ms": 0, "retry_ms": 5_000, "throttle_ms": THROTTLE_MS, **limits}
    return KernelPolicy(
        kernel,
        SharedBreaker(store, BreakerKey(NO_TENANT, "safety_kernel"), BreakerLimits(), clock, events),
        clock,
        events,
        KernelLimits(**said),
        fails_open=lambda: opens,
    )


async def hang(check: PolicyCheckRequest) -> PolicyCheckResponse:
    """Never answers."""
    del check
    await asyncio.Event().wait()
    raise AssertionError("never set")
