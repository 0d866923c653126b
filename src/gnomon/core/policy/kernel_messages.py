"""The messages between a scheduler and a policy kernel: a service that rules on tasks in another process.

They are those of `SafetyKernel.Check` in `adapters/kernel/safety_kernel.proto`, with the same names in JSON. An empty
value is the same as none. Fields that a program does not know are ignored, so that both sides may be of different
versions; a decision, a constraint or a value that the scheduler cannot carry out denies the task.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from gnomon.core.policy.constraints import Constraints, unenforceable
from gnomon.core.policy.facts import STEP_KINDS, RequestFacts, StepFacts
from gnomon.core.policy.ruling import FAIL_OPEN, SAFETY_DENIED, SAFETY_UNKNOWN, PolicyDecision, Ruling, by_kernel
from gnomon.core.runs.admission import AdmissionRequest, clean_reason
from gnomon.core.runs.workflow import Isolation, Step
from gnomon.errors import FieldError

_FUNCTIONS = {kind: function for function, kind in STEP_KINDS.items()}
_NO_INPUT = Raw(b"{}")
_LONGEST_NAME, _SHOWN_SNAPSHOT = 128, 12
#: The limits of a constraint are those of a policy file.
_LONGEST_RUNTIME_MS, _MOST_ATTEMPTS, _MOST_CONCURRENT = 30 * 24 * 3_600_000, 1000, 100_000
_SMALLEST_OUTPUT, _LARGEST_OUTPUT = 256, 64 << 20
_SHORTEST_RETRY_MS, _LONGEST_RETRY_MS = 100, 7 * 24 * 3_600_000


class JobMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a definition that rules look at."""

    tenant_id: str = ""
    actor_id: str = ""
    capability: str = ""
    risk_tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()


class PolicyCheckRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question whether a task may run."""

    job_id: str = ""
    topic: str = ""
    tenant: str = ""
    principal_id: str = ""
    labels: dict[str, str] = {}
    meta: JobMetadata = JobMetadata()
    #: The input as JSON. Secrets in it are still references.
    input_content: Raw = _NO_INPUT
    input_content_type: str = ""
    input_size_bytes: int = 0
    # Fields of our own: the facts that rules may look at, and that the other fields do not say.
    job: str = ""
    workflow: str = ""
    step: str = ""
    function: str = ""
    kind: str = ""
    source: str = ""
    secrets: tuple[str, ...] = ()
    run_id: str = ""
    planned_at: str = ""
    groups: tuple[str, ...] = ()


class BudgetConstraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits as numbers; 0 is none."""

    max_runtime_ms: int = 0
    max_retries: int = 0
    max_artifact_bytes: int = 0
    max_concurrent_jobs: int = 0
    #: Our own: one attempt cannot be told from no limit by `max_retries`.
    max_attempts: int = 0


class SandboxConstraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of the process in which a task runs."""

    isolated: bool = False
    network_allowlist: tuple[str, ...] = ()
    fs_read_only: tuple[str, ...] = ()
    fs_read_write: tuple[str, ...] = ()
    #: Our own: the task may not use the network at all.
    no_network: bool = False


class ToolchainConstraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tools that a task may use; Gnomon cannot enforce them."""

    allowed_tools: tuple[str, ...] = ()
    allowed_commands: tuple[str, ...] = ()


class DiffConstraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes that a task may make; Gnomon cannot enforce them."""

    max_files: int = 0
    max_lines: int = 0
    deny_path_globs: tuple[str, ...] = ()


class PolicyConstraints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conditions under which a task may run."""

    budgets: BudgetConstraints = BudgetConstraints()
    sandbox: SandboxConstraints = SandboxConstraints()
    toolchain: ToolchainConstraints = ToolchainConstraints()
    diff: DiffConstraints = DiffConstraints()
    redaction_level: str = ""


class PolicyRemediation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal of what to do instead."""

    id: str = ""
    title: str = ""
    summary: str = ""


class PolicyCheckResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a kernel."""

    #: A word of PolicyDecision. Any other word denies the task.
    decision: str = ""
    reason: str = ""
    redacted_context_ptr: str = ""
    #: Which policy has decided: a digest, or a version.
    policy_snapshot: str = ""
    rule_id: str = ""
    constraints: PolicyConstraints = PolicyConstraints()
    approval_required: bool = False
    remediations: tuple[PolicyRemediation, ...] = ()
    # Fields of our own.
    rule_digest: str = ""
    #: The reason code of a denial: `safety_denied` or `safety_unknown`.
    code: str = ""
    #: For `throttle`: when to ask again; 0 leaves it to the scheduler.
    retry_after_ms: int = 0
    #: The answer depends on the run or on the time, and must not be remembered.
    varies: bool = False


# ---- the question --------------------------------------------------------------------------------------


