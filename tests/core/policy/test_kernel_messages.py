"""The answers of a policy kernel as rulings: whatever cannot be carried out exactly is a denial."""

import msgspec
import pytest

from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.kernel_messages import (
    BudgetConstraints,
    DiffConstraints,
    PolicyCheckRequest,
    PolicyCheckResponse,
    PolicyConstraints,
    PolicyRemediation,
    SandboxConstraints,
    ToolchainConstraints,
    fail_open_ruling,
    invalid_ruling,
    kernel_ruling,
    request_facts,
)
from gnomon.core.policy.ruling import PolicyDecision, Ruling, ruling_text
from gnomon.core.runs.workflow import Isolation, Step
from gnomon.errors import FieldError

pytestmark = pytest.mark.req("R-02", "R-14")

STEP = Step(name="main", function="reports.make")
THROTTLE_MS = 5_000


def ruled(decision: str, **said: object) -> Ruling:
    answer = msgspec.convert({"decision": decision, "rule_id": "r1", **said}, PolicyCheckResponse)
    return kernel_ruling(answer, STEP, throttle_ms=THROTTLE_MS)


def constrained(**limits: object) -> Ruling:
    answer = PolicyCheckResponse(
        decision="allow_with_constraints",
        rule_id="r1",
        constraints=msgspec.convert(limits, PolicyConstraints, from_attributes=True),
    )
    return kernel_ruling(answer, STEP, throttle_ms=THROTTLE_MS)


def test_a_permission_names_the_rule_and_the_policy_of_the_kernel() -> None:
    found = ruled("allow", policy_snapshot="sha256:0123456789abcdef", rule_digest="ff")

    assert (found.decision, found.rule, found.version) == (PolicyDecision.ALLOW, "r1", 0)
    assert (found.ruled_by, found.rule_digest) == ("kernel:0123456789ab", "ff")
    assert found.plain
    assert found.rule_text == "0/kernel:0123456789ab/r1"
    assert ruling_text(found) == "allowed by rule r1 of policy 0123456789ab of the kernel"


@pytest.mark.parametrize("word", ["", "maybe", "ALLOW", "allow ", "number 0", "number 6", "quarantine", "x" * 10_000])
def test_an_unknown_decision_is_a_denial(word: str) -> None:
    found = ruled(word)

    assert (found.decision, found.code) == (PolicyDecision.DENY, "safety_unknown")
    assert "unknown decision" in found.reason
    assert len(found.reason) < 300


def test_a_denial_quotes_its_reason_and_its_proposals() -> None:
    answer = PolicyCheckResponse(
        decision="deny", reason="not\nnow", remediations=(PolicyRemediation(title="wait"), PolicyRemediation())
    )
    found = kernel_ruling(answer, STEP, throttle_ms=THROTTLE_MS)

    assert (found.decision, found.code, found.reason) == (
        PolicyDecision.DENY,
        "safety_denied",
        "not now; instead: wait",
    )


@pytest.mark.parametrize(
    ("code", "kept"), [("safety_unknown", "safety_unknown"), ("ok", "safety_denied"), ("", "safety_denied")]
)
def test_a_denial_has_one_of_our_reason_codes(code: str, kept: str) -> None:
    assert ruled("deny", code=code).code == kept


@pytest.mark.parametrize(
    ("said", "waits"), [(0, THROTTLE_MS), (60_000, 60_000), (1, 100), (-5, 100), (1 << 60, 7 * 24 * 3_600_000)]
)
def test_a_throttled_task_waits_for_as_long_as_the_kernel_says_within_bounds(said: int, waits: int) -> None:
    found = ruled("throttle", retry_after_ms=said)

    assert (found.decision, found.retry_after_ms) == (PolicyDecision.THROTTLE, waits)


def test_a_permission_that_needs_an_approval_is_none() -> None:
    assert ruled("allow", approval_required=True).decision is PolicyDecision.REQUIRE_APPROVAL
    assert ruled("require_approval").decision is PolicyDecision.REQUIRE_APPROVAL


