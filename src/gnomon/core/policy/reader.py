"""Reads a policy: every key is known, every value is checked, and each error names its field."""

from gnomon.core.approvals.terms import DEFAULT_EXPIRY_MS, DEFAULT_TERMS, ROLES, ApprovalTerms
from gnomon.core.jobs.fields import FieldReader, printable
from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.core.output_policy.reader import read_output_rules
from gnomon.core.policy.budgets import ACTIONS, TASKS, BudgetKey, OverBudget
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.document import (
    Budget,
    FailMode,
    PolicyDocument,
    Remediation,
    TaskRule,
)
from gnomon.core.policy.match_reader import match_of, read_labels, read_texts
from gnomon.core.policy.ruling import ALTERED_RULE, DEFAULT_RULE, PolicyDecision
from gnomon.core.runs.expressions import check_condition, segments
from gnomon.core.runs.workflow import Isolation
from gnomon.errors import FieldError

POLICY_FIELDS = ("default_decision", "input_policy", "rules", "budgets", "output_rules")
INPUT_POLICY_FIELDS = ("fail_mode",)
RULE_FIELDS = ("id", "match", "when", "decision", "reason", "constraints", "approval", "remediations")
CONSTRAINT_FIELDS = ("max_runtime", "max_attempts", "max_output_bytes", "isolation", "network", "max_concurrent")
BUDGET_FIELDS = ("id", "match", "limit", "per", "by", "meter", "over", "reserve", "approval")
APPROVAL_FIELDS = ("roles", "groups", "voters", "quorum", "expires", "self")
REMEDIATION_FIELDS = (
    "title", "summary", "replacement_topic", "replacement_capability", "add_labels", "remove_labels",
)  # fmt: skip
MOST_RULES, MOST_BUDGETS = 5000, 200
_MOST_REMEDIATIONS = 10
_LONGEST_REASON = 500
_LONGEST_RUNTIME_MS = 30 * DAY_MS
_SHORTEST_PER_MS, _LONGEST_PER_MS, _LARGEST_LIMIT = SECOND_MS, 366 * DAY_MS, 10**15
_MOST_ATTEMPTS, _MOST_CONCURRENT = 1000, 100_000
_LARGEST_QUORUM, _LONGEST_EXPIRY_MS = 20, 90 * DAY_MS
#: A smaller object could not hold the size and the beginning of an output that is cut.
_SMALLEST_OUTPUT, _LARGEST_OUTPUT = 256, 64 << 20
#: The values that `when` can name.
_WHEN_ROOTS = ("input", "labels", "run")
_CONSTRAINED = (PolicyDecision.ALLOW_WITH_CONSTRAINTS, PolicyDecision.REQUIRE_APPROVAL)


def read_policy(data: object) -> PolicyDocument:
    """The policy in the data; FieldError for the first mistake."""
    fields = FieldReader({} if data is None else data, POLICY_FIELDS)
    default = fields.choice("default_decision", PolicyDecision, PolicyDecision.DENY)
    if default not in (PolicyDecision.ALLOW, PolicyDecision.DENY):
        raise fields.refused("default_decision", "must be allow or deny")
    rules = tuple(
        _rule(FieldReader(entry, RULE_FIELDS, path=path)) for path, entry in fields.entries("rules", most=MOST_RULES)
    )
    places: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if places.setdefault(rule.rule_id, index) != index:
            reason = f"is already the id of rules[{places[rule.rule_id]}]"
            raise FieldError(f"rules[{index}].id", rule.rule_id, reason)
    return PolicyDocument(
        rules=rules,
        budgets=_budgets(fields),
        default_decision=default,
        fail_mode=_fail_mode(fields),
        output_rules=read_output_rules(fields, "output_rules") if "output_rules" in fields else None,
    )


def _fail_mode(fields: FieldReader) -> FailMode:
    if "input_policy" not in fields:
        return FailMode.CLOSED
    own = FieldReader(fields["input_policy"], INPUT_POLICY_FIELDS, path=fields.at("input_policy"))
    return own.choice("fail_mode", FailMode, FailMode.CLOSED)


def _budgets(fields: FieldReader) -> tuple[Budget, ...]:
    found: dict[str, Budget] = {}
    for path, entry in fields.entries("budgets", most=MOST_BUDGETS):
        one = _budget(FieldReader(entry, BUDGET_FIELDS, path=path))
        if one.budget_id in found:
            raise FieldError(f"{path}.id", one.budget_id, "is already the id of another budget")
        found[one.budget_id] = one
    return tuple(found.values())


def _budget(fields: FieldReader) -> Budget:
    fields.required("limit")
    fields.required("per")
    limit = fields.whole("limit", 1, low=1, high=_LARGEST_LIMIT)
    meter = fields.name("meter") if "meter" in fields else TASKS
    over = fields.choice("over", OverBudget, OverBudget.THROTTLE)
    if "reserve" in fields and meter in (TASKS, ACTIONS):
        raise fields.refused("reserve", f"means nothing for {meter}: how much a task uses is known before it starts")
    return Budget(
        budget_id=fields.name("id"),
        match=match_of(fields),
        limit=limit,
        per_ms=fields.duration("per", 0, low=_SHORTEST_PER_MS, high=_LONGEST_PER_MS),
        by=_budget_keys(fields),
        meter=meter,
        over=over,
        reserve=fields.whole("reserve", 1, low=1, high=limit) if "reserve" in fields else None,
        approval=_approval(fields, PolicyDecision(over.value)),
    )


