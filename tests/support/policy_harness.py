"""A dispatcher whose gate rules by a policy, and the definitions that it rules on."""

from typing import Any

from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.app.gate import build_stored_policy
from gnomon.config.sections import SecuritySettings
from gnomon.config.settings import load
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import Overlap, Run, Task
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.workflow import ONLY_STEP, SHELL, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.execution import Gate
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.command_gate import CommandGate
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.testing.clock import Recorder, VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.rulings import rulings_of

THROTTLE_MS = 5_000


class PolicyHarness(ExecutionHarness):
    """A dispatcher whose gate rules by the policy in its store, and a worker."""

    def __init__(self, *, throttle_ms: int = THROTTLE_MS, **security: Any) -> None:  # noqa: ANN401 - settings
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        self.memory, self.tables = store, store.state
        self.policy_events = Recorder()
        settings = load(flags={"policy.throttle_ms": throttle_ms})
        self.stored = build_stored_policy(settings, store, self.policy_events)
        rules = CommandRules(SecuritySettings(**security), workspace="/srv/workspace")
        self.commands = CommandGate(rules, store.tasks, store.approvals, clock)
        self.gate = self._composed_gate(store, clock)
        super().__init__(gate=self.gate, store=store, clock=clock)
        self.runner = FakeRunner(SHELL, "reports.make")
        self.worker = self.new_worker("w1", self.runner)
        self._jobs = 0

    def _composed_gate(self, store: MemoryStore, clock: VirtualClock) -> Gate:
        composed = ComposedGate(self.commands, PolicyGate(self.stored, clock), store.approvals)
        return self.outer_gate(composed, store, clock)

    def new_gate(self) -> Gate:
        """The gate of another process on the same store."""
        return self._composed_gate(self.memory, self.clock)

    def outer_gate(self, gate: Gate, store: MemoryStore, clock: VirtualClock) -> Gate:
        """The gate that the dispatcher asks."""
        del store, clock
        return gate

    async def apply(self, body: str) -> PolicyVersion:
        made = await self.store.policies.add(body, author="ada", now=self.clock.now())
        await self.stored.refresh()
        return made

    async def launched(self, definition: Workflow, given: bytes | None = None) -> Run:
        self._jobs += 1
        definition = replace(definition, version=self._jobs)
        job = minutely(f"job{self._jobs}", trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_version=self._jobs)
        await self.store.jobs.apply(JobChangeset(workflows=[definition]), now=self.clock.now(), actor="ada", tzdata="")
        await self.store.schedules.add([job], actor="ada", tzdata="")
        return await self.run(job, f"{self._jobs}", given=given)

    async def tried(self, definition: Workflow, given: bytes | None = None) -> tuple[Task, list[StoredRuling]]:
        """Launch a run, and return its task and the rulings about it after the gate has decided."""
        run = await self.launched(definition, given)
        await self.run_until_idle()
        return await self.task(run), await rulings_of(self.store, run.run_id)

    async def task(self, run: Run) -> Task:
        [task] = await self.store.history.tasks([run])
        return task


def function(**step: Any) -> Workflow:  # noqa: ANN401 - fields of a step
    return Workflow(workflow_id="report", version=1, steps=(Step(name=ONLY_STEP, function="reports.make", **step),))


def command(text: str) -> Workflow:
    steps = (Step(name=ONLY_STEP, function=SHELL, command=text),)
    return Workflow(workflow_id="report", version=1, steps=steps, origin="api")
