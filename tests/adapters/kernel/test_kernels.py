"""Kernels over gRPC and HTTP on loopback: those that answer, and those that hang, reset, lie or are away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest

from gnomon.adapters.kernel.grpc_client import LARGEST_ANSWER, GrpcKernel
from gnomon.adapters.kernel.http_client import HttpKernel
from gnomon.adapters.kernel.server_address import ServerAddress, read_address
from gnomon.adapters.kernel.wire_format import decode
from gnomon.adapters.kernel.wire_messages import CHECK_METHOD, HEALTH_METHOD, HEALTH_RESPONSE, HealthStatus
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import FieldError, KernelUnavailable, UsageError
from gnomon.ports.policy import PolicyKernel
from support.certificates import Authority
from support.policy_kernels import Answers, connected, served, server_certificate

pytestmark = pytest.mark.req("R-14")

TRANSPORTS = pytest.mark.parametrize("transport", ["grpc", "http"])
#: Long enough for a loaded machine; hanging kernels get a short one.
PATIENT_MS, SHORT_MS = 20_000, 300
QUESTION = PolicyCheckRequest(job_id="task_1", topic="db.drop", tenant="default")
DENIES = "rules: [{id: no-drops, match: {topics: ['db.*']}, decision: deny}]"
Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def refusal(kernel: PolicyKernel) -> str:
    with pytest.raises(KernelUnavailable) as refused:
        await kernel.check(QUESTION)
    return str(refused.value)


@asynccontextmanager
async def listening(connection: Connection) -> AsyncIterator[int]:
    """The port of a server that does this with every connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await connection(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@TRANSPORTS
async def test_a_kernel_answers(transport: str) -> None:
    async with served(transport, Answers(DENIES)) as port, connected(transport, port) as kernel:
        answer = await kernel.check(QUESTION)

    assert (answer.decision, answer.rule_id, answer.policy_snapshot) == ("deny", "no-drops", "snapshot-1")


@TRANSPORTS
async def test_many_questions_at_once_get_their_own_answers(transport: str) -> None:
    def echo(check: PolicyCheckRequest) -> PolicyCheckResponse:
        return PolicyCheckResponse(decision="allow", rule_id=check.job_id)

    async with served(transport, echo) as port, connected(transport, port, timeout_ms=PATIENT_MS) as kernel:
        names = [f"task_{number}" for number in range(200)]
        answers = await asyncio.gather(*(kernel.check(PolicyCheckRequest(job_id=name)) for name in names))

    assert [one.rule_id for one in answers] == names


# ---- TLS ---------------------------------------------------------------------------------------------


@pytest.mark.req("R-20")
@TRANSPORTS
async def test_a_kernel_with_a_certificate_of_the_authority_is_trusted_and_no_other(
    transport: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    ca, wrong = authority.pem, other.pem
    async with served(transport, Answers(), certificate=server_certificate(authority.server())) as port:
        async with connected(transport, port, timeout_ms=PATIENT_MS, tls=True, ca=ca) as kernel:
            assert (await kernel.check(QUESTION)).decision == "allow"
        async with connected(transport, port, tls=True, ca=wrong) as kernel:
            assert "cannot be asked" in await refusal(kernel)
        async with connected(transport, port, tls=True) as kernel:
            assert "cannot be asked" in await refusal(kernel)
        async with connected(transport, port) as kernel:
            assert "cannot be asked" in await refusal(kernel)


@pytest.mark.req("R-20")
@TRANSPORTS
async def test_a_certificate_for_another_host_is_refused(transport: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = server_certificate(authority.vouches("elsewhere.example"))
    async with (
        served(transport, Answers(), certificate=certificate) as port,
        connected(transport, port, tls=True, ca=authority.pem) as kernel,
    ):
        assert "cannot be asked" in await refusal(kernel)


@TRANSPORTS
async def test_a_client_with_tls_does_not_speak_with_a_kernel_without(transport: str, tmp_path: Path) -> None:
    ca = Authority(tmp_path).pem
    async with served(transport, Answers()) as port, connected(transport, port, tls=True, ca=ca) as kernel:
        assert "cannot be asked" in await refusal(kernel)


# ---- kernels that fail -------------------------------------------------------------------------------


async def _hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    await reader.read()


async def _resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


async def _talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"\x00\xff" * 1000)
    await writer.drain()


@TRANSPORTS
@pytest.mark.parametrize(
    ("connection", "reason"),
    [(_hangs, "has not answered within 0.3 s"), (_resets, "cannot be asked"), (_talks_nonsense, "policy kernel")],
    ids=["hangs", "resets", "talks nonsense"],
)
async def test_a_kernel_that_gives_no_answer_is_unavailable_in_time(
    transport: str, connection: Connection, reason: str
) -> None:
    async with listening(connection) as port, connected(transport, port, timeout_ms=SHORT_MS) as kernel:
        assert reason in await refusal(kernel)


@TRANSPORTS
async def test_a_kernel_that_is_away_is_unavailable_and_asked_again_once_it_is_there(transport: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with connected(transport, port, timeout_ms=PATIENT_MS) as kernel:
        assert "cannot be asked" in await refusal(kernel)
        async with served(transport, Answers(), port=port):
            assert (await answered(kernel)).decision == "allow"


async def answered(kernel: PolicyKernel) -> PolicyCheckResponse:
    """The answer of a kernel that has come back: gRPC opens a lost connection again after a second at most."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await kernel.check(QUESTION)
            except KernelUnavailable:
                await asyncio.sleep(0.05)


def _http_answer(status: int, body: bytes, *headers: str) -> Connection:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        lines = [f"HTTP/1.1 {status} As told", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return connection


@pytest.mark.parametrize("status", [201, 302, 400, 401, 404, 429, 500, 503])
async def test_another_status_than_200_is_no_answer(status: int) -> None:
    allowed = json.dumps({"decision": "allow"}).encode()
    connection = _http_answer(status, allowed, "Location: http://127.0.0.1:1/")
    async with listening(connection) as port, connected("http", port) as kernel:
        assert await refusal(kernel) == f"the policy kernel has answered with the status {status}"


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"allow",
        b"[]",
        b'{"decision": 1}',
        b'{"decision": "allow", "constraints": 3}',
        b"\xff",
        b"[" * 10_000,
        b'{"decision": "allow", "reason": "' + b"x" * LARGEST_ANSWER + b'"}',
    ],
    ids=["empty", "a word", "a list", "a number", "odd constraints", "no text", "too deep", "too long"],
)
async def test_a_body_that_is_no_answer_is_invalid_and_not_a_failure_of_the_kernel(body: bytes) -> None:
    async with listening(_http_answer(200, body)) as port, connected("http", port) as kernel:
        with pytest.raises(ValueError, match=r"."):
            await kernel.check(QUESTION)


@asynccontextmanager
async def _grpc_saying(said: bytes | grpc.StatusCode) -> AsyncIterator[int]:
    async def check(asked: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        del asked
        if isinstance(said, grpc.StatusCode):
            await context.abort(said, "as\nthe test says")
        return said

    service, _, method = CHECK_METHOD.removeprefix("/").partition("/")
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {method: grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@pytest.mark.req("R-02")
@pytest.mark.parametrize("said", [b"\xff", b"\x08", b"\x0a\x05ab", b"\x12\x02\xff\xfe"])
async def test_bytes_that_are_no_answer_are_invalid_and_not_a_failure_of_the_kernel(said: bytes) -> None:
    async with _grpc_saying(said) as port, connected("grpc", port, timeout_ms=PATIENT_MS) as kernel:
        with pytest.raises(ValueError, match=r"."):
            await kernel.check(QUESTION)


async def test_an_empty_answer_over_grpc_is_an_unknown_decision() -> None:
    async with _grpc_saying(b"") as port, connected("grpc", port, timeout_ms=PATIENT_MS) as kernel:
        assert (await kernel.check(QUESTION)).decision == ""


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAUTHENTICATED]
)
async def test_a_status_of_grpc_is_no_answer_and_is_quoted(code: grpc.StatusCode) -> None:
    async with _grpc_saying(code) as port, connected("grpc", port, timeout_ms=PATIENT_MS) as kernel:
        assert await refusal(kernel) == f"the policy kernel cannot be asked ({code.name}, as the test says)"


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    async with _grpc_saying(b"\x12" + b"\x80" * 2 * LARGEST_ANSWER) as port, connected("grpc", port) as kernel:
        assert "RESOURCE_EXHAUSTED" in await refusal(kernel)


# ---- the servers -------------------------------------------------------------------------------------


def _method(channel: grpc.aio.Channel, name: str) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
    return channel.unary_unary(name)


async def test_the_health_service_of_grpc_says_that_it_serves() -> None:
    async with served("grpc", Answers()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        said = await _method(channel, HEALTH_METHOD)(b"")

    assert decode(HEALTH_RESPONSE, said) == HealthStatus("serving")


async def test_a_question_that_is_none_is_refused_over_grpc() -> None:
    async with served("grpc", Answers()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _method(channel, CHECK_METHOD)(b"\xff")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b'{"topic": 1}', 400), (b'{"topic": "x"}', 200)])
async def test_a_question_that_is_none_is_refused_over_http(body: bytes, status: int) -> None:
    async with served("http", Answers()) as port, aiohttp.ClientSession() as session:
        async with session.post(f"http://127.0.0.1:{port}/v1/check", data=body) as answer:
            assert answer.status == status
        async with session.get(f"http://127.0.0.1:{port}/health") as answer:
            assert await answer.json() == {"status": "serving"}


@TRANSPORTS
async def test_a_port_that_is_taken_is_named(transport: str) -> None:
    async with served(transport, Answers()) as port:
        with pytest.raises(UsageError, match=f"--{transport}: 127.0.0.1:{port} cannot be listened on"):
            async with served(transport, Answers(), port=port):
                pass


@pytest.mark.parametrize("text", ["", "x", ":1", "host:", "host:x", "host:65536", "host:-1", "50051"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="must be HOST:PORT"):
        read_address("--grpc", text)


def test_addresses_are_read_with_brackets() -> None:
    assert read_address("--grpc", "[::1]:5") == ServerAddress("::1", 5)
    assert str(ServerAddress("::1", 5)) == "[::1]:5"


async def test_clients_that_were_never_used_close() -> None:
    await GrpcKernel("127.0.0.1:1", timeout_ms=1, tls=False, ca=None).close()
    await HttpKernel("http://127.0.0.1:1", timeout_ms=1, parallel=1, ca=None).close()
