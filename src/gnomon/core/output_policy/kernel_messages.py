"""The messages between a scheduler and a service that judges outputs in another process.

They are those of `OutputPolicyService.CheckOutput` in `adapters/kernel/output_policy.proto`, with the same names in
JSON. An empty value is the same as none.
"""

from msgspec import Raw, Struct

_NO_CONTENT = Raw(b"null")
#: The default of a content that need not be there: it is left out of JSON.
NOTHING = Raw(b"")


class OutputCheckRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question whether an output may stay."""

    job_id: str = ""
    topic: str = ""
    tenant: str = ""
    labels: dict[str, str] = {}
    output_size_bytes: int = 0
    content_hash: str = ""
    workflow_id: str = ""
    step_id: str = ""
    #: The output as JSON.
    output_content: Raw = _NO_CONTENT
    capabilities: tuple[str, ...] = ()
    risk_tags: tuple[str, ...] = ()
    principal_id: str = ""
    content_type: str = ""
    # Fields of our own: the facts that rules may look at, and that the other fields do not say.
    job: str = ""
    run_id: str = ""
    function: str = ""
    kind: str = ""
    requires: tuple[str, ...] = ()


class JudgedFinding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of something that was found. Texts that quote it are not read."""

    type: str = ""
    severity: str = ""
    offset: int = 0
    length: int = 0
    scanner: str = ""


class OutputCheckResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a service."""

    #: A word of OutputDecision, or `deny`.
    decision: str = ""
    reason: str = ""
    rule_id: str = ""
    #: Which policy has decided: a digest, or a version.
    policy_snapshot: str = ""
    findings: tuple[JudgedFinding, ...] = ()
    #: Our own: for `redact`, the output to store instead; without it, the findings are replaced.
    redacted_content: Raw = NOTHING
