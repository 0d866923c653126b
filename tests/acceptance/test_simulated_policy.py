"""Policies that change, gates that hang and lie, and voters of every kind in long histories: the checker finds nothing.

Each rule of the checker is shown to fail on a scheduler with a defect.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.approvals import MemoryApprovals
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.core.announcements.model import Announcement
from gnomon.core.approvals.decide import counted, ruling_with_approvals
from gnomon.core.approvals.model import Approval, ApprovalStatus, Vote, VoteKind
from gnomon.core.model import Task, TaskId
from gnomon.core.policy.gate_decision import ruled_decision
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.admission import Admission, GateDecision, GateVerdict
from gnomon.ports.approvals import Reopened, ReopenPosition
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.testing.checker import check
from gnomon.testing.clock import VirtualClock
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.history import SimulationHistory
from support.defective_stores import StoreFactory, with_rules
from support.effort import seed_batches, some_quick
from support.governed_simulation import GovernedSimulation, govern
from support.random_simulation import HOUR, STARTS
from support.sqlite_files import new_sqlite_file

pytestmark = [pytest.mark.req("R-02", "R-03", "R-12"), pytest.mark.guarantee("S4", "S5", "S6", "S7")]

HOURS = 2


@pytest.mark.parametrize("seed", seed_batches(1, 80, 1))
async def test_no_history_with_a_policy_and_voters_breaks_a_rule(seed: int) -> None:
    world = await govern(seed, hours=HOURS)

    assert check(world.history) == []
    assert {"hang", "lie", "vote approve", "vote forbidden"} <= world.did.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
async def test_no_history_on_sqlite_breaks_a_rule(seed: int, tmp_path: Path) -> None:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    chances = FaultProbabilities(crash=0.0005, failure=0.002, slowness=0.001, race=0.05, operator_failure=0.03)
    world = GovernedSimulation(store, clock, f"sqlite {seed}", chances=chances)
    history = await world.run(HOUR)
    await store.close()

    assert check(history) == []


@pytest.mark.thorough
async def test_the_histories_are_not_vacuous() -> None:
    worlds = [await govern(seed, hours=HOURS) for seed in range(12)]
    histories = [world.history for world in worlds]
    did = {what for world in worlds for what in world.did}
    approvals = [one for history in histories if history.policy for one in history.policy.approvals.values()]
    admissions = [one for history in histories if history.policy for one in history.policy.admissions]
    notes = {(one.ruling.decision, one.ruling.ruled_by) for one in admissions if one.ruling is not None}

    assert did >= {"answer", "wait", "raise", "hang", "nonsense", "lie"}
    assert did >= {f"vote {kind}" for kind in VoteKind}
    assert did >= {f"vote {code}" for code in ("forbidden", "approval_changed", "approval_closed", "voted_already")}
    assert {one.status for one in approvals} >= set(ApprovalStatus) - {ApprovalStatus.REVOKED}
    assert notes >= {
        (PolicyDecision.ALLOW, "policy"),
        (PolicyDecision.ALLOW, "approval"),
        (PolicyDecision.ALLOW, "override"),
        (PolicyDecision.DENY, "policy"),
        (PolicyDecision.DENY, "budgets"),
        (PolicyDecision.THROTTLE, "policy"),
        (PolicyDecision.THROTTLE, "budgets"),
        (PolicyDecision.REQUIRE_APPROVAL, "policy"),
        (PolicyDecision.REQUIRE_APPROVAL, "budgets"),
    }
    assert any(one.wait_reason == "breaker" for one in _waits(histories))
    assert any(one.ruling is not None and one.ruling.beyond_budget for one in admissions)


def _waits(histories: Sequence[SimulationHistory]) -> list[Task]:
    return [task for history in histories for task in history.tasks.values()]


# ---- negative controls: each of these defects must be seen ---------------------------------------


async def rules_broken(store: StoreFactory, *, until: str) -> set[str]:
    """The rules that some histories break; once the one that is looked for is among them, that is enough."""
    broken: set[str] = set()
    for seed in range(8):
        world = await govern(seed, hours=1, store=store)
        broken |= {violation.rule for violation in check(world.history)}
        if until in broken:
            break
    return broken


def with_approvals(approvals: type[MemoryApprovals]) -> StoreFactory:
    """Stores with these approvals, also for their upkeep."""

    def make(now: Callable[[], int]) -> MemoryStore:
        store = MemoryStore(now)
        store.approvals = store.approval_upkeep = approvals(store.state, store.rules)
        return store

    return make


class AuthorsForgotten(MemoryApprovals):
    """Does not know who asked for a task, so that they may vote on it."""

    async def authors(self, approval: Approval) -> frozenset[str]:
        del approval
        return frozenset()


class DigestIgnored(MemoryApprovals):
    """Counts votes on what the voter has not seen."""

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        found = await self.find(tenant, approval_id)
        return await super().vote(tenant, approval_id, vote, digest=digest if found is None else found.digest)


class VotesLost(MemoryApprovals):
    """Forgets the votes that came before."""

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        after = await super().vote(tenant, approval_id, vote, digest=digest)
        self._state.approvals[approval_id] = replace(after, votes=after.votes[-1:])
        return after


class RejectionForgotten(MemoryApprovals):
    """Lets a rejected task go on to the gate, as if it had been approved."""

    def _deny(self, task: Task, approval: Approval, now: int) -> None:
        if approval.status is ApprovalStatus.EXPIRED:
            super()._deny(task, approval, now)
        else:
            kept = replace(approval, status=ApprovalStatus.APPROVED)
            self._state.approvals[approval.approval_id] = kept
            self._go_on(task, None, task.wait_reason, now)


class NeverExpiring(MemoryApprovals):
    """Ends no approval in time."""

    async def expire(self, *, now: int, limit: int) -> int:
        del now, limit
        return 0


class NeverReopening(MemoryApprovals):
    """Leaves everything that waits under the version that has asked."""

    async def reopen(self, version: int, *, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
        del version, after, now, limit
        return Reopened(tasks=0, left=0, after=None)


class QuestionForgotten(MemoryRules):
    """Lets tasks wait for votes on nothing."""

    def ask_for(self, asked: Approval, announced: Sequence[Announcement], now: int) -> bool:
        del asked, announced, now
        return False


class RulingsForgotten(MemoryRules):
    """Writes no permission down."""

    def write_ruling(self, task_id: TaskId, run_id: Any, ruling: Ruling, now: int) -> None:  # noqa: ANN401 - as inside
        if not ruling.allows:
            super().write_ruling(task_id, run_id, ruling, now)


class BudgetIgnored(MemoryRules):
    """Lets every task start, whatever is left of its budgets."""

    def reserve_budgets(self, task: Task, one: Admission, now: int) -> Admission:
        del task, now
        return one


class BreakerIgnored(MemoryRules):
    """Lets every task start, whatever its breaker says."""

    def within_breaker(self, one: Admission, now: int) -> Admission:
        del now
        return one


STORES: dict[str, tuple[str, StoreFactory]] = {
    "callers vote on their own tasks": ("R-03", with_approvals(AuthorsForgotten)),
    "budgets are not asked": ("R-04", with_rules(BudgetIgnored)),
    "breakers are not asked": ("R-12", with_rules(BreakerIgnored)),
    "votes on what was not seen": ("R-03", with_approvals(DigestIgnored)),
    "votes are lost": ("R-03", with_approvals(VotesLost)),
    "a rejection is forgotten": ("R-03", with_approvals(RejectionForgotten)),
    "nothing expires": ("R-03", with_approvals(NeverExpiring)),
    "a new policy asks about nothing again": ("R-03", with_approvals(NeverReopening)),
    "what is asked is not kept": ("R-03", with_rules(QuestionForgotten)),
    "permissions are not written down": ("R-02", with_rules(RulingsForgotten)),
}


@pytest.mark.parametrize(("rule", "store"), some_quick(STORES, 1))
async def test_a_wrong_store_is_seen(rule: str, store: StoreFactory) -> None:
    assert rule in await rules_broken(store, until=rule)


def allowing(ruling: Ruling, **said: Any) -> GateDecision:  # noqa: ANN401 - as inside
    """A permission without a ruling, for what is denied."""
    if ruling.decision is PolicyDecision.DENY:
        return GateDecision(GateVerdict.ALLOW)
    return ruled_decision(ruling, **said)


def denying(ruling: Ruling, **said: Any) -> GateDecision:  # noqa: ANN401 - as inside
    """A denial of what is put off."""
    throttled = ruling.decision is PolicyDecision.THROTTLE
    return ruled_decision(replace(ruling, decision=PolicyDecision.DENY) if throttled else ruling, **said)


def asking_nobody(one: Admission, ruling: Ruling, now: int) -> Admission:
    """Lets a task exceed a budget that asks for votes."""
    del ruling, now
    assert one.ruling is not None
    return replace(one, ruling=replace(one.ruling, beyond_budget=True))


def approved_by_any(ruling: Ruling, approvals: Sequence[Approval]) -> Ruling:
    """A permission by votes on anything that the task has asked before."""
    wanted = ruling_with_approvals(ruling, approvals)
    approved = [one for one in approvals if one.status is ApprovalStatus.APPROVED]
    if not approved or wanted.allows:
        return wanted
    return replace(ruling, decision=PolicyDecision.ALLOW, ruled_by="approval", approval=None)


def counted_twice(approval: Approval, vote: Vote, *, digest: str) -> Approval:
    """Counts one person as often as they vote."""
    earlier = tuple(replace(one, voter=f"{one.voter} ") for one in approval.votes if one.voter == vote.voter)
    others = tuple(one for one in approval.votes if one.voter != vote.voter)
    return counted(replace(approval, votes=(*earlier, *others)), vote, digest=digest)


def counted_late(approval: Approval, vote: Vote, *, digest: str) -> Approval:
    """Counts votes that come too late."""
    request = approval.request
    if request is None or approval.status not in (ApprovalStatus.WAITING, ApprovalStatus.EXPIRED):
        return counted(approval, vote, digest=digest)
    open_one = replace(approval, status=ApprovalStatus.WAITING, request=replace(request, expires_at=vote.at + 1))
    return counted(open_one, vote, digest=digest)


async def read_once(self: StoredPolicy) -> None:
    """Reads the store only until a version is known."""
    if self.current is None:
        await _REFRESH(self)


_REFRESH = StoredPolicy.refresh
SERVICES: dict[str, tuple[str, str, object]] = {
    "what is denied starts": ("R-02", "gnomon.services.execution.composed_gate.ruled_decision", allowing),
    "an old version stays in force": (
        "R-02",
        "gnomon.services.execution.stored_policy.StoredPolicy.refresh",
        read_once,
    ),
    "what is put off is denied": ("R-02", "gnomon.core.policy.gate_decision.ruled_decision", denying),
    "votes on something else count": (
        "R-03",
        "gnomon.services.execution.composed_gate.ruling_with_approvals",
        approved_by_any,
    ),
    "one vote is enough": (
        "R-03",
        "gnomon.core.approvals.decide._status_after",
        lambda votes, _: ApprovalStatus.REJECTED if votes[-1].kind is VoteKind.REJECT else ApprovalStatus.APPROVED,
    ),
    "budgets that ask ask nobody": ("R-04", "gnomon.core.runs.admission._asking", asking_nobody),
    "one person counts twice": ("R-03", "gnomon.adapters.memory.approvals.counted", counted_twice),
    "late votes count": ("R-03", "gnomon.adapters.memory.approvals.counted", counted_late),
    "everybody may override": (
        "R-03",
        "gnomon.services.operations.approvals.ApprovalService._check_override",
        lambda *_: None,
    ),
    "everybody may vote": ("R-03", "gnomon.services.operations.approvals.voter_refusal", lambda *_: None),
}


@pytest.mark.parametrize(("rule", "target", "defect"), some_quick(SERVICES, 1))
async def test_a_wrong_service_is_seen(rule: str, target: str, defect: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, defect)

    assert rule in await rules_broken(MemoryStore, until=rule)
