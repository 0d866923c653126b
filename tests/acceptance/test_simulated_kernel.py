"""A policy kernel that rules, hangs, fails and lies, in histories with crashes: nothing starts without a ruling."""

import asyncio
import random
from collections import Counter

import pytest

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, RetryPolicy, Step, Workflow
from gnomon.errors import KernelUnavailable
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.testing.checker import check
from gnomon.testing.clock import VirtualClock
from gnomon.testing.faults import FaultProbabilities
from gnomon.testing.history import SimulationHistory
from gnomon.testing.simulation import Simulation
from support.effort import seed_batches
from support.policy_kernels import ScriptedKernel, kernel_policy
from support.random_simulation import HOUR, STARTS

pytestmark = [pytest.mark.req("R-02", "R-12", "R-13"), pytest.mark.guarantee("S4", "S5", "S6")]

BATCH, HOURS, TIMEOUT_MS = 1, 2, 2_000
ANSWERS = ("allow", "allow", "allow", "throttle", "allow_with_constraints")
LIES = ("", "maybe", "ALLOW", "number 9")


class RandomKernel(ScriptedKernel):
    """Denies everything about the workflow `denied`; while there are faults, it also hangs, fails and lies."""

    def __init__(self, simulation: Simulation, rng: random.Random, chances: FaultProbabilities) -> None:
        super().__init__(self._answer)
        self._simulation, self._rng, self._chances = simulation, rng, chances
        self._down_until = 0
        self.did: Counter[str] = Counter()

    async def _answer(self, request: PolicyCheckRequest) -> PolicyCheckResponse:
        if self._chances.failure:
            await self._misbehave()
        if request.workflow == "denied":
            return PolicyCheckResponse(decision="deny", rule_id="denied", policy_snapshot="p1")
        lies = self._chances.failure and self._rng.random() < 0.03
        self.did["lie" if lies else "answer"] += 1
        decision = self._rng.choice(LIES if lies else ANSWERS)
        return PolicyCheckResponse(decision=decision, rule_id="r1", policy_snapshot="p1")

    async def _misbehave(self) -> None:
        """Be slow, or away for a while, or hang until the client gives up."""
        now = self._simulation.clock.now()
        if now < self._down_until:
            self.did["away"] += 1
            raise KernelUnavailable("it is away")
        does = self._rng.choices(("rule", "slow", "away", "hang", "nonsense"), (80, 10, 2, 5, 3))[0]
        self.did[does] += 1
        if does == "away":
            self._down_until = now + self._rng.choice((1_000, 20_000, 200_000))
            raise KernelUnavailable("it is away")
        if does in ("slow", "hang"):
            await self._wait(TIMEOUT_MS if does == "hang" else self._rng.choice((1, 50, 1_000)))
        if does == "hang":
            raise KernelUnavailable("it has not answered within 2 s")
        if does == "nonsense":
            raise ValueError("it ends within a field")

    async def _wait(self, ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def end() -> None:
            if not over.done():
                over.set_result(None)
            # The answer wakes the service that has asked, before anything else happens.
            for _ in range(6):
                await asyncio.sleep(0)

        self._simulation.after(ms, end)
        await over


async def simulated(seed: int, *, opens: bool) -> tuple[SimulationHistory, MemoryStore, RandomKernel]:
    clock = VirtualClock(int(STARTS[seed % len(STARTS)].timestamp() * 1000))
    store = MemoryStore(clock.now)
    chances = FaultProbabilities(crash=0.001, failure=0.003, slowness=0.003, race=0.05, operator_failure=0.03)
    kernels: list[ScriptedKernel] = []

    async def ask(request: PolicyCheckRequest) -> PolicyCheckResponse:
        return await kernels[0].answer(request)

    policy = kernel_policy(ScriptedKernel(ask), clock, breakers=store.breakers, opens=opens)
    gate = ComposedGate(OpenGate(), policy, store.approvals)
    simulation = Simulation(store, clock, seed=f"kernel {seed}", chances=chances, gate=gate)
    kernel = RandomKernel(simulation, random.Random(f"answers {seed}"), chances)
    kernels.append(kernel)
    for name in ("plain", "retried", "denied"):
        retry = RetryPolicy(max_attempts=3, initial_delay_ms=1_000) if name == "retried" else None
        step = Step(name=ONLY_STEP, function=name, retry=retry)
        await simulation.define(Workflow(workflow_id=name, version=1, steps=(step,)))
        await simulation.register(
            {"schedule_id": name, "schedule": "every 20s", "workflow_id": name, "overlap": "allow"}
        )
    simulation.workload.durations = (10, 500, 20_000)
    simulation.add_node()
    simulation.add_node()
    return await simulation.run(HOURS * HOUR), store, kernel


@pytest.mark.parametrize("first", seed_batches(1, 40, BATCH))
@pytest.mark.parametrize("opens", [False, True], ids=["closed", "open"])
async def test_nothing_starts_without_a_ruling_whatever_the_kernel_does(first: int, *, opens: bool) -> None:
    for seed in range(first, first + BATCH):
        history, store, kernel = await simulated(seed, opens=opens)
        state = store.state
        started = {one.held[0] for one in history.observations if one.starts}

        assert check(history) == [], f"seed {seed}"
        assert len(started) > 300
        assert started <= state.permissions.keys()
        opened = {
            task_id for task_id, rows in state.rulings.items() if any(one.ruled_by == "fail_open" for one in rows)
        }
        denied = {task_id for task_id, task in state.tasks.items() if task.state is TaskState.DENIED}
        by_workflow = {run.run_id: run.workflow_id for run in state.runs.values()}
        forbidden = {name for name in started if by_workflow[state.tasks[name].run_id] == "denied"}
        assert forbidden <= opened
        assert (len(opened) > 10) is opens
        assert denied - state.rulings.keys() == set()
        assert all(kernel.did[what] > 5 for what in ("answer", "slow", "hang", "away", "lie")), kernel.did
