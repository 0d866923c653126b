"""The progress of attempts that waits for the next report of a worker."""

import asyncio

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import LogLine, TaskId
from gnomon.core.runs.progress import AttemptProgress, checked_progress
from gnomon.services.remote.progress_outbox import ProgressOutbox


def progress(*lines: str, task: str = "task_1", first: int = 0) -> AttemptProgress:
    kept = tuple(LogLine(1, "tool", text) for text in lines)
    return AttemptProgress(task_id=TaskId(task), fence=1, spent=AgentSpending(requests=1), first=first, lines=kept)


async def test_a_caller_waits_until_its_progress_is_taken() -> None:
    wake = asyncio.Event()
    outbox = ProgressOutbox(wake)
    keeping = asyncio.create_task(outbox.keep([progress("a"), progress("b", task="task_2"), progress(task="task_3")]))
    await asyncio.wait_for(wake.wait(), 30)

    assert outbox.take(besides=[(TaskId("task_2"), 1)], limit=1) == (progress("a"),)
    await asyncio.sleep(0)
    assert not keeping.done()
    assert outbox.take(besides=[], limit=1) == (progress(task="task_3"),)

    await asyncio.wait_for(keeping, 30)
    assert outbox.is_empty


async def test_a_caller_that_has_gone_is_no_obstacle() -> None:
    wake = asyncio.Event()
    outbox = ProgressOutbox(wake)
    keeping = asyncio.create_task(outbox.keep([progress("a")]))
    await asyncio.wait_for(wake.wait(), 30)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)

    assert outbox.take(besides=[], limit=9) == (progress("a"),)


def test_the_progress_that_another_process_reports_is_bounded() -> None:
    hostile = AttemptProgress(
        task_id=TaskId("task_1"),
        fence=1,
        spent=AgentSpending(requests=-5, cost_micros=10**30),
        first=-7,
        known=10**9,
        lines=tuple(LogLine(10**30, "x" * 999, "y" * 99_999) for _ in range(5_000)),
    )

    checked = checked_progress(hostile)

    assert checked.spent is not None
    assert (checked.spent.requests, checked.first, checked.known, len(checked.lines)) == (0, 0, 1_200, 1_200)
    assert checked.spent.cost_micros < 2**53
    assert all((len(one.level), len(one.text)) == (50, 2_000) and one.at < 2**63 for one in checked.lines)
    assert checked_progress(progress("x", first=10**9)).lines == ()
