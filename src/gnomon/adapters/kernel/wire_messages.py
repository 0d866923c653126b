"""The messages of `safety_kernel.proto` and `output_policy.proto`, with the numbers of their fields."""

from msgspec import Struct

from gnomon.adapters.kernel.wire_format import WireField, WireKind, WireMessage
from gnomon.core.output_policy.kernel_messages import JudgedFinding, OutputCheckRequest, OutputCheckResponse
from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.policy.kernel_messages import (
    BudgetConstraints,
    DiffConstraints,
    JobMetadata,
    PolicyCheckRequest,
    PolicyCheckResponse,
    PolicyConstraints,
    PolicyRemediation,
    SandboxConstraints,
    ToolchainConstraints,
)
from gnomon.core.policy.ruling import PolicyDecision

#: The methods, as gRPC names them.
CHECK_METHOD = "/cordum.agent.v1.SafetyKernel/Check"
CHECK_OUTPUT_METHOD = "/cordum.v1.OutputPolicyService/CheckOutput"
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
#: The numbers of decisions.
DECISION_NUMBERS = {
    1: PolicyDecision.ALLOW.value,
    2: PolicyDecision.DENY.value,
    3: PolicyDecision.REQUIRE_APPROVAL.value,
    4: PolicyDecision.THROTTLE.value,
    5: PolicyDecision.ALLOW_WITH_CONSTRAINTS.value,
}
_TEXT, _TEXTS, _INTEGER, _BOOLEAN = WireKind.TEXT, WireKind.TEXTS, WireKind.INTEGER, WireKind.BOOLEAN

_METADATA = WireMessage(
    JobMetadata,
    WireField(1, "tenant_id", _TEXT),
    WireField(2, "actor_id", _TEXT),
    WireField(5, "capability", _TEXT),
    WireField(6, "risk_tags", _TEXTS),
    WireField(7, "requires", _TEXTS),
)
CHECK_REQUEST = WireMessage(
    PolicyCheckRequest,
    WireField(1, "job_id", _TEXT),
    WireField(2, "topic", _TEXT),
    WireField(3, "tenant", _TEXT),
    WireField(7, "principal_id", _TEXT),
    WireField(8, "labels", WireKind.TEXT_MAP),
    WireField(11, "meta", WireKind.MESSAGE, _METADATA),
    WireField(20, "input_content", WireKind.RAW),
    WireField(21, "input_content_type", _TEXT),
    WireField(22, "input_size_bytes", _INTEGER),
    WireField(100, "job", _TEXT),
    WireField(101, "workflow", _TEXT),
    WireField(102, "step", _TEXT),
    WireField(103, "function", _TEXT),
    WireField(104, "kind", _TEXT),
    WireField(105, "source", _TEXT),
    WireField(106, "secrets", _TEXTS),
    WireField(107, "run_id", _TEXT),
    WireField(108, "planned_at", _TEXT),
    WireField(109, "groups", _TEXTS),
)
_BUDGETS = WireMessage(
    BudgetConstraints,
    WireField(1, "max_runtime_ms", _INTEGER),
    WireField(2, "max_retries", _INTEGER),
    WireField(3, "max_artifact_bytes", _INTEGER),
    WireField(4, "max_concurrent_jobs", _INTEGER),
    WireField(100, "max_attempts", _INTEGER),
)
_SANDBOX = WireMessage(
    SandboxConstraints,
    WireField(1, "isolated", _BOOLEAN),
    WireField(2, "network_allowlist", _TEXTS),
    WireField(3, "fs_read_only", _TEXTS),
    WireField(4, "fs_read_write", _TEXTS),
    WireField(100, "no_network", _BOOLEAN),
)
_TOOLCHAIN = WireMessage(
    ToolchainConstraints, WireField(1, "allowed_tools", _TEXTS), WireField(2, "allowed_commands", _TEXTS)
)
_DIFF = WireMessage(
    DiffConstraints,
    WireField(1, "max_files", _INTEGER),
    WireField(2, "max_lines", _INTEGER),
    WireField(3, "deny_path_globs", _TEXTS),
)
_CONSTRAINTS = WireMessage(
    PolicyConstraints,
    WireField(1, "budgets", WireKind.MESSAGE, _BUDGETS),
    WireField(2, "sandbox", WireKind.MESSAGE, _SANDBOX),
    WireField(3, "toolchain", WireKind.MESSAGE, _TOOLCHAIN),
    WireField(4, "diff", WireKind.MESSAGE, _DIFF),
    WireField(5, "redaction_level", _TEXT),
)
_REMEDIATION = WireMessage(
    PolicyRemediation, WireField(1, "id", _TEXT), WireField(2, "title", _TEXT), WireField(3, "summary", _TEXT)
)


