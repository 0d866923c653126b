"""For random graphs of steps and events, the store on SQL has the same results as the one in memory."""

from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import open_postgres, open_sqlite
from gnomon.core.model import Overlap, Result, RunId, RunSource, Schedule
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, ReadyTask
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, complete_attempt
from gnomon.core.runs.workflow import RetryPolicy, Step, When, Workflow
from gnomon.core.triggers import OnDemand, OnEvent
from gnomon.ports.runs import RunQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.tasks import WorkerInfo
from gnomon.testing.clock import VirtualClock
from support.effort import thorough
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.store_pair import StorePair, full_snapshot
from support.task_steps import LEASE

RETRY = RetryPolicy(max_attempts=2, initial_delay_ms=1000, jitter=0)
FUNCTION = "reports.make"
DAY = 24 * 60 * MINUTE
#: The clock of both stores: later than every time at which the operators act.
LATER = NOON + DAY


def step(name: str, *needs: str, **said: Any) -> Step:  # noqa: ANN401 - any field of a step
    return Step(name=name, function=said.pop("function", FUNCTION), depends_on=needs, **said)


#: The functions of steps, and their dependencies.
SUBS = (
    Workflow(workflow_id="leaf", version=1, steps=(step("main"),), dead_letter=True),
    Workflow(workflow_id="two", version=1, steps=(step("a"), step("b"))),
    Workflow(workflow_id="deep", version=1, steps=(step("sub", function="", workflow="leaf"), step("after", "sub"))),
    Workflow(workflow_id="many", version=1, steps=(step("each", foreach=[1, 2], max_parallel=1), step("z", "each"))),
)


def special(rng: Random, name: str, before: Sequence[str]) -> Step:
    """A step that no worker carries out, or that only sometimes runs. Nothing else is under way beside it."""
    refers = "${steps." + before[-1] + ".output}" if before else [1, 2, 3]
    kinds: tuple[dict[str, Any], ...] = (
        {"foreach": [1, 2, 3, 4], "max_parallel": rng.choice((None, 1, 2)), "input": {"n": "${item}"}},
        {"foreach": refers, "max_parallel": 2, "retry": RETRY},
        {"foreach": [1, 2], "function": "", "workflow": rng.choice(SUBS).workflow_id, "max_parallel": 1},
        {"function": "", "workflow": rng.choice(SUBS).workflow_id, "retry": rng.choice((None, RETRY))},
        {"function": "", "delay_ms": 1000},
        {"condition": f"steps.{before[-1]}.output == 1"} if before else {},
        {"input": {"all": refers}},
    )
    return step(name, *before, when=rng.choice((*[When.ALL_SUCCESS] * 3, *When)), **rng.choice(kinds))


def graph(rng: Random, name: str) -> Workflow:
    """Layers of steps: several that depend on some of those before, or a single special one that depends on all."""
    steps: list[Step] = []
    last: list[str] = []
    for layer in range(rng.randint(2, 4)):
        if rng.random() < 0.5:
            made = [special(rng, f"s{layer}", [one.name for one in steps])]
        else:
            made = [
                step(f"p{layer}{number}", *rng.sample(last, rng.randint(min(1, len(last)), len(last))), retry=retry)
                for number, retry in enumerate(rng.choices((None, RETRY), k=rng.randint(1, 3)))
            ]
        steps += made
        last = [one.name for one in made]
    most = rng.choice((None, None, 1, 2))
    return Workflow(workflow_id=name, version=1, steps=tuple(steps), dead_letter=rng.random() < 0.5, max_parallel=most)


class SeededGate(OpenGate):
    """Says the same of the same task to everyone."""

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        return self._ruled(request.waiting)

    def _ruled(self, one: ReadyTask) -> GateDecision:
        drawn = sha256(f"{one.task.task_id} {one.task.available_at}".encode()).digest()[0]
        if drawn < 10:
            return GateDecision(GateVerdict.DENY, "no")
        return GateDecision(GateVerdict.LATER, "not now", 500) if drawn < 25 else GateDecision(GateVerdict.ALLOW)


