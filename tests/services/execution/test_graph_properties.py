"""Random graphs with random outcomes, crashes and lost answers: what is promised holds in every one of them."""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.store import NOON
from gnomon.adapters.sql import open_sqlite
from gnomon.core.model import Result, Run, RunStatus, Task
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import RetryPolicy, Step, When, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.store import Store
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.testing.clock import VirtualClock
from support.effort import EFFORT
from support.execution import ExecutionHarness, FakeRunner
from support.sqlite_files import new_sqlite_file

PARTS = {"tasks", "attempts"}
CHANGES = {"admit", "take", "report", "fan_out", "renew"}


class FlakyStore:
    """A store that fails before or after its commits."""

    def __init__(self, store: Store, rng: random.Random, chance: float) -> None:
        self._store, self.rng, self.chance = store, rng, chance
        self.failures = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        part = getattr(self._store, name)
        return FlakyPart(self, part) if name in PARTS else part


class FlakyPart:
    """A part of it."""

    def __init__(self, store: FlakyStore, part: object) -> None:
        self._flaky, self._part = store, part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the part has
        act: Callable[..., Awaitable[Any]] = getattr(self._part, name)
        if name not in CHANGES:
            return act
        flaky = self._flaky

        async def unsteady(*words: Any, **named: Any) -> Any:  # noqa: ANN401
            if flaky.rng.random() < flaky.chance / 2:
                flaky.failures += 1
                raise StoreUnavailable("away before the commit")
            done = await act(*words, **named)
            if flaky.rng.random() < flaky.chance / 2:
                flaky.failures += 1
                raise StoreUnavailable("away after the commit")
            return done

        return unsteady


def random_graph(rng: random.Random, size: int) -> Workflow:
    steps: list[Step] = []
    for number in range(size):
        needs = rng.sample([step.name for step in steps], min(len(steps), rng.choice((0, 1, 1, 2, 3))))
        shape: dict[str, Any] = {"function": "reports.make"}
        if rng.random() < 0.1:
            shape |= {"foreach": list(range(rng.choice((0, 1, 5)))), "max_parallel": rng.choice((None, 1, 2))}
        elif rng.random() < 0.05:
            shape |= {"function": "", "delay_ms": 1000}
        elif needs and rng.random() < 0.5:
            shape |= {"input": {"from": f"${{steps.{needs[0]}.output}}"}}
        steps.append(
            Step(
                name=f"s{number}",
                depends_on=tuple(needs),
                when=rng.choice((When.ALL_SUCCESS,) * 6 + (When.ALL_DONE, When.ANY_FAILED))
                if needs
                else When.ALL_SUCCESS,
                retry=rng.choice((None, RetryPolicy(max_attempts=3, initial_delay_ms=100, jitter=0))),
                **shape,
            )
        )
    limit = rng.choice((None, None, 1, 3))
    return Workflow(workflow_id="report", version=1, steps=tuple(steps), max_parallel=limit)