def check_request(request: AdmissionRequest, facts: RequestFacts) -> PolicyCheckRequest:
    """The question about a task."""
    step, written = facts.step, msgspec.json.encode(facts.input)
    run = request.waiting.run
    return PolicyCheckRequest(
        job_id=request.waiting.task.task_id,
        topic=step.topic,
        tenant=step.tenant,
        principal_id=facts.actor,
        labels=dict(step.labels),
        meta=JobMetadata(
            tenant_id=step.tenant,
            actor_id=facts.actor,
            capability=step.capability,
            risk_tags=step.risk_tags,
            requires=step.requires,
        ),
        input_content=Raw(written),
        input_content_type="application/json",
        input_size_bytes=len(written),
        job=step.job,
        workflow=step.workflow,
        step=step.step,
        function=step.function,
        kind=step.kind,
        source=facts.source,
        secrets=facts.secrets,
        run_id=run.run_id,
        planned_at=str(facts.run.get("planned_at", "")),
        groups=facts.groups,
    )


def request_facts(check: PolicyCheckRequest) -> RequestFacts:
    """The facts in a question; FieldError if its input is no mapping."""
    meta = check.meta
    function = check.function or _FUNCTIONS.get(check.kind) or check.topic
    run = {"id": check.run_id, "job": check.job, "planned_at": check.planned_at}
    return RequestFacts(
        step=StepFacts(
            tenant=check.tenant or meta.tenant_id or "default",
            job=check.job or check.topic,
            workflow=check.workflow or check.job or check.topic,
            step=check.step or "main",
            topic=check.topic,
            function=function,
            kind=check.kind or STEP_KINDS.get(function, "function"),
            capability=meta.capability,
            risk_tags=meta.risk_tags,
            requires=meta.requires,
            labels=check.labels,
        ),
        actor=check.principal_id or meta.actor_id,
        groups=check.groups,
        source=check.source,
        secrets=check.secrets,
        input=_input(check.input_content),
        run={name: value for name, value in run.items() if value},
    )


def _input(written: Raw) -> Mapping[str, Any]:
    text = bytes(written)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise FieldError("input_content", "(not shown)", "is not JSON") from None
    if not isinstance(found, dict):
        raise FieldError("input_content", "(not shown)", "is not a JSON object")
    return found


def asked_step(facts: StepFacts) -> Step:
    """A step with these facts: as much of it as the policy looks at."""
    return Step(name=facts.step, function=_FUNCTIONS.get(facts.kind, facts.function))


# ---- the answer ----------------------------------------------------------------------------------------


def check_response(ruling: Ruling, snapshot: str, *, varies: bool) -> PolicyCheckResponse:
    """The answer that says this ruling."""
    return PolicyCheckResponse(
        decision=ruling.decision.value,
        reason=ruling.reason,
        policy_snapshot=snapshot,
        rule_id=ruling.rule,
        constraints=_sent_constraints(ruling.constraints),
        approval_required=ruling.decision is PolicyDecision.REQUIRE_APPROVAL,
        rule_digest=ruling.rule_digest,
        code=ruling.code if ruling.decision is PolicyDecision.DENY else "",
        retry_after_ms=ruling.retry_after_ms if ruling.decision is PolicyDecision.THROTTLE else 0,
        varies=varies,
    )


def _sent_constraints(limits: Constraints | None) -> PolicyConstraints:
    if limits is None:
        return PolicyConstraints()
    return PolicyConstraints(
        budgets=BudgetConstraints(
            max_runtime_ms=limits.max_runtime_ms or 0,
            max_retries=(limits.max_attempts or 1) - 1,
            max_artifact_bytes=limits.max_output_bytes or 0,
            max_concurrent_jobs=limits.max_concurrent or 0,
            max_attempts=limits.max_attempts or 0,
        ),
        sandbox=SandboxConstraints(isolated=limits.isolation is not None, no_network=limits.network is False),
    )


def kernel_ruling(answer: PolicyCheckResponse, step: Step, *, throttle_ms: int) -> Ruling:
    """The ruling that an answer makes about a task of the step; it lacks the digest.

    An answer that cannot be carried out exactly is a denial: nobody has allowed anything else.
    """
    made = Ruling(
        decision=PolicyDecision.DENY,
        rule=_rule_name(answer.rule_id),
        version=0,
        digest=b"",
        reason=_reason(answer),
        code=answer.code if answer.code in (SAFETY_DENIED, SAFETY_UNKNOWN) else SAFETY_DENIED,
        ruled_by=by_kernel(_snapshot(answer.policy_snapshot)),
        rule_digest=clean_reason(answer.rule_digest[:_LONGEST_NAME]),
    )
    try:
        decision = PolicyDecision(answer.decision)
    except ValueError:
        word = clean_reason(answer.decision[:_LONGEST_NAME])
        return unknown_ruling(made, f"the policy kernel has answered with the unknown decision {word!r}")
    if decision is PolicyDecision.DENY:
        return made
    if decision is PolicyDecision.THROTTLE:
        wait = answer.retry_after_ms or throttle_ms
        wait = min(max(wait, _SHORTEST_RETRY_MS), _LONGEST_RETRY_MS)
        return replace(made, decision=decision, retry_after_ms=wait)
    return _permission(answer, made, step)


