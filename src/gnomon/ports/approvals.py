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


#: The version of the policy that asked for an approval, and the id of that.
ReopenPosition = tuple[int, str]


class Reopened(Struct, frozen=True, kw_only=True):
    """A page of approvals that wait under an earlier version of the policy."""

    #: How many tasks are asked about again.
    tasks: int
    #: How many approvals of the page still wait.
    left: int
    #: The place of the last approval of the page if there may be more.
    after: ReopenPosition | None


class Resumed(Struct, frozen=True, kw_only=True):
    """A page of tasks that wait for votes."""

    #: How many of them go on.
    tasks: int
    #: The last of the page if there may be more.
    after: TaskId | None


class Approvals(Protocol):
    """Approvals, and the votes on them."""

    async def ask(self, asked: Approval, *, actor: str, now: int) -> Approval:
        """Add the approval of the commands of a definition; return it, or the one of the same commands that there is.

        One of other commands of the definition that still waits becomes void.
        """
        ...

    async def revoke(self, tenant: str, approval_id: str, *, actor: str, now: int) -> Approval:
        """End an approval of commands that counts.

        NotFound if the tenant has none of that id, ApprovalClosed if it does not count, or is that of a task.
        """
        ...

    async def standing(self, tenant: str, subjects: Collection[str]) -> Sequence[Approval]:
        """The approvals of the commands of these definitions that count, in the order in which they were asked for."""
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
        """Count the vote, and let its task go on or end it if that decides; return the approval as it is then.

        NotFound if the tenant has no such approval; ApprovalChanged unless `digest` is its digest; ApprovalClosed if it
        waits for no vote, or its task, if it has one, does not; VotedAlready if the person has voted. Nothing is
        written then.
        """
        ...

    async def authors(self, approval: Approval) -> frozenset[str]:
        """The names of all who asked for the task: the caller who requested its run, and the last authors.

        These are the author of the version of its workflow that runs, of the newest version, and of the newest
        revision of its schedule. The same of every run that has chosen its input: of the run that waits for this one,
        and of the run whose dead letter this one replays. For an agent, the last authors of its job; of a run of
        several events, all who have emitted one.
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

    async def reopen(self, version: int, *, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
        """Have the gate ask again about tasks that wait under an earlier version of the policy, behind that place.

        Their approvals stay with their votes until the gate has answered. An approval whose task waits no longer is
        void.
        """
        ...

    async def resume(self, *, after: TaskId, now: int, limit: int) -> Resumed:
        """Of so many tasks that wait, behind that one, let those go on about which nobody is asked."""
        ...
