"""Records what the policy of a simulation lets happen: versions, admissions, votes, and approvals that expire."""

from collections.abc import Iterable, Mapping

from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote
from gnomon.core.model import TaskId
from gnomon.core.runs.admission import Admission
from gnomon.ports.approvals import ApprovalFilter
from gnomon.ports.store import Store
from gnomon.testing.clock import VirtualClock
from gnomon.testing.history import SimulationHistory
from gnomon.testing.policy_history import (
    AdmissionRecord,
    ExpiryRecord,
    PolicyHistory,
    PolicyRecord,
    PolicyTable,
    VoteRecord,
)

_PAGE = 200


class PolicyRecorder:
    """Records into the policy of a history; into none if the simulation has no policy."""

    def __init__(self, history: SimulationHistory, store: Store, clock: VirtualClock) -> None:
        self._history, self._store, self._clock = history, store, clock
        self._expired: set[str] = set()

    @property
    def _policy(self) -> PolicyHistory | None:
        return self._history.policy

    def _elapsed_ms(self) -> int:
        return round(self._clock.elapsed() * 1000)

    def applied(self, version: int, table: PolicyTable) -> None:
        """Record a version that was put in force."""
        if self._policy is not None and version not in self._policy.versions:
            self._policy.versions[version] = PolicyRecord(self._history.moment(), self._elapsed_ms(), version, table)

    def admitted(self, done: Mapping[TaskId, Admission], *, now: int, by: str) -> None:
        """Record admissions that were carried out."""
        if self._policy is None:
            return
        self._policy.admissions += [
            AdmissionRecord(
                moment=self._history.moment(),
                at=now,
                elapsed_ms=self._elapsed_ms(),
                by=by,
                attempt=(task_id, (one.fence or 0) + 1),
                state=one.state,
                ruling=one.ruling,
            )
            for task_id, one in done.items()
        ]

    def recalled(self, tasks: Iterable[TaskId]) -> None:
        """Record admitted tasks that wait again."""
        if self._policy is not None:
            self._policy.recalls += [(self._history.moment(), task_id) for task_id in tasks]

    def voted(self, approval: Approval, vote: Vote, *, digest: str) -> None:
        """Record a vote that counts, with the approval as it was before."""
        if self._policy is not None:
            made = VoteRecord(
                moment=self._history.moment(),
                at=vote.at,
                elapsed_ms=self._elapsed_ms(),
                voter=vote.voter,
                kind=vote.kind,
                quoted=digest,
                approval=approval,
            )
            self._policy.votes.append(made)

    async def look_for_expired(self) -> None:
        """Record the approvals that have expired since the last look."""
        if self._policy is None:
            return
        wanted = ApprovalFilter(tenant="default", status=ApprovalStatus.EXPIRED, kind=ApprovalKind.TASK)
        before: str | None = None
        while page := await self._store.approvals.page(wanted, before=before, limit=_PAGE):
            for one in page:
                if one.approval_id not in self._expired and one.request is not None:
                    self._expired.add(one.approval_id)
                    made = ExpiryRecord(
                        self._history.moment(), self._elapsed_ms(), one.approval_id, one.request.task_id
                    )
                    self._policy.expiries.append(made)
            before = page[-1].approval_id

    async def look_at_all(self) -> None:
        """Record all approvals of tasks as they are at the end."""
        if self._policy is None:
            return
        await self.look_for_expired()
        wanted = ApprovalFilter(tenant="default", kind=ApprovalKind.TASK)
        before: str | None = None
        while page := await self._store.approvals.page(wanted, before=before, limit=_PAGE):
            self._policy.approvals |= {one.approval_id: one for one in page}
            before = page[-1].approval_id
