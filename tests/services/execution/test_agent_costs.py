"""The limit of what the agents of a tenant may cost in a day."""

import pytest

from contracts.store import HOUR, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import SecuritySettings
from gnomon.core.agents.catalog import AgentCatalog
from gnomon.core.agents.rules import MICROS, AgentSpending
from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.agents.usage import day_of
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import DAY_MS, Overlap, Run, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import AGENT, ONLY_STEP, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.command_gate import AgentGate, CommandGate
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness, FakeRunner

TRIAGE = Workflow(
    workflow_id="report",
    version=1,
    steps=(Step(name=ONLY_STEP, function=AGENT, agent=AgentSpec(model="openai:small"), input={"prompt": "x"}),),
)


class AgentCostHarness(ExecutionHarness):
    """A dispatcher with a limit of 1000 millionths a day, and a worker that offers agents."""

    def __init__(self, catalog: AgentCatalog | None = None, *, limit: int = 1000) -> None:
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        agents = AgentGate(
            store.agent_usages,
            store.agent_sessions,
            store.actions,
            clock,
            limit=limit or None,
            action_limit=20,
            catalog=catalog,
        )
        gate = CommandGate(CommandRules(SecuritySettings()), store.tasks, store.approvals, clock, agents)
        super().__init__(gate=gate, store=store, clock=clock, flags={"agents.max_cost_per_day": limit / MICROS})
        self.runner = FakeRunner(AGENT)
        self.worker = self.new_worker("w1", self.runner)
        self._jobs = 0
        #: How much agents were told that they may spend, the last time.
        self.left: list[int | None] = []

    async def tried(self, cost_micros: int = 0, *, actions: int = 0, definition: Workflow = TRIAGE) -> Task:
        """Run an agent once, which costs that much if it is admitted; return its task."""
        self._jobs += 1
        job = minutely(
            f"job{self._jobs}", trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_version=definition.version
        )
        await self.store.jobs.apply(JobChangeset(workflows=[definition]), now=self.clock.now(), actor="ada", tzdata="")
        await self.store.schedules.add([job], actor="ada", tzdata="")
        run: Run = await self.run(job, f"{self._jobs}")
        await self.run_until_idle()
        self.left = [one.day_cost_left for one in self.runner.started.values()]
        self.runner.end_all(
            usage=AgentSpending(requests=1, cost_micros=cost_micros, actions=actions, model="openai:small")
        )
        await self.run_until_idle()
        [task] = await self.store.history.tasks([run])
        return task


async def test_an_agent_is_refused_once_the_cost_of_the_day_is_reached() -> None:
    harness = AgentCostHarness()

    first, second, refused = [await harness.tried(cost) for cost in (600, 600, 600)]
    harness.clock.advance(day_of(NOON) + DAY_MS - harness.clock.now())
    tomorrow = await harness.tried(600)

    assert [one.state for one in (first, second, tomorrow)] == [TaskState.SUCCEEDED] * 3
    assert refused.state is TaskState.DENIED
    assert "agents.max_cost_per_day is reached: 0.0012 of 0.001 were spent today" in (refused.note or "")


async def test_an_agent_is_told_how_much_of_the_cost_of_the_day_is_left() -> None:
    harness, unlimited = AgentCostHarness(), AgentCostHarness(limit=0)

    told = []
    for cost in (600, 300):
        await harness.tried(cost)
        told += harness.left
    harness.clock.advance(day_of(NOON) + DAY_MS - harness.clock.now())
    await harness.tried()
    await unlimited.tried()

    assert (told, harness.left, unlimited.left) == ([1000, 400], [1000], [None])


def acting(actions: int, version: int) -> Workflow:
    """A job whose agent may take so many actions."""
    agent = AgentSpec(model="openai:small", tools=("shell",), budget=AgentBudget(actions=actions))
    step = Step(name=ONLY_STEP, function=AGENT, agent=agent, input={"prompt": "x"})
    return Workflow(workflow_id="report", version=version, steps=(step,))


@pytest.mark.req("Z-12")
async def test_an_agent_is_admitted_with_its_actions_and_gives_back_the_rest() -> None:
    harness = AgentCostHarness()

    first = await harness.tried(actions=3, definition=acting(15, 2))
    left = await harness.store.tasks.actions_since("default", since=NOON - HOUR)
    refused = await harness.tried(definition=acting(18, 3))
    second = await harness.tried(actions=17, definition=acting(17, 4))
    spent = await harness.store.tasks.actions_since("default", since=NOON - HOUR)
    harmless = await harness.tried()

    assert [first.state, second.state, harmless.state] == [TaskState.SUCCEEDED] * 3
    assert (left, spent) == (3, 20)
    assert (refused.state, refused.note) == (TaskState.DENIED, "blocked by security policy: action budget exhausted")


async def test_an_agent_is_refused_whose_model_has_lost_the_price_that_its_budget_needs() -> None:
    """The settings have changed since the job was added: nobody could keep its budget."""
    harness = AgentCostHarness(catalog=AgentCatalog(providers=frozenset(("openai",))))
    agent = AgentSpec(model="openai:small", budget=AgentBudget(cost_micros=10))
    limited = Workflow(
        workflow_id="report",
        version=2,
        steps=(Step(name=ONLY_STEP, function=AGENT, agent=agent, input={"prompt": "x"}),),
    )

    refused = await harness.tried(definition=limited)
    open_ended = await harness.tried()

    expected = (
        "blocked by security policy: agents.prices has no price of openai:small any more, which budget.cost needs"
    )
    assert (refused.state, refused.note) == (TaskState.DENIED, expected)
    assert open_ended.state is TaskState.SUCCEEDED
