"""Questions about outputs to a service in another process, its answers, and the answers of `gnomon policy serve`."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gnomon.core.model import Run
from gnomon.core.output_policy.compiled import MOST_FINDINGS, CompiledOutputPolicy, content_digest
from gnomon.core.output_policy.kernel_messages import NOTHING, JudgedFinding, OutputCheckRequest, OutputCheckResponse
from gnomon.core.output_policy.ruling import NO_CONTENT, OutputDecision, OutputRuling, ScanFinding, ScanSeverity
from gnomon.core.output_policy.scanners import REDACTED
from gnomon.core.policy.facts import STEP_KINDS, StepFacts
from gnomon.core.runs.admission import clean_reason

_JSON = "application/json"
_LONGEST_NAME = 64
#: Shorter texts would be removed from a reason wherever they stand in it.
_SHORTEST_SHOWN = 4

# ---- the question --------------------------------------------------------------------------------------


def output_request(task_id: str, run: Run, facts: StepFacts, output: bytes) -> OutputCheckRequest:
    """The question about an output."""
    return OutputCheckRequest(
        job_id=task_id,
        topic=facts.topic,
        tenant=facts.tenant,
        labels=dict(facts.labels),
        output_size_bytes=len(output),
        content_hash=f"sha256:{content_digest(output)}",
        workflow_id=facts.workflow,
        step_id=facts.step,
        output_content=Raw(output),
        capabilities=(facts.capability,) if facts.capability else (),
        risk_tags=facts.risk_tags,
        principal_id=run.actor or "",
        content_type=_JSON,
        job=facts.job,
        run_id=run.run_id,
        function=facts.function,
        kind=facts.kind,
        requires=facts.requires,
    )


def answer_output(policy: CompiledOutputPolicy, snapshot: str, asked: OutputCheckRequest) -> OutputCheckResponse:
    """The answer of the rules about outputs in a policy file."""
    content = bytes(asked.output_content) or NO_CONTENT
    ruling = policy.for_step(_facts(asked)).ruling(content, has_error=False, largest=len(content))
    return OutputCheckResponse(
        decision=ruling.decision.value,
        reason=ruling.reason,
        rule_id=ruling.rule,
        policy_snapshot=snapshot,
        findings=tuple(
            JudgedFinding(
                type=one.pattern, severity=one.severity.value, offset=one.offset, length=one.length, scanner=one.scanner
            )
            for one in ruling.findings
        ),
        redacted_content=NOTHING if ruling.redacted is None else Raw(ruling.redacted),
    )


def _facts(asked: OutputCheckRequest) -> StepFacts:
    function = asked.function or asked.topic
    return StepFacts(
        tenant=asked.tenant or "default",
        job=asked.job or asked.workflow_id or asked.topic,
        workflow=asked.workflow_id or asked.job or asked.topic,
        step=asked.step_id or "main",
        topic=asked.topic,
        function=function,
        kind=asked.kind or STEP_KINDS.get(function, "function"),
        capability=next(iter(asked.capabilities), ""),
        risk_tags=asked.risk_tags,
        requires=asked.requires,
        labels=asked.labels,
    )


# ---- the answer ----------------------------------------------------------------------------------------


def judged_ruling(answer: OutputCheckResponse, output: bytes) -> OutputRuling:
    """The ruling that an answer makes about an output; ValueError if it makes none.

    A redaction that cannot be carried out holds the output back.
    """
    said = OutputDecision.QUARANTINE.value if answer.decision == "deny" else answer.decision
    try:
        decision = OutputDecision(said)
    except ValueError:
        word = clean_reason(answer.decision[:_LONGEST_NAME])
        raise ValueError(f"it has answered with the unknown decision {word!r}") from None
    made = OutputRuling(
        decision=decision,
        rule=clean_reason(answer.rule_id[:_LONGEST_NAME]) or "unnamed",
        version=0,
        content_digest=content_digest(output),
        size=len(output),
    )
    if decision is OutputDecision.ALLOW:
        return made
    findings = _findings(answer, len(output))
    made = replace(made, findings=findings, reason=_reason(answer, findings, output))
    if decision is OutputDecision.QUARANTINE:
        return made
    redacted = _redacted(answer, findings, output)
    if redacted is None:
        return replace(made, decision=OutputDecision.QUARANTINE, reason=f"{made.reason}; it cannot be redacted")
    return replace(made, redacted=redacted)


def _findings(answer: OutputCheckResponse, size: int) -> tuple[ScanFinding, ...]:
    return tuple(
        ScanFinding(
            scanner=clean_reason(one.scanner[:_LONGEST_NAME]) or "service",
            pattern=clean_reason(one.type[:_LONGEST_NAME]) or "unnamed",
            severity=_severity(one.severity),
            offset=one.offset,
            length=one.length,
        )
        for one in answer.findings
        if 0 <= one.offset < size and 0 < one.length <= size - one.offset
    )[:MOST_FINDINGS]


def _severity(word: str) -> ScanSeverity:
    return ScanSeverity(word) if word in tuple(ScanSeverity) else ScanSeverity.HIGH


def _reason(answer: OutputCheckResponse, findings: tuple[ScanFinding, ...], output: bytes) -> str:
    """The reason of the service, without the texts that it has found."""
    said = answer.reason
    for one in findings:
        found = output[one.offset : one.end].decode(errors="replace")
        if len(found) >= _SHORTEST_SHOWN:
            said = said.replace(found, REDACTED)
    return clean_reason(said) or "the service gave no reason"


def _redacted(answer: OutputCheckResponse, findings: tuple[ScanFinding, ...], output: bytes) -> bytes | None:
    """The output to store; None if the answer says none that is JSON."""
    made = bytes(answer.redacted_content)
    if not made and findings and len(findings) == len(answer.findings):
        parts, last = list[bytes](), 0
        for one in sorted(findings, key=lambda one: one.offset):
            if one.offset >= last:
                parts += output[last : one.offset], REDACTED.encode()
            last = max(last, one.end)
        made = b"".join((*parts, output[last:]))
    try:
        msgspec.json.decode(made)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return made
