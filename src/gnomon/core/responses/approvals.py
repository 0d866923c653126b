"""Responses about approvals of tasks."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class ApprovalVote(Response, frozen=True, kw_only=True):
    """The vote of one person on an approval."""

    voter: str
    #: `approve`, `reject` or `override`.
    vote: str
    at: datetime
    reason: str


class ApprovalNeeds(Response, frozen=True, kw_only=True):
    """The votes that an approval needs: a voter meets every condition that is not empty, with one of its entries."""

    roles: list[str]
    groups: list[str]
    voters: list[str]
    quorum: int
    #: Whether those who asked for the task may vote, too.
    self_approval: bool
    #: The same in words.
    text: str


class ApprovalSummary(Response, frozen=True, kw_only=True):
    """An approval in a list."""

    approval_id: str
    #: `task`: one task, or all items of a step; `command`: the commands of a definition.
    kind: str
    #: `waiting`, `approved`, `rejected`, `expired`, `void` or `revoked`.
    status: str
    job: str
    #: The digest that voters quote: of everything that is approved.
    digest: str
    #: Why it is needed, or was granted.
    reason: str
    #: Of a task: its execution, id and step; and its number, if it is an item.
    execution_id: str | None
    task_id: str | None
    step: str | None
    item: int | None
    #: The number of items, if it is about all items of a step.
    items: int | None
    #: The rule that asks, and the version of the policy.
    rule: str | None
    version: int | None
    needs: ApprovalNeeds
    votes: list[ApprovalVote]
    asked_at: datetime | None
    expires_at: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    #: Whether it was approved by an override.
    overridden: bool
    #: Why it is void.
    note: str | None


class ApprovalDetail(ApprovalSummary, frozen=True, kw_only=True):
    """An approval with everything that voters should look at."""

    constraints: dict[str, Any] | None
    #: The input of the task, without secrets, or a list of those of the first items; None if there is none any more.
    input: Any
    #: The commands of a definition by their steps; None if they have changed since, or if it is about a task.
    commands: dict[str, str] | None = None
