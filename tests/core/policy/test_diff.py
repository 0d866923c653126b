"""The changes that a new policy file would make."""

from msgspec.structs import replace

from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.policy.diff import RuleChange, RuleChangeKind, rule_changes
from gnomon.core.policy.document import Budget, OutputRule, PolicyDocument, TaskRule
from gnomon.core.policy.ruling import PolicyDecision

ALLOW, DENY = PolicyDecision.ALLOW, PolicyDecision.DENY


def policy(*rules: str, default: PolicyDecision = DENY, reason: str = "") -> PolicyDocument:
    made = tuple(TaskRule(rule_id=name, decision=ALLOW, reason=reason) for name in rules)
    return PolicyDocument(rules=made, default_decision=default)


def test_the_first_policy_adds_everything() -> None:
    assert rule_changes(None, policy("a")) == [
        RuleChange(rule="a", kind=RuleChangeKind.ADDED, after="allow"),
        RuleChange(rule="default", kind=RuleChangeKind.ADDED, after="deny"),
    ]


def test_the_same_policy_changes_nothing() -> None:
    assert rule_changes(policy("a", "b"), policy("a", "b")) == []


def test_changed_rules_are_named_with_their_fields_and_removed_ones_come_last() -> None:
    found = rule_changes(policy("a", "b"), policy("b", "c", default=ALLOW, reason="new"))

    assert [(one.rule, one.kind, one.fields) for one in found] == [
        ("b", "changed", ("reason",)),
        ("c", "added", ()),
        ("a", "removed", ()),
        ("default", "changed", ("decision",)),
    ]


def test_budgets_are_compared_too() -> None:
    hourly = Budget(budget_id="pay", limit=20, per_ms=3_600_000)
    before = PolicyDocument(budgets=(hourly, Budget(budget_id="old", limit=1, per_ms=1000)))
    after = PolicyDocument(budgets=(replace(hourly, limit=30), Budget(budget_id="new", limit=1, per_ms=1000)))

    assert [(one.rule, one.kind, one.before, one.after, one.fields) for one in rule_changes(before, after)] == [
        ("budget pay", "changed", "20 tasks per 1h", "30 tasks per 1h", ("limit",)),
        ("budget new", "added", "", "1 tasks per 1s", ()),
        ("budget old", "removed", "1 tasks per 1s", "", ()),
    ]


def test_only_the_rule_whose_place_changed_has_moved() -> None:
    assert [(one.rule, one.kind) for one in rule_changes(policy("a", "b", "c"), policy("c", "a", "b"))] == [
        ("c", "moved")
    ]
    assert [one.rule for one in rule_changes(policy("a", "b", "c", "d"), policy("b", "a", "d", "c"))] in (
        ["b", "d"],
        ["a", "c"],
        ["a", "d"],
        ["b", "c"],
    )


def test_rules_about_outputs_are_compared_with_their_order() -> None:
    keys = OutputRule(rule_id="keys", decision=OutputDecision.QUARANTINE)
    mail = OutputRule(rule_id="mail", decision=OutputDecision.REDACT)
    before = PolicyDocument(output_rules=(keys, mail))
    after = PolicyDocument(
        output_rules=(mail, replace(keys, reason="no keys"), OutputRule(rule_id="x", decision=OutputDecision.ALLOW))
    )

    found = {one.rule: one for one in rule_changes(before, after)}

    changed = found["output rule keys"]
    assert (changed.kind, changed.before, changed.fields) == (RuleChangeKind.CHANGED, "quarantine", ("reason",))
    assert found["output rule x"].kind is RuleChangeKind.ADDED
    assert {one.kind for one in rule_changes(after, PolicyDocument())} == {RuleChangeKind.REMOVED}
    swapped = PolicyDocument(output_rules=(mail, keys))
    assert [one.kind for one in rule_changes(before, swapped)] == [RuleChangeKind.MOVED]