def _budget_keys(fields: FieldReader) -> tuple[BudgetKey, ...]:
    found: list[BudgetKey] = []
    for path, entry in fields.entries("by"):
        if entry not in tuple(BudgetKey):
            raise FieldError(path, entry, f"must be one of {', '.join(BudgetKey)}")
        if entry in found:
            raise FieldError(path, entry, "is named a second time")
        found.append(BudgetKey(str(entry)))
    return tuple(found)


def _rule(fields: FieldReader) -> TaskRule:
    name = fields.name("id")
    if name == ALTERED_RULE:
        raise fields.refused("id", "is the name of the rule about altered definitions")
    if name == DEFAULT_RULE:
        raise fields.refused("id", "is the name of the default decision")
    fields.required("decision")
    decision = fields.choice("decision", PolicyDecision, PolicyDecision.DENY)
    return TaskRule(
        rule_id=name,
        match=match_of(fields),
        when=_when(fields),
        decision=decision,
        reason=printable(fields.at("reason"), fields["reason"], longest=_LONGEST_REASON) if "reason" in fields else "",
        constraints=_constraints(fields, decision),
        approval=_approval(fields, decision),
        remediations=tuple(
            _remediation(FieldReader(entry, REMEDIATION_FIELDS, path=path))
            for path, entry in fields.entries("remediations", most=_MOST_REMEDIATIONS)
        ),
    )


def _when(fields: FieldReader) -> str | None:
    if "when" not in fields:
        return None
    text = fields.text("when")
    for path in check_condition(fields.at("when"), text):
        if segments(path)[0] not in _WHEN_ROOTS:
            raise FieldError(fields.at("when"), path, f"must begin with {', '.join(_WHEN_ROOTS)}")
    return text


# ---- what follows ----------------------------------------------------------------------------------


def _constraints(fields: FieldReader, decision: PolicyDecision) -> Constraints | None:
    if "constraints" not in fields:
        if decision is PolicyDecision.ALLOW_WITH_CONSTRAINTS:
            raise fields.refused("constraints", "is missing: say allow if there are none")
        return None
    if decision not in _CONSTRAINED:
        raise fields.refused("constraints", f"means nothing for {decision}: say allow_with_constraints")
    own = FieldReader(fields["constraints"], CONSTRAINT_FIELDS, path=fields.at("constraints"))
    found = Constraints(
        max_runtime_ms=own.duration("max_runtime", 0, low=1, high=_LONGEST_RUNTIME_MS) or None,
        max_attempts=_whole(own, "max_attempts", _MOST_ATTEMPTS),
        max_output_bytes=own.whole("max_output_bytes", 0, low=_SMALLEST_OUTPUT, high=_LARGEST_OUTPUT)
        if "max_output_bytes" in own
        else None,
        isolation=_isolation(own),
        network=_no_network(own),
        max_concurrent=_whole(own, "max_concurrent", _MOST_CONCURRENT),
    )
    if found == Constraints():
        raise fields.refused("constraints", "is empty: say allow if there are none")
    return found


def _approval(fields: FieldReader, decision: PolicyDecision) -> ApprovalTerms | None:
    """The terms of an approval; of a rule that asks for one without any, those that count by default."""
    if decision is not PolicyDecision.REQUIRE_APPROVAL:
        if "approval" in fields:
            raise fields.refused("approval", f"means nothing for {decision}: say require_approval")
        return None
    if "approval" not in fields:
        return DEFAULT_TERMS
    own = FieldReader(fields["approval"], APPROVAL_FIELDS, path=fields.at("approval"))
    roles = read_texts(own, "roles") or ()
    for index, role in enumerate(roles):
        if role not in ROLES:
            raise FieldError(f"{own.at('roles')}[{index}]", role, f"must be one of {', '.join(ROLES)}")
    voters = read_texts(own, "voters") or ()
    quorum = own.whole("quorum", 1, low=1, high=_LARGEST_QUORUM)
    if voters and quorum > len(voters):
        raise own.refused("quorum", f"is larger than the number of voters, {len(voters)}: nobody could meet it")
    return ApprovalTerms(
        roles=roles,
        groups=read_texts(own, "groups") or (),
        voters=voters,
        quorum=quorum,
        expires_ms=own.duration("expires", DEFAULT_EXPIRY_MS, low=SECOND_MS, high=_LONGEST_EXPIRY_MS),
        self_approval=own.flag("self", default=False),
    )


def _whole(fields: FieldReader, field: str, high: int) -> int | None:
    return fields.whole(field, 1, low=1, high=high) if field in fields else None


def _isolation(fields: FieldReader) -> Isolation | None:
    if "isolation" not in fields:
        return None
    if fields["isolation"] != Isolation.PROCESS:
        raise fields.refused("isolation", "must be process: a constraint can only tighten what a job says")
    return Isolation.PROCESS


def _no_network(fields: FieldReader) -> bool | None:
    if "network" not in fields:
        return None
    if fields.flag("network", default=True):
        raise fields.refused("network", "must be false: a constraint can only tighten what a job says")
    return False


def _remediation(fields: FieldReader) -> Remediation:
    return Remediation(
        title=fields.text("title"),
        summary=fields.text("summary", ""),
        replacement_topic=fields.text("replacement_topic", ""),
        replacement_capability=fields.text("replacement_capability", ""),
        add_labels=read_labels(fields, "add_labels") if "add_labels" in fields else {},
        remove_labels=read_texts(fields, "remove_labels") or (),
    )