class GraphOperators:
    """Do anything that anyone may do with graphs and events, at random."""

    def __init__(self, pair: StorePair, rng: Random) -> None:
        self.pair, self.rng, self.names = pair, rng, 0
        self.clock = VirtualClock(NOON)
        self.workflows = {one.workflow_id: one for one in (*SUBS, *(graph(rng, f"g{n}") for n in range(4)))}
        self.schedules = [self.job(f"job {overlap}", overlap=overlap, queue_limit=2) for overlap in Overlap]
        self.schedules += [
            self.job("listens", trigger=OnEvent("drift", '{"n":1}'), overlap=Overlap.QUEUE, queue_limit=2),
            self.job("gathers", trigger=OnEvent("drift", debounce_ms=MINUTE), overlap=Overlap.ALLOW),
            self.job("batches", trigger=OnEvent("drift", most=2, batch_ms=MINUTE), overlap=Overlap.REPLACE),
        ]
        flags = {"execution.batch": 5}
        self.harnesses = {
            id(store): ExecutionHarness(store=store, clock=self.clock, gate=SeededGate(), flags=flags)
            for store in (pair.memory, pair.sql)
        }
        self.assigned: list[ReadyTask] = []

    def job(self, name: str, **said: Any) -> Schedule:  # noqa: ANN401 - any field of a spec
        made = minutely(name, **{"trigger": OnDemand()} | said)
        workflow = self.workflows[f"g{self.rng.randrange(4)}"]
        spec = replace(made.spec, workflow_id=workflow.workflow_id, first_steps=workflow.first_steps)
        return replace(made, spec=spec, next_fire_at=None)

    @property
    def now(self) -> int:
        return self.clock.now()

    async def register(self) -> None:
        wanted = JobChangeset(workflows=list(self.workflows.values()), added=self.schedules)
        assert await self.pair.call_both(lambda store: store.jobs.apply(wanted, now=NOON, actor="ada", tzdata=""))
        card = WorkerInfo(worker="w1", pool="default", functions=(FUNCTION,), slots=10, started_at=NOON)
        await self.pair.call_both(lambda store: store.workers.register(card, ttl_ms=DAY))

    async def act(self) -> None:
        self.clock.advance(self.rng.randrange(1, 2000))
        often = (self.dispatch, self.take, self.report)
        await self.rng.choice((*often * 4, self.launch, self.launch, self.emit, self.close, self.cancel))()

    async def launch(self) -> None:
        self.names += 1
        schedule = self.rng.choice(self.schedules)
        run = new_requested_run(RunId(f"run_{self.names}"), schedule, source=RunSource.API, now=self.now)
        given = self.rng.choice((None, b'{"x":1}'))
        wanted = LaunchRequest(run=run, first_steps=schedule.spec.first_steps, input=given)
        await self.pair.call_both(lambda store: store.runs.launch([wanted], now=self.now))

    async def dispatch(self) -> None:
        await self.pair.call_both(lambda store: self.harnesses[id(store)].dispatcher.step())

    async def take(self) -> None:
        limit = self.rng.randint(1, 6)
        self.assigned += await self.pair.call_both(
            lambda store: store.attempts.take("w1", limit=limit, lease_ms=LEASE, now=self.now)
        )

    async def report(self) -> None:
        self.rng.shuffle(self.assigned)
        chosen = [self.assigned.pop() for _ in range(min(len(self.assigned), self.rng.randint(1, 4)))]
        if any(self.workflows[one.run.workflow_id].max_parallel for one in chosen):
            # Which of two steps goes first, if both could since the same instant, is for nobody to say.
            self.assigned += chosen[1:]
            del chosen[1:]
        endings = [self.ended(one) for one in [*chosen, *chosen[:1]]]
        await self.pair.call_both(lambda store: store.attempts.report(endings))

    def ended(self, one: ReadyTask) -> Any:  # noqa: ANN401 - what follows
        workflow = self.workflows[one.run.workflow_id]
        found = workflow.step(one.task.step)
        assert found is not None
        result = self.rng.choice((*[Result.SUCCEEDED] * 8, Result.FAILED, Result.GAVE_UP, Result.SNOOZED, Result.LOST))
        output = self.rng.choice((b"1", b"2", b"[]", b"[1,2,3]", None)) if result is Result.SUCCEEDED else None
        error = None if result is Result.SUCCEEDED else "it broke"
        had = Assignment(task=one.task, run=one.run, workflow=workflow, step=found, input={})
        return complete_attempt(
            had, AttemptOutcome(result=result, output=output, error=error), now=self.now, limits=GiveUpLimits()
        )

    async def cancel(self) -> None:
        runs = await self.pair.call_both(lambda store: store.executions.list_runs(RunQuery(limit=8)))
        if runs and self.rng.random() < 0.5:
            name = self.rng.choice(runs).run_id
            await self.pair.call_both(lambda store: store.runs.cancel(name, reason="no", now=self.now))

    async def emit(self) -> None:
        number = self.rng.randint(1, 30)
        body = msgspec.json.encode({"n": self.rng.randint(1, 2)})
        event = ExternalEvent(event_id=f"evt_{number}", name="drift", body=body, emitted_at=self.now, actor="ada")
        await self.pair.call_both(lambda store: store.events.emit(event, now=self.now))

    async def close(self) -> None:
        self.clock.advance(self.rng.choice((0, MINUTE)))
        await self.pair.call_both(lambda store: store.events.next_batch_at())
        await self.pair.call_both(lambda store: store.events.close_batches(self.now, limit=1))


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StorePair]:
    memory = MemoryStore(lambda: LATER)
    if request.param == "sqlite":
        sql = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=lambda: LATER)
        yield StorePair(memory, sql)
        await sql.close()
        return
    async with postgres(request.param).database() as url:
        sql = await open_postgres(url)
        yield StorePair(memory, sql)
        await sql.close()


@pytest.mark.parametrize(
    ("pair", "seed"),
    [
        (database, seed) if seed < quick else thorough(database, seed)
        for database, quick, seeds in (("sqlite", 8, 20), (18, 3, 5))
        for seed in range(seeds)
    ],
    indirect=["pair"],
)
async def test_both_stores_bring_graphs_to_the_same_end(pair: StorePair, seed: int) -> None:
    operators = GraphOperators(pair, Random(seed))
    await operators.register()

    for _ in range(150):
        await operators.act()

    schedules = operators.schedules
    expected, found = await full_snapshot(pair.memory, schedules), await full_snapshot(pair.sql, schedules)
    assert found == expected
    assert any(run.over for run in expected[0])