class BodyTrace:
    """The observations of the bodies, in order."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int | None, int]] = []
        #: The part of the output of the first step that its successors got.
        self.given: list[tuple[str, object]] = []
        self.succeeded: defaultdict[tuple[str, int | None], int] = defaultdict(int)


class RandomGraphRun:
    """A run of a random graph in a world that breaks."""

    def __init__(
        self,
        seed: object,
        *,
        size: int,
        chance: float,
        slots: int = 50,
        store: Store | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.rng = random.Random(f"graph {seed}")
        self.together = store is not None or self.rng.random() < 0.5
        self.harness = ExecutionHarness(flags={"worker.slots": slots}, store=store, clock=clock)
        self.steady = self.harness.store
        self.unsteady = FlakyStore(self.steady, self.rng, chance)
        self.definition = random_graph(self.rng, size)
        self.witness = BodyTrace()
        self.seen: set[tuple[str, int]] = set()
        self.crashes = 0
        self._employ()

    def _employ(self) -> None:
        """A new process: nothing is remembered of the one before."""
        harness, store = self.harness, self.unsteady
        harness.runner = FakeRunner()
        harness.store = store
        harness.workflow_cache = WorkflowCache(self.steady.jobs)
        harness.dispatcher = harness.new_dispatcher()
        harness.worker = harness.new_worker(f"w{self.crashes}", harness.runner)
        if self.together:
            harness.share_process()

    async def _crash(self) -> None:
        self.crashes += 1
        self._employ()
        await self.harness.reconciler.recover(alive={self.harness.worker.worker})

    async def play(self) -> Run:
        harness = self.harness
        harness.store = self.steady
        run = await harness.run(await harness.job(self.definition), first_steps=self.definition.first_steps)
        harness.store = self.unsteady
        for turn in range(5000):
            found = await self.steady.executions.find_run(run.run_id)
            assert found is not None
            if found.over:
                return found
            await harness.worker.step()
            await harness.dispatcher.step()
            await harness.worker.step()
            self._act()
            if self.rng.random() < 0.02:
                await self._crash()
            harness.clock.advance(self.rng.choice((1, 50, 1100)))
            if turn % 50 == 49:
                # A task that a lost reply left without a worker is found when its lease is over.
                harness.clock.advance(harness.settings.worker.lease_ms)
                await harness.reconciler.step()
        raise AssertionError(f"not over: {await self.steady.history.tasks([run])}")

    def _act(self) -> None:
        """Some of what runs ends somehow."""
        for held, one in list(self.harness.runner.started.items()):
            if held not in self.seen:
                self.seen.add(held)
                self.witness.started.append((one.task.step, one.task.item, one.task.fence))
                self.witness.given += [(one.task.step, one.input["from"])] if "from" in one.input else []
            if self.rng.random() < 0.6:
                result = self.rng.choice((Result.SUCCEEDED,) * 5 + (Result.FAILED, Result.GAVE_UP))
                reported = {"output": b"%d" % one.task.fence} if result is Result.SUCCEEDED else {"error": "no"}
                self.harness.runner.end(held, result, **reported)


def tops(tasks: list[Task]) -> Mapping[str, Task]:
    return {task.step: task for task in tasks if task.parent is None}


def expected_to_run(step: Step, ends: Mapping[str, str]) -> bool:
    """Whether a step had to run, worked out from how those before it ended."""
    before = [ends[name] for name in step.depends_on]
    failed = any(end in ("failed", "behind a failure") for end in before)
    if step.when is When.ALL_DONE:
        return True
    if step.when is When.ANY_FAILED:
        return failed
    return all(end == "succeeded" for end in before)


def how_it_ended(task: Task) -> str:
    if task.state is TaskState.SUCCEEDED:
        return "succeeded"
    if task.skipped:
        return "skipped"
    return "behind a failure" if task.upstream_failed else "failed"


@pytest.mark.req("H-07")
@pytest.mark.guarantee("S13")
@pytest.mark.parametrize("seed", range(30 * EFFORT))
async def test_a_graph_keeps_its_guarantees_under_random_faults(seed: int) -> None:
    rng = random.Random(seed)
    timeline = RandomGraphRun(
        seed, size=rng.choice((2, 5, 12, 30, 200 if seed % 10 == 0 else 8)), chance=rng.choice((0, 0.05, 0.2))
    )
    run = await timeline.play()
    tasks = list(await timeline.steady.history.tasks([run]))
    made, ends = tops(tasks), {}
    starts = defaultdict(list)
    for step_name, item, fence in timeline.witness.started:
        starts[step_name, item].append(fence)

    # The run is over if and only if all its steps are.
    assert {step.name for step in timeline.definition.steps} == set(made)
    assert all(task.state in TERMINAL for task in tasks)
    for step in timeline.definition.steps:
        task = made[step.name]
        ends[step.name] = how_it_ended(task)
    for step in timeline.definition.steps:
        ran = expected_to_run(step, ends)
        assert ran == (ends[step.name] not in ("skipped", "behind a failure")), step
        if not ran:
            assert not any(name == step.name for name, _ in starts), step
    failed = any(end in ("failed", "behind a failure") for end in ends.values())
    assert run.status is (RunStatus.FAILED if failed else RunStatus.COMPLETED)
    # Fences grow with every start of a task.
    assert all(fences == sorted(set(fences)) for fences in starts.values())
    await check_given(timeline, made)


async def check_given(timeline: RandomGraphRun, made: Mapping[str, Task]) -> None:
    """Every step was given what the attempt that counted returned, each time that it started."""
    before = {step.name: step.depends_on[0] for step in timeline.definition.steps if step.depends_on}
    kept = await timeline.steady.executions.payloads([task.task_id for task in made.values()], "output")
    for name, given in timeline.witness.given:
        output = kept.get(made[before[name]].task_id)
        assert given == (None if output is None else msgspec.json.decode(output)), name


@pytest.mark.req("H-07")
@pytest.mark.guarantee("S13")
@pytest.mark.parametrize("seed", range(8 * EFFORT))
async def test_on_a_file_each_step_is_given_what_the_one_before_it_returned(seed: int, tmp_path: Path) -> None:
    """With few slots, so that much of what is handed over has to wait for one."""
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    slots = random.Random(seed).choice((2, 3, 5))
    timeline = RandomGraphRun(f"file {seed}", size=20, chance=0.1, slots=slots, store=store, clock=clock)
    run = await timeline.play()
    made = tops(list(await store.history.tasks([run])))

    assert {step.name for step in timeline.definition.steps} == set(made)
    await check_given(timeline, made)
    await store.close()


@pytest.mark.guarantee("S13")
@pytest.mark.parametrize("seed", range(10 * EFFORT))
async def test_a_step_starts_after_all_it_depends_on_and_succeeds_once(seed: int) -> None:
    timeline = RandomGraphRun(f"order {seed}", size=25, chance=0.1)
    run = await timeline.play()
    ended: dict[str, int] = {}
    began: dict[str, int] = {}
    attempts = await timeline.steady.executions.attempts(
        [task.task_id for task in await timeline.steady.history.tasks([run])]
    )
    tasks = {task.task_id: task for task in await timeline.steady.history.tasks([run])}
    successes: defaultdict[str, int] = defaultdict(int)
    for attempt in attempts:
        task = tasks[attempt.task_id]
        if task.parent is None and attempt.started_at is not None:
            began[task.step] = min(began.get(task.step, attempt.started_at), attempt.started_at)
            ended[task.step] = max(ended.get(task.step, 0), attempt.ended_at or 0)
        successes[attempt.task_id] += attempt.result is Result.SUCCEEDED

    assert max(successes.values(), default=0) <= 1
    for step in timeline.definition.steps:
        for needed in step.depends_on:
            if step.name in began and needed in ended:
                assert began[step.name] >= ended[needed]


async def test_the_stories_are_not_all_quiet() -> None:
    histories = [RandomGraphRun(seed, size=12, chance=0.2) for seed in range(20)]
    for timeline in histories:
        await timeline.play()

    assert sum(timeline.unsteady.failures for timeline in histories) > 20
    assert sum(timeline.crashes for timeline in histories) > 5
    assert sum(len(timeline.witness.given) for timeline in histories) > 20
