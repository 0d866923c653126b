"""Rulings: the decision of the policy about one task, with everything that explains it later."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.approvals.model import Approval
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.policy.budgets import BudgetShortage, BudgetUse, OverBudget, allowances
from gnomon.core.policy.constraints import Constraints

#: The id in the rulings that follow from `default_decision`; no rule may have it.
DEFAULT_RULE = "default"
#: The author of a ruling: the rules of the policy, the policy of commands, the voters for a task, a person with the
#: right to override them, or a budget of the policy.
BY_POLICY, BY_COMMANDS, BY_APPROVAL, BY_OVERRIDE = "policy", "commands", "approval", "override"
BY_BUDGETS = "budgets"
#: The author of the rulings of a policy kernel, before the short name of its policy.
_BY_KERNEL = "kernel:"
#: The author, and the rule, of permissions of tasks about which the kernel cannot be asked.
FAIL_OPEN = "fail_open"
#: The reason codes of denials.
SAFETY_DENIED, SAFETY_UNKNOWN = "safety_denied", "safety_unknown"


#: The rule in the denials of definitions that were changed in the store; no rule may have it.
ALTERED_RULE = "altered_definition"


class PolicyDecision(StrEnum):
    """The decisions that a rule can make. Any other word of a ruling is a denial."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"
    #: Not now: the task is asked about again later.
    THROTTLE = "throttle"
    ALLOW_WITH_CONSTRAINTS = "allow_with_constraints"


#: The decisions that let a task run.
PERMISSIONS = (PolicyDecision.ALLOW, PolicyDecision.ALLOW_WITH_CONSTRAINTS)
#: From the strictest to the least strict.
_STRICTNESS = (
    PolicyDecision.DENY,
    PolicyDecision.REQUIRE_APPROVAL,
    PolicyDecision.THROTTLE,
    PolicyDecision.ALLOW_WITH_CONSTRAINTS,
    PolicyDecision.ALLOW,
)


