"""Services that judge outputs, over gRPC and HTTP on loopback, with and without TLS."""

import asyncio
from pathlib import Path

import grpc
import msgspec
import pytest
from msgspec import Raw

from gnomon.adapters.kernel.wire_format import decode, encode
from gnomon.adapters.kernel.wire_messages import CHECK_OUTPUT_METHOD, OUTPUT_REQUEST, OUTPUT_RESPONSE
from gnomon.core.output_policy.kernel_messages import JudgedFinding, OutputCheckRequest, OutputCheckResponse
from gnomon.errors import KernelUnavailable
from gnomon.ports.output_policy import OutputKernel
from support.certificates import Authority
from support.output_kernels import OutputAnswers, connected_output_kernel, served_outputs
from support.output_policies import CANARIES, CARD, KEY, policy_text, rule
from support.policy_kernels import server_certificate

pytestmark = pytest.mark.req("R-14")
TRANSPORTS = pytest.mark.parametrize("transport", ["grpc", "http"])


def question(output: object, **said: object) -> OutputCheckRequest:
    return OutputCheckRequest(job_id="task_1", topic="a.b", output_content=Raw(msgspec.json.encode(output)), **said)  # type: ignore[arg-type]


async def refusal(kernel: OutputKernel) -> str:
    with pytest.raises(KernelUnavailable) as refused:
        await kernel.check_output(question("x"))
    return str(refused.value)


@TRANSPORTS
@pytest.mark.parametrize("scanner", CANARIES)
async def test_a_service_of_the_same_rules_holds_a_leak_back(transport: str, scanner: str) -> None:
    answers = OutputAnswers()
    async with served_outputs(transport, answers) as port, connected_output_kernel(transport, port) as kernel:
        held = await kernel.check_output(question({"text": CANARIES[scanner]}))
        clean = await kernel.check_output(question({"text": "fine"}, labels={"a": "b"}, capabilities=("c",)))

    assert (held.decision, held.rule_id, held.policy_snapshot) == ("quarantine", "all", "snapshot-1")
    assert held.findings[0].scanner == scanner
    assert clean.decision == "allow"
    assert (answers.asked[1].labels, answers.asked[1].capabilities) == ({"a": "b"}, ("c",))
    assert msgspec.json.decode(answers.asked[0].output_content) == {"text": CANARIES[scanner]}


@TRANSPORTS
async def test_a_redaction_comes_with_the_output_to_store(transport: str) -> None:
    answers = OutputAnswers(policy_text(rule("mask", "redact", scanners=["pii"])))
    async with served_outputs(transport, answers) as port, connected_output_kernel(transport, port) as kernel:
        answer = await kernel.check_output(question([CARD, 1]))

    assert (answer.decision, bytes(answer.redacted_content)) == ("redact", b'["[REDACTED]",1]')


@pytest.mark.req("R-20")
@TRANSPORTS
async def test_a_service_with_a_certificate_of_the_authority_is_trusted_and_no_other(
    transport: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate = server_certificate(authority.server())
    async with served_outputs(transport, OutputAnswers(), certificate=certificate) as port:
        async with connected_output_kernel(transport, port, tls=True, ca=authority.pem) as kernel:
            assert (await kernel.check_output(question(KEY))).decision == "quarantine"
        async with connected_output_kernel(transport, port, tls=True, ca=other.pem) as kernel:
            assert "the output policy service cannot be asked" in await refusal(kernel)
        async with connected_output_kernel(transport, port) as kernel:
            assert "the output policy service cannot be asked" in await refusal(kernel)


@TRANSPORTS
async def test_a_service_answers_only_callers_with_its_token(transport: str) -> None:
    async with served_outputs(transport, OutputAnswers(), token="right") as port:  # noqa: S106 - of the test
        async with connected_output_kernel(transport, port, token="right") as kernel:  # noqa: S106
            assert (await kernel.check_output(question("x"))).decision == "allow"
        async with connected_output_kernel(transport, port, token="wrong") as kernel:  # noqa: S106
            assert "the output policy service" in await refusal(kernel)


@TRANSPORTS
async def test_a_kernel_that_judges_no_outputs_says_so(transport: str) -> None:
    async with served_outputs(transport, None) as port, connected_output_kernel(transport, port) as kernel:
        assert "the output policy service" in await refusal(kernel)


@TRANSPORTS
async def test_a_service_that_does_not_answer_in_time_is_not_waited_for(transport: str) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connected_output_kernel(transport, port, timeout_ms=200) as kernel:
        assert "the output policy service" in await refusal(kernel)
    server.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()


@TRANSPORTS
async def test_an_output_of_some_megabytes_is_judged(transport: str) -> None:
    async with (
        served_outputs(transport, OutputAnswers()) as port,
        connected_output_kernel(transport, port) as kernel,
    ):
        answer = await kernel.check_output(question(["x" * (3 << 20), KEY]))

    assert answer.decision == "quarantine"


async def test_the_messages_have_the_field_numbers_of_the_protocol() -> None:
    """Bytes as another implementation writes them: number, wire type, value."""
    asked = encode(OUTPUT_REQUEST, question("x", labels={"k": "v"}, risk_tags=("r",), content_hash="h"))
    assert decode(OUTPUT_REQUEST, asked) == question("x", labels={"k": "v"}, risk_tags=("r",), content_hash="h")
    assert asked == b'\x0a\x06task_1\x12\x03a.b\x22\x06\x0a\x01k\x12\x01v\x62\x01h\x7a\x03"x"\x8a\x01\x01r'
    finding = b"\x0a\x03key\x12\x04high\x1a\x06detail\x20\x02\x28\x03\x32\x06secret\x3d\x00\x00\x80\x3f\x42\x03raw"
    said = b"\x08\x01\x12\x03why\x1a\x01r\x22\x04snap\x2a" + bytes([len(finding)]) + finding + b"\x32\x03ptr"
    assert decode(OUTPUT_RESPONSE, said) == OutputCheckResponse(
        decision="quarantine",
        reason="why",
        rule_id="r",
        policy_snapshot="snap",
        findings=(JudgedFinding(type="key", severity="high", offset=2, length=3, scanner="secret"),),
    )


async def test_an_empty_answer_over_grpc_is_the_first_decision_of_the_protocol() -> None:
    async def empty(_: bytes, __: object) -> bytes:
        return b""

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "CheckOutput": grpc.unary_unary_rpc_method_handler(empty)
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(CHECK_OUTPUT_METHOD.split("/")[1], handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with connected_output_kernel("grpc", port) as kernel:
        assert (await kernel.check_output(question("x"))).decision == "allow"
    await server.stop(None)
