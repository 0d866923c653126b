"""Lines of attempts that go on lose what the policy of outputs forbids, before they are kept."""

import pytest

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import LogLine, TaskId
from gnomon.core.runs.progress import AttemptProgress
from gnomon.ports.runs import LogQuery
from gnomon.services.execution.kept_progress import keep_progress
from gnomon.services.execution.output_check import StoredOutputPolicy
from support.checked_execution import CheckedExecution, everything
from support.output_policies import HOLD_ALL, KEY
from support.task_steps import workflow

pytestmark = pytest.mark.req("R-05")
PRIVATE_KEY = ("-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG", "-----END PRIVATE KEY-----")


class GoingOn:
    """An attempt that goes on, and the policy of outputs."""

    def __init__(self, execution: CheckedExecution, held: tuple[str, int]) -> None:
        self.execution, self.held = execution, held

    @property
    def policy(self) -> StoredOutputPolicy:
        return self.execution.outputs.policy

    async def keep(self, *texts: str, first: int = 0, known: int = 0, spent: AgentSpending | None = None) -> bool:
        """Keep these lines; whether the policy was known."""
        lines = tuple(LogLine(number, "info", text) for number, text in enumerate(texts, first))
        task_id, fence = self.held
        progress = AttemptProgress(
            task_id=TaskId(task_id), fence=fence, spent=spent, first=first, known=known, lines=lines
        )
        return await keep_progress(self.execution.store.attempts, [progress], self.policy, now=1)

    async def texts(self) -> list[str]:
        found = await self.execution.store.run_tasks.log(LogQuery(run_id=self.execution.launched.run_id))
        return [one.line.text for one in found]


async def going_on(execution: CheckedExecution) -> GoingOn:
    definition = workflow()
    execution.launched = await execution.run(await execution.job(definition), first_steps=(definition.steps[0].name,))
    await execution.run_until_idle()
    [held] = execution.runner.started
    return GoingOn(execution, held)


async def test_a_secret_in_a_line_is_not_kept() -> None:
    execution = CheckedExecution()
    await execution.outputs.apply(*HOLD_ALL)
    running = await going_on(execution)

    assert await running.keep("begin", f"key={KEY}")

    assert await running.texts() == ["begin", "key=[REDACTED]"]
    assert KEY not in everything(execution.store)


async def test_a_secret_that_begins_in_one_report_and_ends_in_the_next_is_redacted_in_both() -> None:
    execution = CheckedExecution()
    await execution.outputs.apply(*HOLD_ALL)
    running = await going_on(execution)

    assert await running.keep("begin", *PRIVATE_KEY[:2])
    assert await running.keep("begin", *PRIVATE_KEY, "end", known=3)

    assert await running.texts() == ["begin", *["[REDACTED]"] * 3, "end"]


async def test_while_nobody_knows_the_policy_usage_is_kept_and_no_line() -> None:
    execution = CheckedExecution()
    running = await going_on(execution)

    assert not await running.keep("unchecked", spent=AgentSpending(requests=1, cost_micros=7))

    assert await running.texts() == []
    assert await execution.store.agent_usages.cost_since("default", 0) == 7
