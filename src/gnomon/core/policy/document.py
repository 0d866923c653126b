"""The policy file as data: its rules in their order, and the decision where none of them matches."""

from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec import Struct

from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.output_policy.ruling import OutputDecision, ScanSeverity
from gnomon.core.policy.budgets import TASKS, BudgetKey, OverBudget
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import PolicyDecision

_CANONICAL = msgspec.json.Encoder(order="deterministic")


class StepKind(StrEnum):
    """The kinds of steps that rules can name."""

    FUNCTION = "function"
    COMMAND = "command"
    HTTP = "http"
    AGENT = "agent"


class FailMode(StrEnum):
    """Whether tasks wait or run while the service that rules on them cannot be asked."""

    CLOSED = "closed"
    OPEN = "open"


class RuleWindow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The times in which a rule counts: from each fire of the expression on, for so long."""

    cron: str
    lasts_ms: int
    timezone: str = "UTC"


class RuleMatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conditions of a rule. All that are set must hold; None matches everything.

    Texts may be patterns with `*`, `?` and `[…]`. A list matches if any of its entries does; a task must have all of
    `requires` and `labels`.
    """

    tenants: tuple[str, ...] | None = None
    jobs: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    functions: tuple[str, ...] | None = None
    kinds: tuple[StepKind, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    risk_tags: tuple[str, ...] | None = None
    requires: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    #: The callers who requested the run.
    actors: tuple[str, ...] | None = None
    #: The groups to which they belonged then: one of them has to match.
    groups: tuple[str, ...] | None = None
    #: How the run was started: `cron`, `manual`, `api`, `event` or `backfill`.
    sources: tuple[str, ...] | None = None
    #: The names of secrets that the input refers to.
    secrets: tuple[str, ...] | None = None
    window: RuleWindow | None = None


class Remediation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal of what to do instead of the denied task."""

    title: str
    summary: str = ""
    replacement_topic: str = ""
    replacement_capability: str = ""
    add_labels: dict[str, str] = {}
    remove_labels: tuple[str, ...] = ()


class TaskRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule. The first rule that matches a task rules on it."""

    rule_id: str
    decision: PolicyDecision
    match: RuleMatch = RuleMatch()
    #: A condition over `input`, `labels` and `run` in the language of `if`.
    when: str | None = None
    reason: str = ""
    constraints: Constraints | None = None
    #: For `require_approval`: who may vote, and how many have to.
    approval: ApprovalTerms | None = None
    remediations: tuple[Remediation, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of its content."""
        return sha256(_CANONICAL.encode(self)).hexdigest()

    @property
    def full_reason(self) -> str:
        """Its reason, and what to do instead."""
        instead = ", or ".join(one.title for one in self.remediations)
        return "; instead: ".join(part for part in (self.reason, instead) if part)


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a meter the tasks that it matches may spend within each window."""

    budget_id: str
    limit: int
    per_ms: int
    match: RuleMatch = RuleMatch()
    #: The facts by which it is divided; none: all its tasks together have one limit.
    by: tuple[BudgetKey, ...] = ()
    meter: str = TASKS
    over: OverBudget = OverBudget.THROTTLE
    #: How much an attempt may spend of a meter that functions report; None: the whole limit.
    reserve: int | None = None
    #: For `over: require_approval`: who may vote, and how many have to.
    approval: ApprovalTerms | None = None

    @property
    def digest(self) -> str:
        """The digest of its content."""
        return sha256(_CANONICAL.encode(self)).hexdigest()


class OutputMatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conditions of a rule about outputs. All that are set must hold."""

    #: The conditions about the step.
    step: RuleMatch = RuleMatch()
    #: Whether the attempt ended with an error.
    has_error: bool | None = None
    #: The output has more bytes than these.
    larger_than: int | None = None
    #: The names of scanners. The output matches if one of the scanners, patterns or keywords does.
    scanners: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()

    @property
    def reads_content(self) -> bool:
        """Whether the rule needs the content of the output."""
        return bool(self.scanners or self.patterns or self.keywords)


class OutputRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule about outputs. The first rule that matches an output rules on it."""

    rule_id: str
    decision: OutputDecision
    match: OutputMatch = OutputMatch()
    severity: ScanSeverity = ScanSeverity.HIGH
    reason: str = ""


class PolicyDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a policy file."""

    rules: tuple[TaskRule, ...] = ()
    budgets: tuple[Budget, ...] = ()
    #: For tasks that no rule matches: `allow` or `deny`.
    default_decision: PolicyDecision = PolicyDecision.DENY
    #: For tasks about which a policy kernel cannot be asked.
    fail_mode: FailMode = FailMode.CLOSED
    #: About the outputs of tasks. None: the file does not mention them, and secrets are held back.
    output_rules: tuple[OutputRule, ...] | None = None