def test_constraints_become_ours() -> None:
    found = constrained(
        budgets=BudgetConstraints(max_runtime_ms=60_000, max_retries=2, max_artifact_bytes=1024, max_concurrent_jobs=5),
        sandbox=SandboxConstraints(isolated=True),
    )

    assert found.decision is PolicyDecision.ALLOW_WITH_CONSTRAINTS
    assert found.constraints == Constraints(
        max_runtime_ms=60_000,
        max_attempts=3,
        max_output_bytes=1024,
        max_concurrent=5,
        isolation=Isolation.PROCESS,
    )


def test_a_permission_with_constraints_is_one_whatever_it_is_called() -> None:
    plain = ruled("allow_with_constraints")
    limited = ruled("allow", constraints={"budgets": {"max_attempts": 1}})

    assert (plain.decision, plain.constraints) == (PolicyDecision.ALLOW, None)
    assert limited.decision is PolicyDecision.ALLOW_WITH_CONSTRAINTS
    assert limited.constraints == Constraints(max_attempts=1)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"sandbox": SandboxConstraints(network_allowlist=("a",))}, "sandbox.network_allowlist"),
        ({"sandbox": SandboxConstraints(fs_read_only=("/",))}, "sandbox.fs_read_only"),
        ({"sandbox": SandboxConstraints(no_network=True)}, "network: false can only be enforced on commands"),
        ({"toolchain": ToolchainConstraints(allowed_tools=("git",))}, "toolchain.allowed_tools"),
        ({"diff": DiffConstraints(max_files=3)}, "diff.max_files"),
        ({"redaction_level": "strict"}, "redaction_level"),
        ({"budgets": BudgetConstraints(max_runtime_ms=-1)}, "max_runtime_ms: -1 must be from 1"),
        ({"budgets": BudgetConstraints(max_artifact_bytes=10)}, "max_artifact_bytes: 10 must be from 256"),
        ({"budgets": BudgetConstraints(max_retries=1 << 40)}, "max_attempts: 1099511627777 must be from 1"),
    ],
)
def test_constraints_that_nothing_can_enforce_deny_the_task(limits: dict[str, object], reason: str) -> None:
    found = constrained(**limits)

    assert (found.decision, found.code) == (PolicyDecision.DENY, "safety_unknown")
    assert reason in found.reason


def test_a_redacted_input_that_we_cannot_use_denies_the_task() -> None:
    assert ruled("allow", redacted_context_ptr="redis://x").code == "safety_unknown"
    assert ruled("allow", redacted_context_ptr="redis://x").decision is PolicyDecision.DENY


def test_names_of_the_kernel_are_bounded_and_printable() -> None:
    found = ruled("allow", rule_id="a\x00b/" + "c" * 500, policy_snapshot="x/y\n" * 50)

    assert found.rule == ("a b/" + "c" * 124)[: len(found.rule)]
    assert len(found.rule) <= 130
    assert found.ruled_by == "kernel:xyxyxyxyxyxy"
    assert ruled("allow", rule_id="\x00").rule == "unnamed"


def test_rulings_without_an_answer_say_so() -> None:
    invalid, opened = invalid_ruling("no\x00pe"), fail_open_ruling("it is away")

    assert (invalid.decision, invalid.code) == (PolicyDecision.DENY, "safety_unknown")
    assert ruling_text(invalid).endswith("(the policy kernel has given no valid answer: no pe)")
    assert (opened.decision, opened.plain, opened.ruled_by) == (PolicyDecision.ALLOW, False, "fail_open")
    assert ruling_text(opened) == "allowed by the fail mode of the policy (fail-open: it is away)"


@pytest.mark.parametrize("written", [b"[]", b"1", b"{", b"\xff"])
def test_an_input_that_is_no_object_is_refused(written: bytes) -> None:
    with pytest.raises(FieldError, match="input_content"):
        request_facts(PolicyCheckRequest(topic="x", input_content=msgspec.Raw(written)))


def test_a_question_of_another_program_needs_only_a_topic() -> None:
    facts = request_facts(PolicyCheckRequest(topic="job.pay"))

    assert (facts.step.topic, facts.step.tenant, facts.step.job) == ("job.pay", "default", "job.pay")
    assert (facts.step.kind, facts.input) == ("function", {})
