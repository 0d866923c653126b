"""A dispatcher and a worker that checks outputs, on a store in memory."""

import asyncio

from gnomon.core.model import Result
from gnomon.core.output_policy.ruling import StoredOutputRuling
from gnomon.core.runs.workflow import Step, Workflow
from support.execution import ExecutionHarness
from support.output_policies import OutputPolicies
from support.task_steps import workflow

#: The second step reads the output of the first one.
TWO_STEPS = Workflow(
    workflow_id="report",
    version=1,
    steps=(
        Step(name="read", function="reports.make"),
        Step(name="send", function="reports.make", depends_on=("read",), input={"got": "${steps.read.output}"}),
    ),
)


class CheckedExecution(ExecutionHarness):
    """A dispatcher and a worker that checks outputs."""

    def __init__(self, **options: object) -> None:
        self.outputs = OutputPolicies(**options)  # type: ignore[arg-type]
        super().__init__(store=self.outputs.store, clock=self.outputs.clock)
        self.worker = self.new_worker(
            "w1", self.runner, output_policy=self.outputs.policy, held_cipher=self.outputs.cipher
        )

    async def ends(
        self, definition: Workflow | None = None, result: Result = Result.SUCCEEDED, **reported: object
    ) -> StoredOutputRuling | None:
        """Run a job whose first step ends like that; return the ruling on its output."""
        definition = definition or workflow()
        self.launched = await self.run(await self.job(definition), first_steps=(definition.steps[0].name,))
        await self.run_until_idle()
        [held] = self.runner.started
        self.runner.end(held, result, **reported)
        for _ in range(20):
            await self.run_until_idle()
            if not self.worker.in_hand or self.runner.started:
                break
            await asyncio.sleep(0.01)
        await self.run_until_idle()
        return await self.store.output_rulings.of_task("default", held[0])

    async def first_ruling(self) -> StoredOutputRuling:
        """The ruling on the output of the first step."""
        [first, *_] = await self.store.history.tasks([self.launched])
        found = await self.store.output_rulings.of_task("default", first.task_id)
        assert found is not None
        return found

    async def task(self) -> str:
        [task, *_] = await self.store.history.tasks([self.launched])
        return task.state


def everything(store: object) -> str:
    """All that the store has, but for what it holds back."""
    tables = dict(vars(store.state))  # type: ignore[attr-defined]
    tables.pop("held_outputs")
    return repr({name: _plain(table) for name, table in tables.items()})


def _plain(table: object) -> object:
    return list(table.values()) if hasattr(table, "values") else table
