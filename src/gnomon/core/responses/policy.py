"""Responses about the policy of tasks: its versions, and its decisions."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class PolicyVersionDetail(Response, frozen=True, kw_only=True):
    """A version of the policy of tasks."""

    version: int
    #: The SHA-256 of the file.
    digest: str
    author: str
    applied_at: datetime
    #: Whether it is the newest version: that is in force.
    in_force: bool


class PolicyDetail(PolicyVersionDetail, frozen=True, kw_only=True):
    """A version of the policy of tasks, with its file."""

    body: str


class PolicyApplied(PolicyVersionDetail, frozen=True, kw_only=True):
    """The version that a file became, or was already."""

    rules: int
    default_decision: str


class PolicyRuleChange(Response, frozen=True, kw_only=True):
    """The change of one rule, or of the default decision."""

    rule: str
    #: `added`, `removed`, `changed`, or `moved`: the same rule at another place among the others.
    change: str
    #: Its decision before and after; None where there is none.
    before: str | None
    after: str | None
    #: The fields of a changed rule that differ.
    fields: list[str]


class PolicyDifference(Response, frozen=True, kw_only=True):
    """The changes that a policy file would make."""

    #: The version in force; None if there is no policy.
    version: int | None
    changes: list[PolicyRuleChange]


class PolicyRuling(Response, frozen=True, kw_only=True):
    """A decision of the policy about a task. Equal ones that follow each other are one, with a count."""

    decision: str
    rule: str
    #: The version of the policy.
    version: int
    reason: str
    #: The reason code of a denial; None for any other decision.
    code: str | None
    constraints: dict[str, Any] | None
    #: `policy`, `commands` for the policy of commands, or another name.
    ruled_by: str
    #: The SHA-256 of exactly what was asked.
    digest: str
    at: datetime
    last_at: datetime
    count: int


class TaskDecisions(Response, frozen=True, kw_only=True):
    """The decisions of the policy about one task, in the order in which they were made."""

    task_id: str
    step: str
    #: The number of the item of a `foreach` step; None for any other task.
    item: int | None
    decisions: list[PolicyRuling]


class StepRuling(Response, frozen=True, kw_only=True):
    """The decision that the policy would make about a step of a job."""

    step: str
    #: None if it depends on data that only a run has: one of `rules` will decide.
    decision: str | None
    rule: str | None
    reason: str | None
    constraints: dict[str, Any] | None
    #: The rules that can match the step, in their order.
    rules: list[str]


class JobPolicy(Response, frozen=True, kw_only=True):
    """The decisions that the policy would make about a job, if it started now."""

    job: str
    #: The version of the policy; 0 for a file that is not in force, None if there is no policy.
    version: int | None
    steps: list[StepRuling]


class BudgetDetail(Response, frozen=True, kw_only=True):
    """A budget of the policy in its current window: for all of its tasks, or for those of one scope."""

    budget: str
    #: The values by which the budget is divided; None if it is not, or if no task has used it in this window.
    scope: str | None
    meter: str
    limit: int
    per: str
    #: The decision about a task for which not enough is left.
    over: str
    starts_at: datetime
    ends_at: datetime
    spent: int
    #: The part that attempts may still spend, or give back.
    reserved: int
    #: Negative if people let tasks exceed the budget, or if a new policy has lowered the limit.
    left: int
