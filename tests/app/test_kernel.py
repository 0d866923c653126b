"""The settings of the policy kernel: each is changed, and its effect seen."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from contracts.store import NOON
from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.app.kernel import build_kernel_policy, connect_kernel
from gnomon.config.kernel_rules import KernelAddress, kernel_address
from gnomon.config.settings import Settings, load
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.errors import FieldError, FileError, KernelUnavailable, RulingUnavailable
from gnomon.services.execution.kernel_policy import KernelPolicy
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.testing.clock import Recorder, VirtualClock
from support.certificates import Authority
from support.policy_kernels import Answers, ScriptedKernel, hang, served, server_certificate
from support.tasks_to_admit import request_to_admit

KERNEL = "grpc://127.0.0.1:50051"
QUESTION = PolicyCheckRequest(job_id="task_1", topic="x")


def settings(kernel: str = KERNEL, **environment: str) -> Settings:
    return load(environment={"GNOMON_POLICY__KERNEL": kernel, **environment})


async def policy_of(
    configured: Settings, *, answer: object = KernelUnavailable("it is away"), file: str = ""
) -> tuple[KernelPolicy, VirtualClock, ScriptedKernel]:
    """The policy that asks a kernel which does not answer, and a policy in force with that content."""
    clock = VirtualClock(NOON)
    store, events = MemoryStore(clock.now), Recorder()
    stored = StoredPolicy(
        store.policies,
        events,
        compile_version=lambda version: CompiledPolicy(parse_policy(version.body), version.version, throttle_ms=100),
        refresh_seconds=1,
    )
    if file:
        await store.policies.add(file, author="ada", now=NOON)
        await stored.refresh()

    async def fails(request: PolicyCheckRequest) -> object:
        del request
        if isinstance(answer, Exception):
            raise answer
        return answer

    kernel = ScriptedKernel(fails)  # type: ignore[arg-type]
    return build_kernel_policy(configured.policy, store, clock, events, stored, kernel), clock, kernel


async def allows(request: PolicyCheckRequest) -> PolicyCheckResponse:
    del request
    return PolicyCheckResponse(decision="allow", rule_id="r")


async def decided(policy: KernelPolicy, task: str = "task_1") -> str:
    try:
        ruling = await policy.rule(request_to_admit(task))
    except RulingUnavailable as error:
        return f"waits for {error.after_ms} ms"
    assert ruling is not None
    return f"{ruling.decision} by {ruling.rule}"


# ---- addresses and TLS -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("grpc://127.0.0.1:5", KernelAddress("grpc", tls=False, target="127.0.0.1:5")),
        ("grpcs://kernel.example:5/", KernelAddress("grpc", tls=True, target="kernel.example:5")),
        ("grpc://[::1]:5", KernelAddress("grpc", tls=False, target="[::1]:5")),
        ("http://localhost", KernelAddress("http", tls=False, target="http://localhost/v1/check")),
        ("http://localhost:80/", KernelAddress("http", tls=False, target="http://localhost:80/v1/check")),
        ("https://opa.example/v1/data/x", KernelAddress("http", tls=True, target="https://opa.example/v1/data/x")),
    ],
)
def test_an_address_is_a_transport_and_a_target(url: str, address: KernelAddress) -> None:
    assert kernel_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "kernel", "127.0.0.1:5", "grpc://", "grpc://host", "grpc://host:x", "grpc://host:0", "grpc://host:5/path",
        "grpc://host:5?q", "redis://host:5", "http://", "http://user:secret@host", "https://host/#part", "grpc://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(FieldError, match=r"policy\.kernel"):
        settings(url)


@pytest.mark.req("R-20")
@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_kernel_on_another_machine_needs_tls_unless_that_is_waived(scheme: str) -> None:
    url = f"{scheme}://10.0.0.1:5"
    with pytest.raises(FieldError, match="over the network without TLS"):
        settings(url)

    assert settings(url, SAFETY_KERNEL_INSECURE="true").policy.kernel == url
    assert settings(f"{scheme}s://10.0.0.1:5").policy.kernel


@pytest.mark.req("R-20")
@pytest.mark.parametrize("url", [KERNEL, "http://127.0.0.1:5"])
def test_where_tls_is_required_not_even_this_machine_is_asked_without(url: str) -> None:
    assert settings(url).policy.kernel == url
    with pytest.raises(FieldError, match="has no TLS, which"):
        settings(url, SAFETY_KERNEL_TLS_REQUIRED="true")
    with pytest.raises(FieldError, match="contradicts"):
        settings(url, SAFETY_KERNEL_TLS_REQUIRED="true", SAFETY_KERNEL_INSECURE="true")
    assert settings(url.replace("://", "s://"), SAFETY_KERNEL_TLS_REQUIRED="true").policy.kernel_tls_required


@pytest.mark.req("R-20")
@pytest.mark.parametrize("transport", ["grpc", "http"])
async def test_the_certificates_in_a_file_say_which_kernel_is_trusted(transport: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with served(transport, Answers(), certificate=server_certificate(authority.server())) as port:
        url = f"{transport}s://127.0.0.1:{port}"
        trusting = connect_kernel(settings(url, SAFETY_KERNEL_TLS_CA=authority.file).policy)
        other = connect_kernel(settings(url).policy)
        try:
            assert (await trusting.check(QUESTION)).decision == "allow"
            with pytest.raises(KernelUnavailable):
                await other.check(QUESTION)
        finally:
            await trusting.close()
            await other.close()


@pytest.mark.req("R-20")
def test_a_file_without_certificates_is_refused_at_the_start(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing")

    with pytest.raises(FileError, match="has no certificates in PEM"):
        connect_kernel(settings("grpcs://127.0.0.1:5", SAFETY_KERNEL_TLS_CA=str(empty)).policy)
    with pytest.raises(FileError, match="missing"):
        connect_kernel(settings("grpcs://127.0.0.1:5", SAFETY_KERNEL_TLS_CA=str(tmp_path / "missing")).policy)
    with pytest.raises(FieldError, match="means nothing"):
        settings(KERNEL, SAFETY_KERNEL_TLS_CA=str(empty))


# ---- fail modes --------------------------------------------------------------------------------------

_CLOSED, _OPEN = "default_decision: allow", "{default_decision: allow, input_policy: {fail_mode: open}}"
_WAITS, _RUNS = "waits for 5000 ms", "allow by fail_open"


@pytest.mark.req("R-13", "R-20")
@pytest.mark.parametrize(
    ("variable", "file", "expected"),
    [
        (None, "", _WAITS),
        (None, _CLOSED, _WAITS),
        (None, _OPEN, _RUNS),
        ("open", "", _RUNS),
        ("open", _CLOSED, _RUNS),
        ("closed", _OPEN, _WAITS),
    ],
)
async def test_the_variable_says_what_happens_without_the_kernel_and_then_the_policy_in_force(
    variable: str | None, file: str, expected: str
) -> None:
    said: Mapping[str, str] = {} if variable is None else {"POLICY_CHECK_FAIL_MODE": variable}
    policy, _, _ = await policy_of(settings(**said), file=file)

    assert await decided(policy) == expected


@pytest.mark.req("R-13")
@pytest.mark.parametrize("word", ["OPEN", "yes", "half"])
def test_another_fail_mode_is_refused(word: str) -> None:
    with pytest.raises(FieldError, match=r"policy\.fail_mode"):
        settings(POLICY_CHECK_FAIL_MODE=word)
    with pytest.raises(FileError, match="fail_mode"):
        parse_policy(f"input_policy: {{fail_mode: {word}}}")


# ---- budgets -----------------------------------------------------------------------------------------


@pytest.mark.req("R-02")
@pytest.mark.parametrize("answer", ["allow", "require_approval"])
async def test_budgets_of_the_policy_in_the_store_count_beside_the_kernel(answer: str) -> None:
    file = "{default_decision: deny, budgets: [{id: hourly, limit: 2, per: 1h, by: [tenant]}]}"
    said = settings(GNOMON_POLICY__KERNEL_CACHE="1m")
    policy, _, _ = await policy_of(said, answer=PolicyCheckResponse(decision=answer, rule_id="r"), file=file)

    first = await policy.rule(request_to_admit())
    again = policy.rule_now(request_to_admit("task_2")) or await policy.rule(request_to_admit("task_2"))

    for ruling in (first, again):
        assert ruling is not None
        assert [(one.budget, one.scope, one.limit) for one in ruling.budgets] == [("hourly", "tenant default", 2)]


@pytest.mark.req("R-02", "R-13")
async def test_budgets_count_while_the_kernel_is_away_and_not_for_denied_tasks() -> None:
    file = "{budgets: [{id: hourly, limit: 2, per: 1h}], input_policy: {fail_mode: open}}"
    runs, _, _ = await policy_of(settings(), file=file)
    denied, _, _ = await policy_of(settings(), answer=PolicyCheckResponse(decision="deny"), file=file)

    permitted, refused = await runs.rule(request_to_admit()), await denied.rule(request_to_admit())

    assert permitted is not None
    assert refused is not None
    assert (len(permitted.budgets), len(refused.budgets)) == (1, 0)


# ---- the other settings ------------------------------------------------------------------------------


@pytest.mark.req("R-20")
@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_the_kernel_has_as_long_to_answer_as_the_settings_say(scheme: str) -> None:
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    silent = await asyncio.start_server(lambda *streams: held.append(streams), "127.0.0.1", 0)
    url = f"{scheme}://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    limits = {"GNOMON_EXECUTION__GATE_TIMEOUT": "60s"}
    quick, patient = (
        connect_kernel(settings(url, GNOMON_POLICY__KERNEL_TIMEOUT=limit, **limits).policy)
        for limit in ("100ms", "60s")
    )

    waits = asyncio.ensure_future(patient.check(QUESTION))
    with pytest.raises(KernelUnavailable, match=r"within 0\.1 s"):
        await quick.check(QUESTION)
    assert not waits.done()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    await quick.close()
    await patient.close()
    for _, writer in held:
        writer.close()
    silent.close()


@pytest.mark.req("R-12", "R-20")
async def test_the_breaker_has_the_limits_of_the_settings() -> None:
    said = {"GNOMON_POLICY__KERNEL_FAILURES": "5", "GNOMON_POLICY__KERNEL_OPEN": "2m"}
    policy, clock, kernel = await policy_of(settings(**said))
    for number in range(8):
        await decided(policy, f"task_{number}")
    assert kernel.asked == 5

    clock.advance(119_999)
    await decided(policy)
    assert kernel.asked == 5
    clock.advance(1)
    await decided(policy)
    assert kernel.asked == 6


@pytest.mark.req("R-12", "R-20")
@pytest.mark.parametrize("probes", [1, 3])
async def test_as_many_probes_are_under_way_as_the_settings_say(probes: int) -> None:
    said = {"GNOMON_POLICY__KERNEL_FAILURES": "1", "GNOMON_POLICY__KERNEL_PROBES": str(probes)}
    policy, clock, kernel = await policy_of(settings(**said))
    await decided(policy)
    clock.advance(30_000)
    kernel.answer = hang

    asking = [asyncio.ensure_future(decided(policy, f"task_{number}")) for number in range(5)]
    refused, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    while len(refused) < 5 - probes:
        refused, _ = await asyncio.wait(asking, timeout=0)
        await asyncio.sleep(0)

    assert kernel.under_way == probes
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.req("R-12", "R-20")
@pytest.mark.parametrize(("successes", "closed"), [(2, True), (3, False)])
async def test_as_many_successes_close_the_breaker_as_the_settings_say(successes: int, *, closed: bool) -> None:
    said = {"GNOMON_POLICY__KERNEL_FAILURES": "2", "GNOMON_POLICY__KERNEL_SUCCESSES": str(successes)}
    policy, clock, kernel = await policy_of(settings(**said))
    fails = kernel.answer
    await decided(policy, "task_1")
    await decided(policy, "task_2")
    clock.advance(30_000)

    kernel.answer = allows
    assert [await decided(policy, f"task_{number}") for number in (3, 4)] == ["allow by r"] * 2
    kernel.answer = fails
    await decided(policy, "task_5")
    await decided(policy, "task_6")

    # A closed breaker takes a second failure; one that is half open takes none.
    assert kernel.asked == (6 if closed else 5)


@pytest.mark.req("R-20")
async def test_a_task_waits_for_as_long_as_the_settings_say() -> None:
    policy, _, _ = await policy_of(settings(GNOMON_POLICY__KERNEL_RETRY="17s"))

    assert await decided(policy) == "waits for 17000 ms"


def test_the_kernel_has_less_time_than_the_gate() -> None:
    with pytest.raises(FieldError, match=r"at most execution\.gate_timeout"):
        settings(GNOMON_POLICY__KERNEL_TIMEOUT="6s")

    assert settings(GNOMON_POLICY__KERNEL_TIMEOUT="6s", GNOMON_EXECUTION__GATE_TIMEOUT="7s").policy.kernel


# ---- its token -----------------------------------------------------------------------------------

RIGHT = "right-token"


@pytest.mark.req("R-14", "R-20")
@pytest.mark.parametrize("transport", ["grpc", "http"])
async def test_a_kernel_with_a_token_answers_only_those_who_send_it(transport: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("right-token\n")
    file.chmod(0o600)
    said = {"": "UNAUTHENTICATED|401", "wrong": "UNAUTHENTICATED|401", f"file:{file}": "", "right-token": ""}
    async with served(transport, Answers("default_decision: allow"), token=RIGHT) as port:
        for token, refused in said.items():
            configured = settings(f"{transport}://127.0.0.1:{port}", GNOMON_POLICY__KERNEL_TOKEN=token)
            kernel = connect_kernel(configured.policy)
            if refused:
                with pytest.raises(KernelUnavailable, match=refused):
                    await kernel.check(QUESTION)
            else:
                assert (await kernel.check(QUESTION)).decision == "allow"
            await kernel.close()
            assert "right-token" not in repr(configured)


def test_a_token_is_sent_only_over_tls_or_within_this_machine() -> None:
    token = {"GNOMON_POLICY__KERNEL_TOKEN": "secret-token"}

    for url in ("grpc://policy.example.com:50051", "http://policy.example.com"):
        with pytest.raises(FieldError, match=r"policy\.kernel_token.*without TLS") as refused:
            settings(url, GNOMON_POLICY__KERNEL_INSECURE="true", **token)
        assert "secret-token" not in str(refused.value)
    assert (
        settings("grpcs://policy.example.com:50051", **token).policy.kernel_token
        == token["GNOMON_POLICY__KERNEL_TOKEN"]
    )


@pytest.mark.parametrize("said", ["two words", "füchsin", "line\nbreak"])
def test_a_token_that_cannot_be_sent_is_refused_at_the_start(said: str) -> None:
    with pytest.raises(FieldError, match="printable ASCII") as refused:
        connect_kernel(settings(GNOMON_POLICY__KERNEL_TOKEN=said).policy)

    assert said not in str(refused.value)


def test_a_file_with_a_token_that_everybody_may_read_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("right-token")
    file.chmod(0o644)

    with pytest.raises(FieldError, match="everybody may read it"):
        connect_kernel(settings(GNOMON_POLICY__KERNEL_TOKEN=f"file:{file}").policy)


def test_a_replaced_file_is_the_token_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, elapsed = tmp_path / "token", [0.0]
    monkeypatch.setattr("gnomon.adapters.kernel.bearer_token.time.monotonic", lambda: elapsed[0])
    file.write_text("first")
    file.chmod(0o600)
    token = BearerToken("token", f"file:{file}")

    file.write_text("second")
    elapsed[0] = 1.0
    assert token.header == "Bearer first"
    elapsed[0] = 6.0
    assert token.header == "Bearer second"
    file.unlink()
    elapsed[0] = 12.0
    assert token.header == "Bearer second"
    assert token.admits("Bearer second")
    assert not token.admits("Bearer sec\udcffnd")
