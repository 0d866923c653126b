"""Tasks of the history, and what was decided about them."""

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import (
    BY_APPROVAL,
    BY_BUDGETS,
    BY_COMMANDS,
    BY_OVERRIDE,
    PolicyDecision,
    StoredRuling,
    rule_of,
)
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.states import TaskState


class PastTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task of the history, with what was decided about it. Its inputs are read only where rules look at them."""

    ready: ReadyTask
    #: Whether an input of its own is stored.
    has_input: bool
    #: Whether it is stored who requested its run.
    has_actor: bool
    #: Whether it is stored to which groups they belonged.
    has_groups: bool
    #: When it was dispatched last; None if it never was.
    dispatched_at: int | None
    #: The permission that it keeps itself: version and rule.
    permission: str | None
    #: The last ruling that is a row.
    ruling: StoredRuling | None


class PastDecision(Struct, frozen=True, kw_only=True):
    """The decision about a task, and the rule that made it."""

    decision: PolicyDecision
    #: Empty if there was no policy.
    rule: str = ""
    constraints: Constraints | None = None
    by_commands: bool = False

    def same_effect(self, other: "PastDecision") -> bool:
        """Whether the task is treated alike, whatever rule says so."""
        return self.decision is other.decision and self.constraints == other.constraints


def recorded_decision(task: PastTask) -> PastDecision | None:
    """The last decision of the rules that is stored about the task; None if nobody was ever asked about it.

    A budget only puts off or ends a task that the rules let run: the state of budgets at that time is not known.
    """
    row, limits = task.ruling, _without_spending(task.ready.task.constraints)
    if row is not None and row.ruled_by == BY_BUDGETS:
        row = replace(row, decision=PolicyDecision.ALLOW) if task.permission is None else None
    if task.permission is not None and not (row is not None and _outlasts(row, task.permission, task.dispatched_at)):
        decision = PolicyDecision.ALLOW
        if limits is not None:
            decision = PolicyDecision.ALLOW_WITH_CONSTRAINTS
        return PastDecision(decision=decision, rule=rule_of(task.permission), constraints=limits)
    if row is not None:
        limits = _without_spending(row.constraints)
        only_spends = row.decision is PolicyDecision.ALLOW_WITH_CONSTRAINTS and limits is None
        decision = PolicyDecision.ALLOW if only_spends else row.decision
        return PastDecision(
            decision=decision_of_policy(decision, row.ruled_by),
            rule=row.rule,
            constraints=limits,
            by_commands=row.ruled_by == BY_COMMANDS,
        )
    if task.dispatched_at is not None:
        return PastDecision(decision=PolicyDecision.ALLOW)
    if task.ready.task.state is TaskState.DENIED:
        return PastDecision(decision=PolicyDecision.DENY, by_commands=True)
    return None


def _without_spending(limits: Constraints | None) -> Constraints | None:
    """The limits that a rule has set; None if a budget has set them all."""
    if limits is None or not limits.spend:
        return limits
    rest = replace(limits, spend=())
    return None if rest == Constraints() else rest


def _outlasts(row: StoredRuling, permission: str, dispatched_at: int | None) -> bool:
    """Whether the row decided about the task, and not the permission that it has: it came later, or led to it."""
    if decision_of_policy(row.decision, row.ruled_by) is PolicyDecision.REQUIRE_APPROVAL:
        return rule_of(permission) == row.rule
    allows = row.decision in (PolicyDecision.ALLOW, PolicyDecision.ALLOW_WITH_CONSTRAINTS)
    return not allows and dispatched_at is not None and row.last_at > dispatched_at


def decision_of_policy(decision: PolicyDecision, ruled_by: str) -> PolicyDecision:
    """The decision of the policy itself: a permission by votes followed from its question."""
    return PolicyDecision.REQUIRE_APPROVAL if ruled_by in (BY_APPROVAL, BY_OVERRIDE) else decision


def asked_within(task: PastTask) -> tuple[int, int]:
    """The times between which the task was asked about last."""
    one, dispatched_at = task.ready.task, task.dispatched_at
    if dispatched_at is None:
        at = one.available_at if task.ruling is None else task.ruling.last_at
        return at, at
    # While it runs, this is the time of its admission; its end overwrites that.
    admitted = one.created_at <= one.available_at <= dispatched_at
    return min(one.available_at if admitted else one.created_at, dispatched_at), dispatched_at