def _permission(answer: PolicyCheckResponse, made: Ruling, step: Step) -> Ruling:
    """The ruling of an answer that lets the task run, now or once it is approved."""
    try:
        limits = _received_constraints(answer)
    except FieldError as error:
        return unknown_ruling(made, f"the policy kernel asks for what nothing can enforce: {error}")
    if limits is not None and (problem := unenforceable(step, limits)):
        return unknown_ruling(made, problem)
    if answer.approval_required or answer.decision == PolicyDecision.REQUIRE_APPROVAL:
        # A vote counts for as long as the rule is the same; a kernel may only say which policy it is from.
        rule_digest = made.rule_digest or clean_reason(answer.policy_snapshot[:_LONGEST_NAME])
        return replace(made, decision=PolicyDecision.REQUIRE_APPROVAL, constraints=limits, rule_digest=rule_digest)
    decision = PolicyDecision.ALLOW if limits is None else PolicyDecision.ALLOW_WITH_CONSTRAINTS
    return replace(made, decision=decision, constraints=limits)


def unknown_ruling(made: Ruling, reason: str) -> Ruling:
    """The denial of a task about which the kernel has given no valid answer."""
    return replace(made, decision=PolicyDecision.DENY, reason=clean_reason(reason), code=SAFETY_UNKNOWN)


def invalid_ruling(reason: str) -> Ruling:
    """The denial of a task about which the kernel has sent something that is no answer."""
    return Ruling(
        decision=PolicyDecision.DENY,
        rule="unknown",
        version=0,
        digest=b"",
        reason=clean_reason(f"the policy kernel has given no valid answer: {reason}"),
        code=SAFETY_UNKNOWN,
        ruled_by=by_kernel(""),
    )


def fail_open_ruling(reason: str) -> Ruling:
    """The permission of a task about which the kernel cannot be asked, where that lets tasks run."""
    return Ruling(
        decision=PolicyDecision.ALLOW,
        rule=FAIL_OPEN,
        version=0,
        digest=b"",
        reason=clean_reason(f"fail-open: {reason}"),
        ruled_by=FAIL_OPEN,
    )


def _rule_name(given: str) -> str:
    return clean_reason(given[:_LONGEST_NAME]) or "unnamed"


def _snapshot(given: str) -> str:
    """A short name of the policy that has decided."""
    name = given[:_LONGEST_NAME].removeprefix("sha256:")
    return (
        name[:_SHOWN_SNAPSHOT]
        if name.isascii() and name.isalnum()
        else "".join(char for char in name if char.isascii() and (char.isalnum() or char in "._-"))[:_SHOWN_SNAPSHOT]
    )


def _reason(answer: PolicyCheckResponse) -> str:
    said = clean_reason(answer.reason)
    titles = (clean_reason(one.title or one.summary) for one in answer.remediations[:10])
    instead = ", or ".join(title for title in titles if title and title not in said)
    return clean_reason("; instead: ".join(part for part in (said, instead) if part))


def _received_constraints(answer: PolicyCheckResponse) -> Constraints | None:
    """The constraints of an answer, None if there are none; FieldError for one that nothing can enforce."""
    for name, value in _unenforced(answer):
        if value:
            raise FieldError(name, value, "is set")
    budgets, sandbox = answer.constraints.budgets, answer.constraints.sandbox
    attempts = budgets.max_attempts or (budgets.max_retries + 1 if budgets.max_retries else 0)
    found = Constraints(
        max_runtime_ms=_limit("max_runtime_ms", budgets.max_runtime_ms, 1, _LONGEST_RUNTIME_MS),
        max_attempts=_limit("max_attempts", attempts, 1, _MOST_ATTEMPTS),
        max_output_bytes=_limit("max_artifact_bytes", budgets.max_artifact_bytes, _SMALLEST_OUTPUT, _LARGEST_OUTPUT),
        isolation=Isolation.PROCESS if sandbox.isolated else None,
        network=False if sandbox.no_network else None,
        max_concurrent=_limit("max_concurrent_jobs", budgets.max_concurrent_jobs, 1, _MOST_CONCURRENT),
    )
    return None if found == Constraints() else found


def _unenforced(answer: PolicyCheckResponse) -> Iterator[tuple[str, object]]:
    limits = answer.constraints
    yield "redacted_context_ptr", answer.redacted_context_ptr
    yield "redaction_level", limits.redaction_level
    for group, fields in (("toolchain", limits.toolchain), ("diff", limits.diff)):
        for name, value in msgspec.structs.asdict(fields).items():
            yield f"{group}.{name}", value
    for name in ("network_allowlist", "fs_read_only", "fs_read_write"):
        yield f"sandbox.{name}", getattr(limits.sandbox, name)


def _limit(name: str, value: int, low: int, high: int) -> int | None:
    if not value:
        return None
    if not low <= value <= high:
        raise FieldError(name, value, f"must be from {low} to {high}")
    return value
