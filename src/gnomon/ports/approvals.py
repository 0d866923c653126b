"""Approvals of definitions and tasks. Every method that changes them is one transaction with its audit entries."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote
from gnomon.core.model import TaskId


class ApprovalFilter(Struct, frozen=True, kw_only=True):
    """The approvals of a tenant to list. None: any."""

    tenant: str
    status: ApprovalStatus | None = None
    kind: ApprovalKind | None = None
    #: The name of the job or workflow.
    subject: str | None = None


class Reopened(Struct, frozen=True, kw_only=True):
    """A page of approvals that wait under an earlier version of the policy."""

    #: How many tasks are asked about again.
    tasks: int
    #: How many approvals of the page still wait.
    left: int
    #: The last approval of the page if there may be more.
    after: str | None


class Approvals(Protocol):
    """Approvals, and the votes on them."""

    async def grant(self, approval: Approval) -> bool:
        """Add the approval, unless one of the same kind, subject and digest counts; return whether it is new."""
        ...

    async def revoke(self, tenant: str, kind: ApprovalKind, subject: str, *, actor: str, now: int) -> int:
        """Revoke all approvals of the subject that count; return their number."""
        ...

    async def standing(self, tenant: str, kind: ApprovalKind, subjects: Collection[str]) -> Sequence[Approval]:
        """The approvals of these subjects that count, in the order in which they were granted."""
        ...

    async def of_task(self, task_id: TaskId) -> Sequence[Approval]:
        """The approvals for which the task has asked, in the order in which it has.

        They come with their votes and with the digests of items.
        """
        ...

    async def find(self, tenant: str, approval_id: str) -> Approval | None:
        """The approval with its votes; None if the tenant has none of that id."""
        ...

    async def page(self, wanted: ApprovalFilter, *, before: str | None, limit: int) -> Sequence[Approval]:
        """The approvals with ids before that one, newest first, with their votes."""
        ...

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        """Count the vote, and let the task go on or end it if that decides; return the approval as it is then.

        NotFound if the tenant has no such approval; ApprovalChanged unless `digest` is its digest; ApprovalClosed if it
        waits for no vote, or its task does not; VotedAlready if the person has voted. Nothing is written then.
        """
        ...

    async def authors(self, approval: Approval) -> frozenset[str]:
        """The names of all who asked for the task: the caller who requested its run, and the last authors.

        These are the author of the version of its workflow that runs, of the newest version, and of the newest
        revision of its schedule. The same of every run that has chosen its input: of the run that waits for this one,
        and of the run whose dead letter this one replays.
        """
        ...


class ApprovalUpkeep(Protocol):
    """Approvals that end, and questions that have to be asked again."""

    async def next_expiry(self) -> int | None:
        """The earliest time at which a waiting approval expires; None if none waits."""
        ...

    async def expire(self, *, now: int, limit: int) -> int:
        """Deny the tasks whose approvals have expired before that time; return how many approvals were ended."""
        ...

    async def reopen(self, version: int, *, after: str, now: int, limit: int) -> Reopened:
        """Have the gate ask again about tasks that wait under an earlier version of the policy, behind that approval.

        Their approvals stay with their votes until the gate has answered. An approval whose task waits no longer is
        void.
        """
        ...

    async def resume(self, *, now: int, limit: int) -> int:
        """Let tasks go on that still wait although they are approved; return how many."""
        ...
