"""The difference between two policies, rule by rule."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.durations import duration_text
from gnomon.core.policy.document import Budget, OutputRule, PolicyDocument, TaskRule
from gnomon.core.policy.ruling import DEFAULT_RULE


class RuleChangeKind(StrEnum):
    """The kinds of changes of a rule."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    #: Its content is the same, but its place among the others is not.
    MOVED = "moved"


class RuleChange(Struct, frozen=True, kw_only=True):
    """The change of one rule, or of the default decision."""

    rule: str
    kind: RuleChangeKind
    #: Its decision before and after; empty where there is none.
    before: str = ""
    after: str = ""
    #: The fields of a changed rule that differ.
    fields: tuple[str, ...] = ()


def rule_changes(before: PolicyDocument | None, after: PolicyDocument) -> list[RuleChange]:
    """The changes from one policy to another in the order of the new rules; removed rules, and budgets, come last."""
    old = {} if before is None else {rule.rule_id: rule for rule in before.rules}
    new = {rule.rule_id: rule for rule in after.rules}
    in_place = _in_place([name for name in old if name in new], [name for name in new if name in old])
    changes: list[RuleChange] = []
    for name, rule in new.items():
        known = old.get(name)
        if known is None:
            changes.append(RuleChange(rule=name, kind=RuleChangeKind.ADDED, after=rule.decision))
        elif fields := _changed_fields(known, rule):
            kind = RuleChangeKind.CHANGED
            changes.append(RuleChange(rule=name, kind=kind, before=known.decision, after=rule.decision, fields=fields))
        elif name not in in_place:
            kind = RuleChangeKind.MOVED
            changes.append(RuleChange(rule=name, kind=kind, before=known.decision, after=rule.decision))
    changes += [
        RuleChange(rule=name, kind=RuleChangeKind.REMOVED, before=rule.decision)
        for name, rule in old.items()
        if name not in new
    ]
    return [
        *changes,
        *_budget_changes(before, after),
        *_output_rule_changes(before, after),
        *_default_change(before, after),
    ]


def _budget_changes(before: PolicyDocument | None, after: PolicyDocument) -> Iterator[RuleChange]:
    old = {} if before is None else {one.budget_id: one for one in before.budgets}
    new = {one.budget_id: one for one in after.budgets}
    for name in [*new, *(name for name in old if name not in new)]:
        was, will = old.get(name), new.get(name)
        if was == will:
            continue
        both = was is not None and will is not None
        yield RuleChange(
            rule=f"budget {name}",
            kind=RuleChangeKind.CHANGED if both else RuleChangeKind.REMOVED if will is None else RuleChangeKind.ADDED,
            before=_budget_text(was),
            after=_budget_text(will),
            fields=tuple(field for field in Budget.__struct_fields__ if getattr(was, field) != getattr(will, field))
            if both
            else (),
        )


def _output_rule_changes(before: PolicyDocument | None, after: PolicyDocument) -> Iterator[RuleChange]:
    """The changes of the rules about outputs; the first one that matches rules, so that their order counts."""
    old = {one.rule_id: one for one in (before.output_rules if before is not None else None) or ()}
    new = {one.rule_id: one for one in after.output_rules or ()}
    in_place = _in_place([name for name in old if name in new], [name for name in new if name in old])
    for name in [*new, *(name for name in old if name not in new)]:
        was, will = old.get(name), new.get(name)
        if was == will and name in in_place:
            continue
        kind, fields = RuleChangeKind.CHANGED, tuple[str, ...]()
        if was is None or will is None:
            kind = RuleChangeKind.ADDED if was is None else RuleChangeKind.REMOVED
        elif was == will:
            kind = RuleChangeKind.MOVED
        else:
            fields = tuple(
                field for field in OutputRule.__struct_fields__ if getattr(was, field) != getattr(will, field)
            )
        yield RuleChange(
            rule=f"output rule {name}",
            kind=kind,
            before="" if was is None else was.decision,
            after="" if will is None else will.decision,
            fields=fields,
        )


def _budget_text(budget: Budget | None) -> str:
    return "" if budget is None else f"{budget.limit} {budget.meter} per {duration_text(budget.per_ms)}"


def _default_change(before: PolicyDocument | None, after: PolicyDocument) -> list[RuleChange]:
    if before is None:
        return [RuleChange(rule=DEFAULT_RULE, kind=RuleChangeKind.ADDED, after=after.default_decision)]
    if before.default_decision is after.default_decision:
        return []
    kind, was = RuleChangeKind.CHANGED, before.default_decision
    return [RuleChange(rule=DEFAULT_RULE, kind=kind, before=was, after=after.default_decision, fields=("decision",))]


def _changed_fields(before: TaskRule, after: TaskRule) -> tuple[str, ...]:
    return tuple(name for name in TaskRule.__struct_fields__ if getattr(before, name) != getattr(after, name))


def _in_place(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """The most names that are in the same order in both: all others have moved."""
    places = {name: place for place, name in enumerate(old)}
    ends: list[int] = []
    names: list[str] = []
    before: dict[str, str | None] = {}
    for name in new:
        at = bisect_left(ends, places[name])
        before[name] = names[at - 1] if at else None
        ends[at:] = [places[name], *ends[at + 1 :]]
        names[at:] = [name, *names[at + 1 :]]
    found: set[str] = set()
    last = names[-1] if names else None
    while last is not None:
        found.add(last)
        last = before[last]
    return found
