"""Rulings on outputs, as they are made and stored. Nothing here holds a text that was found."""

from enum import StrEnum

from msgspec import Struct

from gnomon.core.model import RunId, TaskId

#: The rule in the rulings on outputs that no rule matches.
NO_RULE = "default"
#: The rule in the rulings on outputs whose content an operator has released before.
RELEASED_RULE = "released"
#: The rule in the rulings on outputs that nobody could check, while such outputs are held back.
UNCHECKED_RULE = "unchecked"
#: The content of an attempt without an output.
NO_CONTENT = b"null"
#: The reason code of the dead letters of outputs that were held back.
OUTPUT_QUARANTINED = "output_quarantined"


class OutputDecision(StrEnum):
    """The decisions that a rule about outputs can make."""

    ALLOW = "allow"
    #: The found texts are replaced; the output is held back if that cannot be done.
    REDACT = "redact"
    #: The output is held back.
    QUARANTINE = "quarantine"


class ScanSeverity(StrEnum):
    """How bad it is if a text that was found becomes known."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class OutputPhase(StrEnum):
    """The time at which an output was checked."""

    #: Before it was stored.
    INLINE = "inline"
    #: After it was stored: it is larger than what is checked inline, or a service in another process judges it.
    LATE = "late"


class ScanFinding(Struct, frozen=True, kw_only=True, gc=False):
    """The place of a match. It never holds the text that was found."""

    scanner: str
    pattern: str
    severity: ScanSeverity
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The first offset behind it."""
        return self.offset + self.length


class OutputRuling(Struct, frozen=True, kw_only=True):
    """The decision on one output."""

    decision: OutputDecision
    #: The id of the rule, and the number of the policy version.
    rule: str
    version: int
    #: The SHA-256 of the output as its attempt returned it, and its size in bytes.
    content_digest: str
    size: int
    reason: str = ""
    findings: tuple[ScanFinding, ...] = ()
    #: For REDACT: the output to store.
    redacted: bytes | None = None
    #: Whether a rule needs the content, which was too large to be read at once.
    incomplete: bool = False


class OutputCheck(Struct, frozen=True, kw_only=True):
    """The check of the output of one attempt, to be recorded with the end of the attempt."""

    #: The topic of its step.
    topic: str
    #: None: nobody could rule on it, and it was released.
    ruling: OutputRuling | None
    #: How long it took.
    ms: int = 0
    #: The output that is held back, encrypted if there is a key for it.
    held: bytes | None = None
    #: Whether the output has to be checked again after it was stored.
    late: bool = False


class HeldStatus(StrEnum):
    """The state of an output that was held back."""

    HELD = "held"
    #: An operator has released it, and the same content of the tenant from then on.
    RELEASED = "released"
    #: An operator has deleted it.
    DISCARDED = "discarded"


class StoredOutputRuling(Struct, frozen=True, kw_only=True):
    """The record of a ruling that redacted or held back the output of an attempt."""

    task_id: TaskId
    #: The number of the attempt.
    number: int
    tenant: str
    run_id: RunId
    #: The name of the job or workflow.
    job: str
    step: str
    phase: OutputPhase
    decision: OutputDecision
    rule: str
    version: int
    reason: str
    findings: tuple[ScanFinding, ...]
    content_digest: str
    #: In bytes.
    size: int
    ruled_at: int
    #: None: it was redacted, or dropped with a failed attempt.
    status: HeldStatus | None = None
    #: The operator who has released or discarded it, the time, and the reason.
    decided_by: str | None = None
    decided_at: int | None = None
    decided_why: str = ""
    #: The steps that had read the output by then, if it was stored before it was checked.
    readers: tuple[str, ...] = ()


class HeldOutput(Struct, frozen=True, kw_only=True):
    """An output that is or was held back."""

    ruling: StoredOutputRuling
    #: The content as it is stored; None once it was released or discarded.
    body: bytes | None


class HeldDecision(Struct, frozen=True, kw_only=True):
    """The decision of an operator on an output that is held back."""

    actor: str
    reason: str
    at: int


def held_text(ruling: OutputRuling) -> str:
    """The error of a task whose output is held back."""
    by = f"rule {ruling.rule} of policy {ruling.version}" if ruling.version else f"rule {ruling.rule}"
    return f"{OUTPUT_QUARANTINED}: {ruling.reason or 'it is held back'} ({by})"
