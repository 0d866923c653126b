"""Runs of graphs on stores of every kind, whose steps do what a test says."""

from collections.abc import Mapping
from typing import Any

from gnomon.core.model import Result, Run, RunStatus
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.store import Store
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness


class HarnessFactory:
    """A harness to be had on a store of any kind."""

    def __init__(self, store: Store, clock: VirtualClock, *, together: bool = False) -> None:
        self._store, self._clock, self._together = store, clock, together

    def harness(self, **settings: Any) -> ExecutionHarness:  # noqa: ANN401
        harness = ExecutionHarness(store=self._store, clock=self._clock, **settings)
        if self._together:
            harness.share_process()
        return harness


def step(name: str, *needs: str, **said: Any) -> Step:  # noqa: ANN401 - any field of a step
    return Step(name=name, function=said.pop("function", "reports.make"), depends_on=needs, **said)


def graph(*steps: Step, **said: Any) -> Workflow:  # noqa: ANN401
    return Workflow(workflow_id="report", version=1, steps=steps, **said)


class ScriptedGraphRun:
    """A run of a graph, whose steps do what a test says."""

    def __init__(self, harness: ExecutionHarness, run: Run) -> None:
        self.harness, self.run = harness, run

    async def states(self) -> dict[str, str]:
        tasks = await self.harness.store.history.tasks([self.run])
        names = {t.task_id: t.step if t.item is None else f"{t.step}[{t.item}]" for t in tasks}
        return {names[t.task_id]: t.state.value for t in tasks}

    def running(self) -> list[str]:
        tasks = [one.task for one in self.harness.runner.started.values()]
        return sorted(t.step if t.item is None else f"{t.step}[{t.item}]" for t in tasks)

    def given(self, name: str) -> Mapping[str, Any]:
        [found] = [one.input for one in self.harness.runner.started.values() if one.task.step == name]
        return found

    async def end(self, name: str, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        for held, one in list(self.harness.runner.started.items()):
            label = one.task.step if one.task.item is None else f"{one.task.step}[{one.task.item}]"
            if label == name:
                self.harness.runner.end(held, result, **reported)
                break
        else:
            raise AssertionError(f"{name} is not running, but {self.running()}")
        await self.harness.run_until_idle()

    async def status(self) -> RunStatus:
        return (await self.harness.now(self.run)).status


async def acted(
    backend: HarnessFactory,
    *steps: Step,
    flags: Mapping[str, object] | None = None,
    **said: Any,  # noqa: ANN401
) -> ScriptedGraphRun:
    harness = backend.harness(flags=flags)
    definition = graph(*steps, **said)
    job = await harness.job(definition)
    # As the book of jobs registers it: with the steps that wait for no other.
    run = await harness.run(job, first_steps=definition.first_steps)
    await harness.run_until_idle()
    return ScriptedGraphRun(harness, run)
