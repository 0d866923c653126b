"""Approvals as records: what was asked, who voted, and what came of it.

An approval of a task is bound to the digest of everything that the task is about to do, and to the content of the rule
that asks. An approval of commands is bound to the digest of their definition, and counts until it is revoked.
"""

from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from gnomon.core.approvals.terms import COMMAND_TERMS, ApprovalTerms
from gnomon.core.model import RunId, TaskId
from gnomon.core.policy.constraints import Constraints

#: The reason codes of the dead letters of tasks that were rejected, and of those that nobody approved in time.
APPROVAL_REJECTED, APPROVAL_EXPIRED = "approval_rejected", "approval_expired"


class ApprovalKind(StrEnum):
    """The kinds of things that are approved."""

    #: The commands of a job.
    COMMAND = "command"
    #: One task, or all items of one step.
    TASK = "task"


class ApprovalStatus(StrEnum):
    """The status of an approval."""

    #: It has not enough votes yet.
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    #: Nobody decided in time.
    EXPIRED = "expired"
    #: The question does not arise any more: its rule has changed, or its task has ended.
    VOID = "void"
    #: An admin has withdrawn that of the commands of a definition.
    REVOKED = "revoked"


class VoteKind(StrEnum):
    """The kinds of votes."""

    APPROVE = "approve"
    REJECT = "reject"
    #: A member of a group in `policy.break_glass` lets the task run at once.
    OVERRIDE = "override"


class Vote(Struct, frozen=True, kw_only=True):
    """The vote of one person."""

    voter: str
    kind: VoteKind
    at: int
    reason: str = ""


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """The question that a task has raised: everything that its approval is bound to."""

    task_id: TaskId
    run_id: RunId
    step: str
    #: Its number, if the task is an item of a fan-out.
    item: int | None = None
    #: The rule that asks, and the version of the policy that asked last.
    rule: str
    version: int
    rule_digest: str
    request_digest: bytes
    constraints: Constraints | None = None
    terms: ApprovalTerms
    asked_at: int
    expires_at: int
    #: How many items it covers; 0 if it is about one task.
    items: int = 0
    #: For all items of a step: the digest of the request of each, one after another. Only `Approvals.of_task` reads it.
    item_digests: bytes = b""

    def covers_item(self, number: int, digest: bytes) -> bool:
        """Whether the item of that number is about to do what was asked."""
        start = number * ITEM_DIGEST_BYTES
        kept = self.item_digests[start : start + ITEM_DIGEST_BYTES]
        return len(kept) == ITEM_DIGEST_BYTES and kept == digest


#: The number of bytes of the digest of an item.
ITEM_DIGEST_BYTES = 32


class Approval(Struct, frozen=True, kw_only=True):
    """One approval."""

    approval_id: str
    tenant: str
    kind: ApprovalKind
    #: The name of the job or workflow.
    subject: str
    #: The digest of what is approved: of a definition, or of a request and the content of its rule.
    digest: str
    status: ApprovalStatus = ApprovalStatus.WAITING
    #: The admin, the last voter or the part of the scheduler that decided, and when. None while it waits.
    decided_by: str | None = None
    decided_at: int | None = None
    #: Why it is needed, or why somebody has asked for it.
    reason: str = ""
    #: When it was withdrawn or became void, and by whom; for commands also when it was rejected.
    revoked_at: int | None = None
    revoked_by: str | None = None
    #: Why it is void.
    note: str = ""
    request: ApprovalRequest | None = None
    #: In the order in which they were cast.
    votes: tuple[Vote, ...] = ()

    @property
    def terms(self) -> ApprovalTerms:
        """The conditions for voters, and how many of them have to approve."""
        return COMMAND_TERMS if self.request is None else self.request.terms

    @property
    def overridden(self) -> bool:
        """Whether it was approved by an override."""
        return any(vote.kind is VoteKind.OVERRIDE for vote in self.votes)

    @property
    def approvers(self) -> tuple[str, ...]:
        """The persons who let the task run."""
        wanted = VoteKind.OVERRIDE if self.overridden else VoteKind.APPROVE
        return tuple(vote.voter for vote in self.votes if vote.kind is wanted)


#: The outcomes of approvals, as metrics count them.
OUTCOMES = ("asked", "approved", "overridden", "rejected", "expired", "void", "revoked")


def outcome_of(approval: Approval) -> str:
    """The outcome that metrics count; of one that waits, that it was asked for."""
    if approval.status is ApprovalStatus.WAITING:
        return OUTCOMES[0]
    return "overridden" if approval.overridden else approval.status.value


def approval_digest(request_digest: bytes, rule_digest: str) -> str:
    """The digest to which an approval of a task is bound, and which voters quote."""
    return sha256(request_digest + b"\0" + rule_digest.encode()).hexdigest()


def approval_id(task_id: TaskId, digest: str, now: int) -> str:
    """The id of an approval that a task asks for now: every node computes the same one."""
    return f"apr_{now & (1 << 48) - 1:012x}{sha256(f'{task_id} {digest}'.encode()).hexdigest()[:20]}"