CHECK_RESPONSE = WireMessage(
    PolicyCheckResponse,
    WireField(1, "decision", WireKind.WORD, words=DECISION_NUMBERS),
    WireField(2, "reason", _TEXT),
    WireField(3, "redacted_context_ptr", _TEXT),
    WireField(4, "policy_snapshot", _TEXT),
    WireField(5, "rule_id", _TEXT),
    WireField(6, "constraints", WireKind.MESSAGE, _CONSTRAINTS),
    WireField(7, "approval_required", _BOOLEAN),
    WireField(9, "remediations", WireKind.MESSAGES, _REMEDIATION),
    WireField(100, "rule_digest", _TEXT),
    WireField(101, "code", _TEXT),
    WireField(102, "retry_after_ms", _INTEGER),
    WireField(103, "varies", _BOOLEAN),
)


#: The numbers of decisions about outputs.
OUTPUT_DECISION_NUMBERS = {
    0: OutputDecision.ALLOW.value,
    1: OutputDecision.QUARANTINE.value,
    2: OutputDecision.REDACT.value,
}
OUTPUT_REQUEST = WireMessage(
    OutputCheckRequest,
    WireField(1, "job_id", _TEXT),
    WireField(2, "topic", _TEXT),
    WireField(3, "tenant", _TEXT),
    WireField(4, "labels", WireKind.TEXT_MAP),
    WireField(11, "output_size_bytes", _INTEGER),
    WireField(12, "content_hash", _TEXT),
    WireField(13, "workflow_id", _TEXT),
    WireField(14, "step_id", _TEXT),
    WireField(15, "output_content", WireKind.RAW),
    WireField(16, "capabilities", _TEXTS),
    WireField(17, "risk_tags", _TEXTS),
    WireField(18, "principal_id", _TEXT),
    WireField(20, "content_type", _TEXT),
    WireField(100, "job", _TEXT),
    WireField(101, "run_id", _TEXT),
    WireField(102, "function", _TEXT),
    WireField(103, "kind", _TEXT),
    WireField(104, "requires", _TEXTS),
)
_FINDING = WireMessage(
    JudgedFinding,
    WireField(1, "type", _TEXT),
    WireField(2, "severity", _TEXT),
    WireField(4, "offset", _INTEGER),
    WireField(5, "length", _INTEGER),
    WireField(6, "scanner", _TEXT),
)
OUTPUT_RESPONSE = WireMessage(
    OutputCheckResponse,
    WireField(1, "decision", WireKind.WORD, words=OUTPUT_DECISION_NUMBERS),
    WireField(2, "reason", _TEXT),
    WireField(3, "rule_id", _TEXT),
    WireField(4, "policy_snapshot", _TEXT),
    WireField(5, "findings", WireKind.MESSAGES, _FINDING),
    WireField(100, "redacted_content", WireKind.RAW),
)


class HealthStatus(Struct, frozen=True):
    """The state of a server."""

    #: `serving` or `not serving`.
    status: str = "number 0"


HEALTH_RESPONSE = WireMessage(
    HealthStatus, WireField(1, "status", WireKind.WORD, words={1: "serving", 2: "not serving"})
)