class Ruling(Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one task."""

    decision: PolicyDecision
    #: The id of the rule.
    rule: str
    #: The number of the policy version.
    version: int
    #: The digest of exactly what was asked.
    digest: bytes
    reason: str = ""
    #: The reason code of a denial.
    code: str = SAFETY_DENIED
    constraints: Constraints | None = None
    #: The author of the ruling: `policy`, `commands`, or another name.
    ruled_by: str = BY_POLICY
    #: The digest of the content of the rule: a vote for a task counts only while the rule is the same.
    rule_digest: str = ""
    #: For a throttled task: how long to wait before it is asked about again.
    retry_after_ms: int = 0
    #: The budgets that the task uses, if it may run.
    budgets: tuple[BudgetUse, ...] = ()
    #: Whether people let the task exceed one of its budgets.
    beyond_budget: bool = False

    @property
    def limits(self) -> Constraints | None:
        """Its constraints, and how much of its budgets the task may spend."""
        if not self.budgets:
            return self.constraints
        return replace(self.constraints or Constraints(), spend=allowances(self.budgets))

    #: For a task that needs an approval: its terms; None: the terms that count if a rule states none.
    approval: ApprovalTerms | None = None

    @property
    def plain(self) -> bool:
        """Whether the task may run without any condition, and the policy itself says so."""
        by_itself = self.ruled_by == BY_POLICY or kernel_policy(self.ruled_by) is not None
        return self.decision is PolicyDecision.ALLOW and by_itself and not self.beyond_budget

    @property
    def may_run(self) -> bool:
        """Whether the task may run now, or once people have approved it."""
        return self.allows or self.decision is PolicyDecision.REQUIRE_APPROVAL

    @property
    def allows(self) -> bool:
        """Whether the task may run now."""
        return self.decision in PERMISSIONS

    @property
    def rule_text(self) -> str:
        """The version and the rule, as a task keeps them; between them the author, if that is not the policy here."""
        return "/".join((str(self.version), *(() if self.ruled_by == BY_POLICY else (self.ruled_by,)), self.rule))


def by_kernel(policy: str) -> str:
    """The author of the rulings of a kernel that has the policy of this short name."""
    return f"{_BY_KERNEL}{policy}"


def kernel_policy(ruled_by: str) -> str | None:
    """The short name of the policy of the kernel that is the author of a ruling; None if no kernel is."""
    return ruled_by.removeprefix(_BY_KERNEL) if ruled_by.startswith(_BY_KERNEL) else None


def rule_of(rule_text: str) -> str:
    """The id of the rule in a text as `Ruling.rule_text` makes it."""
    return _rule_parts(rule_text)[2]


def _rule_parts(rule_text: str) -> tuple[int, str, str]:
    """Version, author and rule. No rule of the policy here has a slash in its id."""
    version, _, rest = rule_text.partition("/")
    author, slash, rule = rest.partition("/")
    return (int(version), author, rule) if slash else (int(version), BY_POLICY, rest)


class StoredRuling(Struct, frozen=True, kw_only=True):
    """A ruling as a row. Equal rulings of a task that follow each other are one row."""

    task_id: str
    #: Counts from 1 within the task.
    number: int
    run_id: str
    decision: PolicyDecision
    rule: str
    version: int
    digest: bytes
    reason: str
    code: str
    constraints: Constraints | None
    ruled_by: str
    rule_digest: str
    #: When it was made, first and last, and how often.
    at: int
    last_at: int
    count: int = 1


class TaskRulings(Struct, frozen=True, kw_only=True):
    """The rulings about one task, in the order in which they were made, and its approvals."""

    task_id: str
    step: str
    #: Its number, if it is an item of a fan-out.
    item: int | None
    rulings: tuple[StoredRuling, ...]
    #: The approvals for which it has asked, in the order in which it has.
    approvals: tuple[Approval, ...] = ()


def stored_ruling(ruling: Ruling, task_id: str, run_id: str, last: StoredRuling | None, *, now: int) -> StoredRuling:
    """The row that keeps the ruling, given the last row of the task."""
    if last is not None and _is_repeated(last, ruling):
        return replace(last, last_at=max(now, last.last_at), count=last.count + 1)
    return StoredRuling(
        task_id=task_id,
        number=1 if last is None else last.number + 1,
        run_id=run_id,
        decision=ruling.decision,
        rule=ruling.rule,
        version=ruling.version,
        digest=ruling.digest,
        reason=ruling.reason,
        code="" if ruling.decision is not PolicyDecision.DENY else ruling.code,
        constraints=ruling.constraints,
        ruled_by=ruling.ruled_by,
        rule_digest=ruling.rule_digest,
        at=now,
        last_at=now,
    )


def plain_permission(
    task_id: str, run_id: str, rule_text: str, digest: bytes, rows: Sequence[StoredRuling], *, at: int
) -> StoredRuling | None:
    """The permission that only columns of the task keep; None if a row is that permission."""
    version, author, rule = _rule_parts(rule_text)
    if any(one.decision in PERMISSIONS and (one.version, one.rule) == (version, rule) for one in rows):
        return None
    last = rows[-1] if rows else None
    return StoredRuling(
        task_id=task_id,
        number=1 if last is None else last.number + 1,
        run_id=run_id,
        decision=PolicyDecision.ALLOW,
        rule=rule,
        version=version,
        digest=digest,
        reason="",
        code="",
        constraints=None,
        ruled_by=author,
        rule_digest="",
        at=at,
        last_at=at,
    )


def with_permission(rows: Sequence[StoredRuling], permission: StoredRuling | None) -> tuple[StoredRuling, ...]:
    """The rulings about a task in the order in which they were made: a retry may be refused after a permission."""
    return tuple(rows) if permission is None else tuple(sorted((*rows, permission), key=_made_at))


def _made_at(one: StoredRuling) -> int:
    return one.last_at


def _is_repeated(last: StoredRuling, ruling: Ruling) -> bool:
    made = (ruling.decision, ruling.rule, ruling.version, ruling.digest, ruling.ruled_by, ruling.reason)
    return made == (last.decision, last.rule, last.version, last.digest, last.ruled_by, last.reason)


def refused_by_commands(ruling: Ruling, rule: str, reason: str) -> Ruling:
    """The ruling about a task that the policy would let run, and whose command the policy of commands refuses."""
    return replace(
        ruling,
        decision=PolicyDecision.DENY,
        rule=rule,
        reason=reason,
        code=SAFETY_DENIED,
        constraints=None,
        ruled_by=BY_COMMANDS,
        rule_digest="",
        retry_after_ms=0,
        budgets=(),
        approval=None,
    )


def altered_definition_ruling(workflow_id: str, number: int, *, version: int) -> Ruling:
    """The denial of a task of a definition that was changed in the store; it lacks the digest."""
    return Ruling(
        decision=PolicyDecision.DENY,
        rule=ALTERED_RULE,
        version=version,
        digest=b"",
        reason=f"version {number} of {workflow_id} is not the one that was registered: register it again",
        code=SAFETY_UNKNOWN,
    )


def put_off_by_concurrency(ruling: Ruling, limit: int) -> Ruling:
    """The ruling about a task that its rule would let run, if not so many others of that rule were in flight."""
    tasks = "1 task" if limit == 1 else f"{limit} tasks"
    return replace(
        ruling,
        decision=PolicyDecision.THROTTLE,
        reason=f"{tasks} of this rule may be in flight at once (max_concurrent)",
        constraints=None,
        budgets=(),
    )


def over_budget(ruling: Ruling, shortage: BudgetShortage, *, now: int) -> Ruling:
    """The ruling about a task that its rule would let run, if a budget had enough left."""
    use = shortage.use
    asks = use.over is OverBudget.REQUIRE_APPROVAL
    return replace(
        ruling,
        decision=PolicyDecision(use.over.value),
        rule=use.budget,
        reason=shortage.reason,
        code=SAFETY_DENIED,
        # Voters see with which constraints the task would run.
        constraints=ruling.constraints if asks else None,
        ruled_by=BY_BUDGETS,
        rule_digest=use.digest,
        retry_after_ms=max(0, shortage.ask_again_at - now),
        budgets=(),
        approval=use.approval,
    )


def stricter(one: PolicyDecision, other: PolicyDecision) -> bool:
    """Whether the first decision is stricter than the second."""
    return _STRICTNESS.index(one) < _STRICTNESS.index(other)


def ruling_text(ruling: Ruling) -> str:
    """The ruling as a clause, for the note of its task."""
    because = f" ({ruling.reason})" if ruling.reason else ""
    by = _ruler(ruling)
    match ruling.decision:
        case PolicyDecision.DENY:
            return f"denied by {by}{because}"
        case PolicyDecision.REQUIRE_APPROVAL:
            return f"{by} asks for it{because}"
        case PolicyDecision.THROTTLE:
            return f"{by} puts it off{because}"
        case PolicyDecision.ALLOW_WITH_CONSTRAINTS:
            return f"allowed with constraints by {by}{because}"
        case PolicyDecision.ALLOW:
            return f"allowed by {by}{because}"


def _ruler(ruling: Ruling) -> str:
    if ruling.ruled_by == BY_COMMANDS:
        return f"the policy of commands, rule {ruling.rule},"
    if ruling.ruled_by == FAIL_OPEN:
        return "the fail mode of the policy"
    policy = policy_text(ruling.version, ruling.ruled_by)
    if ruling.ruled_by == BY_BUDGETS:
        return f"budget {ruling.rule} of {policy}"
    return f"the default decision of {policy}" if ruling.rule == DEFAULT_RULE else f"rule {ruling.rule} of {policy}"


def policy_text(version: int, ruled_by: str) -> str:
    """The policy that has ruled, in words."""
    kernel = kernel_policy(ruled_by)
    if kernel is None:
        return f"policy {version}"
    return f"policy {kernel} of the kernel" if kernel else "the policy kernel"
