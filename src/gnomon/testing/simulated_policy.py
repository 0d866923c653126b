"""The policy of simulated nodes: each follows the versions in the store, rules by them, and looks after approvals."""

from collections.abc import Awaitable, Callable, Sequence

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.policy_file import parse_policy
from gnomon.core import component_names
from gnomon.core.approvals.model import Approval, Vote
from gnomon.core.model import TaskId
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.version import PolicyVersion
from gnomon.ports.approvals import Approvals, ApprovalUpkeep, Reopened, ReopenPosition, Resumed
from gnomon.ports.execution import Gate
from gnomon.ports.policy import Policies
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.loop import Backoff
from gnomon.services.maintenance.approval_updater import ApprovalUpdater
from gnomon.testing.faults import FaultInjector, FaultyApprovals, OperatorFaults
from gnomon.testing.recorder import HistoryRecorder

_THROTTLE_MS = 20_000


class SimulatedPolicy:
    """How the nodes of a simulation rule on tasks."""

    def __init__(self, outer_gate: Callable[[Gate], Gate], *, refresh_seconds: float = 30.0) -> None:
        """`outer_gate` returns the gate that a node asks, around the one that rules: it may fail, hang and lie."""
        self._outer_gate = outer_gate
        self.refresh_seconds = refresh_seconds

    def around(self, gate: Gate) -> Gate:
        """The gate that a node asks."""
        return self._outer_gate(gate)


class NodePolicy:
    """The parts of one node that know the policy."""

    def __init__(
        self,
        policy: SimulatedPolicy,
        store: Store,
        clock: Clock,
        events: Events,
        recorder: HistoryRecorder,
        faults: FaultInjector,
        *,
        on_ready: Callable[[], None],
    ) -> None:
        policies = FaultyPolicies(store.policies, faults)
        self._stored = StoredPolicy(policies, events, compile_version=_compiled, refresh_seconds=policy.refresh_seconds)
        self._backoff = Backoff(events, component_names.POLICY)
        self._updater = ApprovalUpdater(
            FaultyApprovalUpkeep(store.approval_upkeep, recorder, faults),
            clock,
            events,
            lease=AlwaysHeldSingleton(),
            policies=policies,
            on_ready=on_ready,
            refresh_seconds=policy.refresh_seconds,
        )
        rules = PolicyGate(self._stored, clock)
        self.gate = policy.around(
            ComposedGate(OpenGate(), rules, FaultyApprovals(store.approvals, faults.fail_at_random))
        )

    @property
    def steps(self) -> dict[str, Callable[[], Awaitable[float]]]:
        """The services, by name."""
        return {component_names.POLICY: self._follow, component_names.APPROVAL_UPDATER: self._updater.step}

    async def _follow(self) -> float:
        return await self._backoff.attempt(self._stored.step)


def _compiled(version: PolicyVersion) -> CompiledPolicy:
    return CompiledPolicy(parse_policy(version.body), version.version, throttle_ms=_THROTTLE_MS)


class FaultyPolicies:
    """Implements Policies for one process."""

    def __init__(self, policies: Policies, faults: FaultInjector) -> None:
        self._policies, self._faults = policies, faults

    async def add(self, body: str, *, author: str, now: int, expected: int | None = None) -> PolicyVersion:
        """See Policies.add."""
        return await self._policies.add(body, author=author, now=now, expected=expected)

    async def newest(self) -> PolicyVersion | None:
        """See Policies.newest."""
        await self._faults.before()
        return await self._policies.newest()

    async def newest_number(self) -> int:
        """See Policies.newest_number."""
        await self._faults.before()
        return await self._policies.newest_number()

    async def find(self, version: int) -> PolicyVersion | None:
        """See Policies.find."""
        return await self._policies.find(version)

    async def page(self, *, before: int | None, limit: int) -> Sequence[PolicyVersion]:
        """See Policies.page."""
        return await self._policies.page(before=before, limit=limit)


class FaultyApprovalUpkeep:
    """Implements ApprovalUpkeep for one process."""

    def __init__(self, upkeep: ApprovalUpkeep, recorder: HistoryRecorder, faults: FaultInjector) -> None:
        self._upkeep, self._recorder, self._faults = upkeep, recorder, faults

    async def next_expiry(self) -> int | None:
        """See ApprovalUpkeep.next_expiry."""
        await self._faults.before()
        return await self._upkeep.next_expiry()

    async def expire(self, *, now: int, limit: int) -> int:
        """See ApprovalUpkeep.expire."""
        await self._faults.before()
        ended = await self._upkeep.expire(now=now, limit=limit)
        if ended:
            await self._recorder.policy.look_for_expired()
            await self._recorder.look_at_all()
        await self._faults.after()
        return ended

    async def reopen(self, version: int, *, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
        """See ApprovalUpkeep.reopen."""
        await self._faults.before()
        page = await self._upkeep.reopen(version, after=after, now=now, limit=limit)
        if page.tasks:
            await self._recorder.look_at_all()
        await self._faults.after()
        return page

    async def resume(self, *, after: TaskId, now: int, limit: int) -> Resumed:
        """See ApprovalUpkeep.resume."""
        await self._faults.before()
        page = await self._upkeep.resume(after=after, now=now, limit=limit)
        if page.tasks:
            await self._recorder.look_at_all()
        await self._faults.after()
        return page


class VotedApprovals(FaultyApprovals):
    """Implements Approvals for voters, who act from outside. Records every vote that counts."""

    def __init__(self, approvals: Approvals, recorder: HistoryRecorder, faults: OperatorFaults) -> None:
        super().__init__(approvals, faults.before)
        self._voted, self._recorder, self._voter_faults = approvals, recorder, faults

    async def find(self, tenant: str, approval_id: str) -> Approval | None:
        """See Approvals.find."""
        found = await self._voted.find(tenant, approval_id)
        await self._voter_faults.race()
        return found

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        """See Approvals.vote."""
        self._voter_faults.before()
        before = await self._voted.find(tenant, approval_id)
        after = await self._voted.vote(tenant, approval_id, vote, digest=digest)
        if before is not None and before.request is not None:
            self._recorder.policy.voted(before, vote, digest=digest)
            await self._recorder.look([before.request.run_id])
        self._voter_faults.after()
        return after
