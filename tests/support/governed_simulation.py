"""Simulations with a policy that changes, a gate that hangs and lies, and voters of every kind."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gnomon.adapters.memory import MemoryStore
from gnomon.core.approvals.model import Approval, ApprovalKind, VoteKind
from gnomon.core.approvals.terms import Voter
from gnomon.core.breakers import BreakerLimits, StepBreaker
from gnomon.core.model import MINUTE_MS, Result, TaskId
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict
from gnomon.core.runs.workflow import ONLY_STEP, RetryPolicy, Step, Workflow
from gnomon.errors import GnomonError, NotFound, Refused
from gnomon.ports.execution import Gate
from gnomon.ports.store import Store
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import QueuedEvent
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.history import OPERATOR, SimulationHistory
from gnomon.testing.policy_history import JobBudget, JobRule, Person, PolicyTable
from gnomon.testing.simulated_policy import SimulatedPolicy
from gnomon.testing.simulation import Simulation
from support.defective_stores import StoreFactory
from support.random_simulation import HOUR, STARTS

ALLOW, DENY, ASK, THROTTLE = (
    PolicyDecision.ALLOW,
    PolicyDecision.DENY,
    PolicyDecision.REQUIRE_APPROVAL,
    PolicyDecision.THROTTLE,
)
ADMIN, FINANCE, FIRE = frozenset({"admin"}), frozenset({"finance"}), frozenset({"fire"})
#: The operator has written all definitions, and the two callers start runs; all of them try to vote.
PEOPLE = (
    Person(OPERATOR, roles=ADMIN, groups=FINANCE),
    Person("caller-1", roles=ADMIN, groups=FINANCE),
    Person("caller-2", roles=ADMIN, groups=FINANCE),
    Person("carl", groups=FINANCE),
    Person("dora", roles=ADMIN, groups=FINANCE),
    Person("emil", groups=FINANCE),
    Person("fred", roles=ADMIN),
    Person("olga", groups=FIRE),
    Person("nobody"),
)
_LIMITS = BreakerLimits(failures=3, open_ms=10 * MINUTE_MS, probes=1, successes=1, probe_ms=100 * HOUR)
BREAKER = StepBreaker(name="bank", limits=_LIMITS)
RETRY = RetryPolicy(max_attempts=3, initial_delay_ms=20_000)
#: So late that another version of the policy may be in force by then.
LATE_RETRY = RetryPolicy(max_attempts=4, initial_delay_ms=5 * MINUTE_MS, max_delay_ms=20 * MINUTE_MS)
#: By the name of the job: the fields of its step.
JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "paid": {"retry": LATE_RETRY},
    "paid-twice": {},
    "own": {"retry": RETRY},
    "urgent": {"deadline_ms": 12 * MINUTE_MS},
    "bank-1": {"breaker": BREAKER, "retry": RETRY},
    "bank-2": {"breaker": BREAKER},
    "counted": {"retry": RETRY},
    "counted-2": {},
    "counted-3": {"retry": RETRY},
}
#: The decisions of each job, of which a version says one.
RULES: dict[str, tuple[JobRule, ...]] = {
    "plain": (JobRule(ALLOW), JobRule(ALLOW), JobRule(DENY), JobRule(THROTTLE)),
    "paid": (JobRule(ASK), JobRule(ASK), JobRule(ASK, groups=("finance",)), JobRule(ALLOW), JobRule(DENY)),
    "paid-twice": (
        JobRule(ASK, quorum=2, groups=("finance",), expires_ms=20 * MINUTE_MS),
        JobRule(ASK, quorum=2, groups=("finance",), expires_ms=20 * MINUTE_MS),
        JobRule(ASK, quorum=3, groups=("finance",), expires_ms=40 * MINUTE_MS),
    ),
    "own": (JobRule(ASK, self_approval=True, expires_ms=5 * MINUTE_MS), JobRule(ALLOW), JobRule(THROTTLE)),
    "urgent": (JobRule(ASK, expires_ms=30 * MINUTE_MS),),
    "bank-1": (JobRule(ALLOW),),
    "bank-2": (JobRule(ALLOW), JobRule(ASK)),
    "counted": (JobRule(ALLOW),),
    "counted-2": (JobRule(ALLOW),),
    "counted-3": (JobRule(ALLOW), JobRule(ALLOW), JobRule(THROTTLE)),
}
BUDGETS = (
    JobBudget("few", ("counted", "counted-2"), limit=4, per_ms=10 * MINUTE_MS),
    JobBudget("fewer", ("counted-2",), limit=2, per_ms=20 * MINUTE_MS, over=JobRule(DENY)),
    JobBudget("asked", ("counted-3",), limit=2, per_ms=30 * MINUTE_MS, over=JobRule(ASK, expires_ms=10 * MINUTE_MS)),
)


class UnreliableGate(Gate):
    """A gate that takes its time, raises, hangs, answers nonsense and lies, as long as it is `failing`."""

    def __init__(
        self,
        gate: Gate,
        rng: random.Random,
        did: Counter[str],
        after: Callable[[float, QueuedEvent], None],
        failing: Callable[[], bool],
    ) -> None:
        self._gate, self._rng, self._did = gate, rng, did
        self._after, self._failing = after, failing

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        does = self._rng.choices(("answer", "wait", "raise", "hang", "nonsense", "lie"), (70, 16, 4, 3, 3, 4))[0]
        does = does if self._failing() else "answer"
        self._did[does] += 1
        if does == "wait":
            await self._wait(self._rng.choice((1, 50, 1_000, 4_000, 6_000)))
        elif does == "raise":
            raise RuntimeError("no answer today")
        elif does == "hang":
            await asyncio.get_running_loop().create_future()
        decision = await self._gate.admit(request)
        if does == "lie":
            return self._lie(decision)
        return None if does == "nonsense" else decision  # type: ignore[return-value]

    def _lie(self, decision: GateDecision) -> GateDecision:
        """An answer that contradicts its own ruling, has none, or is about another task."""
        lies = [
            replace(
                decision, verdict=GateVerdict.ALLOW if decision.verdict is not GateVerdict.ALLOW else GateVerdict.DENY
            ),
            replace(decision, task_id=TaskId("task_of_others")),
            replace(decision, verdict="yes"),
        ]
        return self._rng.choice(lies)

    async def _wait(self, ms: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def end() -> None:
            if not over.done():
                over.set_result(None)
            # The call goes on, and its answer wakes the service that has asked, before anything else happens.
            for _ in range(6):
                await asyncio.sleep(0)

        self._after(ms, end)
        await over

    async def release(self, finished: Any, output: bytes | None) -> Any:  # noqa: ANN401 - as the gate inside
        return await self._gate.release(finished, output)


class GovernedSimulation:
    """Jobs under a policy, among voters, callers and faults."""

    def __init__(self, store: Store, clock: VirtualClock, seed: object, *, chances: FaultProbabilities) -> None:
        self.rng = random.Random(f"governed {seed}")
        self.did: Counter[str] = Counter()
        self._chances = chances
        dice = random.Random(f"gate {seed}")

        def outer(gate: Gate) -> Gate:
            return UnreliableGate(gate, dice, self.did, self.simulation.after, lambda: chances.failure > 0)

        self.simulation = Simulation(
            store, clock, seed=f"governed {seed}", chances=chances, policy=SimulatedPolicy(outer)
        )
        self.simulation.workload.durations = (10, 500, 20_000)
        self.simulation.workload.endings = {Result.SUCCEEDED: 70, Result.FAILED: 25, Result.SNOOZED: 5}

    @property
    def history(self) -> SimulationHistory:
        return self.simulation.history

    async def run(self, ms: int) -> SimulationHistory:
        simulation = self.simulation
        simulation.know_voters(PEOPLE, break_glass=FIRE)
        await self._change_policy()
        for name, step in JOBS.items():
            made = Step(name=ONLY_STEP, function=name, **step)
            await simulation.define(Workflow(workflow_id=name, version=1, steps=(made,)))
            every = "every 2 minutes" if name.startswith("counted") else "every 5 minutes"
            job = {"schedule_id": name, "schedule": every, "workflow_id": name, "overlap": "allow"}
            await simulation.register(job)
        for _ in range(2):
            simulation.add_node()
        simulation.after(self.rng.randrange(MINUTE_MS), self._vote)
        simulation.after(self.rng.randrange(5 * MINUTE_MS), self._start)
        simulation.after(self.rng.randrange(HOUR), self._stop_a_node)
        return await simulation.run(ms)

    # ---- the policy, callers and nodes -------------------------------------------------------

    async def _change_policy(self) -> None:
        """Put another version in force: most rules stay as they are."""
        versions = self.history.policy.versions if self.history.policy else {}
        now = versions[max(versions)].table.rules if versions else {}
        rules = {
            job: self.rng.choice(choices) if job not in now or self.rng.random() < 0.3 else now[job]
            for job, choices in RULES.items()
        }
        await self.simulation.apply_policy(PolicyTable(rules, BUDGETS))
        self.simulation.after(self.rng.randrange(MINUTE_MS, 40 * MINUTE_MS), self._change_policy)

    async def _start(self) -> None:
        simulation, name = self.simulation, self.rng.choice(sorted(JOBS))
        caller = self.rng.choice(("caller-1", "caller-2"))
        try:
            if self.rng.random() < 0.2:
                await self._cancel_or_replay()
            else:
                await simulation.persist(lambda: simulation.launcher.trigger(name, actor=caller))
        except (NotFound, Refused):
            self.did["refused"] += 1
        simulation.wake()
        simulation.after(self.rng.choice([5_000, MINUTE_MS, 4 * MINUTE_MS]), self._start)

    async def _cancel_or_replay(self) -> None:
        simulation = self.simulation
        letters = await simulation.dead_letter_service.page(unresolved=True)
        if letters and self.rng.random() < 0.5:
            letter = self.rng.choice(letters).dead_letter_id
            await simulation.persist(lambda: simulation.dead_letter_service.replay(letter, actor=OPERATOR))
            return
        under_way = [run for run in await simulation.executions.page(limit=50) if not run.over]
        if under_way:
            await simulation.cancel(self.rng.choice(under_way).run_id)

    async def _stop_a_node(self) -> None:
        self.simulation.stop_a_node(self.rng.choice([20_000, 200_000, 400_000]))
        self.simulation.after(self.rng.randrange(2 * HOUR), self._stop_a_node)

    # ---- voters ------------------------------------------------------------------------------

    async def _vote(self) -> None:
        """One person votes: rightly, twice, too late, without the right to, or on what they did not see."""
        waiting = await self.simulation.approvals.page(limit=500, kind=ApprovalKind.TASK)
        open_ones = [one for one in waiting if one.status == "waiting"]
        if waiting:
            chosen = self.rng.choice(open_ones if open_ones and self.rng.random() < 0.9 else waiting)
            await self._vote_on(chosen, self.rng.choice(PEOPLE))
        self.simulation.after(self.rng.choice([1_000, 10_000, MINUTE_MS]), self._vote)

    async def _vote_on(self, approval: Approval, person: Person) -> None:
        kind = self.rng.choices(list(VoteKind), (80, 8, 12))[0]
        seen = "0" * 64 if self.rng.random() < 0.1 else approval.digest
        voter = Voter(name=person.name, roles=person.roles, groups=person.groups)
        service, name = self.simulation.approvals, approval.approval_id
        for _ in range(self.rng.choice((1, 1, 2))):
            try:
                await self.simulation.persist(
                    lambda: service.vote(name, kind, voter, digest=seen, reason="it is in order")
                )
            except GnomonError as refusal:
                self.did[f"vote {refusal.code}"] += 1
            else:
                self.did[f"vote {kind}"] += 1
        self.simulation.wake()


async def govern(seed: int, *, hours: int, store: StoreFactory = MemoryStore) -> GovernedSimulation:
    """Run the simulation of that seed for so many hours."""
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    chances = FaultProbabilities(crash=0.0005, failure=0.002, slowness=0.001, race=0.05, operator_failure=0.03)
    world = GovernedSimulation(store(clock.now), clock, seed, chances=chances)
    await world.run(hours * HOUR)
    return world
