"""Presents the policy of tasks: its versions, and its decisions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.responses.policy import (
    BudgetDetail,
    JobPolicy,
    PolicyApplied,
    PolicyDetail,
    PolicyDifference,
    PolicyRuleChange,
    PolicyRuling,
    PolicyVersionDetail,
    StepRuling,
    TaskDecisions,
)
from gnomon.services.operations.budgets import BudgetState
from gnomon.services.operations.policy import JobRulings, ReadVersion
from gnomon.services.operations.policy_outlook import RunOutlook

if TYPE_CHECKING:
    from gnomon.core.policy.diff import RuleChange
    from gnomon.core.policy.explanation import StepExplanation


def policy_version_detail(one: PolicyVersion, *, newest: int) -> PolicyVersionDetail:
    """A version of the policy; `newest` is the number of the one in force."""
    return PolicyVersionDetail(**_policy_version(one, newest))


def policy_detail(one: PolicyVersion, *, newest: int) -> PolicyDetail:
    """A version of the policy, with its file."""
    return PolicyDetail(**_policy_version(one, newest), body=one.body)


def policy_applied(made: ReadVersion) -> PolicyApplied:
    """The version that a file became."""
    document = made.document
    return PolicyApplied(
        **_policy_version(made.version, made.version.version),
        rules=len(document.rules),
        default_decision=document.default_decision,
    )


def _policy_version(one: PolicyVersion, newest: int) -> dict[str, Any]:
    return {
        "version": one.version,
        "digest": one.digest,
        "author": one.author,
        "applied_at": instant_of(one.created_at),
        "in_force": one.version == newest,
    }


def policy_difference(version: int, changes: "Sequence[RuleChange]") -> PolicyDifference:
    """The changes that a policy file would make; `version` is the one in force, 0 if there is none."""
    return PolicyDifference(
        version=version or None,
        changes=[
            PolicyRuleChange(
                rule=one.rule,
                change=one.kind,
                before=one.before or None,
                after=one.after or None,
                fields=list(one.fields),
            )
            for one in changes
        ],
    )


def task_decisions(task: TaskRulings) -> TaskDecisions:
    """The decisions of the policy about a task."""
    return TaskDecisions(
        task_id=task.task_id,
        step=task.step,
        item=task.item,
        decisions=[
            PolicyRuling(
                decision=one.decision,
                rule=one.rule,
                version=one.version,
                reason=one.reason,
                code=one.code or None,
                constraints=None if one.constraints is None else one.constraints.as_data(),
                ruled_by=one.ruled_by,
                digest=one.digest.hex(),
                at=instant_of(one.at),
                last_at=instant_of(one.last_at),
                count=one.count,
            )
            for one in task.rulings
        ],
    )


def job_policy(job: str, found: JobRulings | RunOutlook) -> JobPolicy:
    """The decisions that the policy would make about a job, or about those of its steps that it would hold back."""
    return JobPolicy(job=job, version=found.version, steps=[step_ruling(one) for one in found.steps])


def step_ruling(one: "StepExplanation") -> StepRuling:
    """The decision that the policy would make about a step."""
    ruling, rules = one.ruling, list(one.rules)
    if ruling is None:
        return StepRuling(step=one.step, decision=None, rule=None, reason=None, constraints=None, rules=rules)
    return StepRuling(
        step=one.step,
        decision=ruling.decision,
        rule=ruling.rule,
        reason=ruling.reason,
        constraints=None if ruling.constraints is None else ruling.constraints.as_data(),
        rules=rules,
    )


def budget_detail(state: BudgetState) -> BudgetDetail:
    """A budget in its current window."""
    budget, named = state.budget, state.named
    window = named.window
    return BudgetDetail(
        budget=budget.budget_id,
        scope=named.scope or None,
        meter=budget.meter,
        limit=budget.limit,
        per=duration_text(budget.per_ms),
        over=budget.over.value,
        starts_at=instant_of(named.starts_at),
        ends_at=instant_of(named.ends_at),
        spent=window.spent,
        reserved=window.reserved,
        left=budget.limit - window.spent - window.reserved,
    )
