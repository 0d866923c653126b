"""The progress of agents that waits for the next report of a worker."""

import asyncio

from gnomon.core.agents.progress import AgentProgress, checked_progress, merged_progress
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import LogLine, TaskId
from gnomon.services.remote.progress_outbox import ProgressOutbox


def progress(requests: int, first: int, *lines: str, task: str = "task_1") -> AgentProgress:
    kept = tuple(LogLine(1, "tool", text) for text in lines)
    return AgentProgress(task_id=TaskId(task), fence=1, spent=AgentSpending(requests=requests), first=first, lines=kept)


async def test_the_newest_progress_of_each_attempt_waits_with_all_lines() -> None:
    wake = asyncio.Event()
    outbox = ProgressOutbox(wake)
    for one in (progress(1, 0, "a", "b began"), progress(2, 1, "b"), progress(1, 0, task="task_2")):
        await outbox.keep(one)
    await asyncio.wait_for(wake.wait(), 30)
    await asyncio.sleep(0)

    taken = outbox.take(besides=[(TaskId("task_2"), 1)], limit=10)

    assert taken == (progress(2, 0, "a", "b"),)
    assert outbox.is_empty


def test_a_gap_between_two_reports_keeps_the_later_one() -> None:
    assert merged_progress(progress(1, 0, "a"), progress(2, 1, "b")) == progress(2, 0, "a", "b")
    assert merged_progress(progress(1, 3), progress(2, 3, "d")) == progress(2, 3, "d")


def test_the_progress_that_another_process_reports_is_bounded() -> None:
    hostile = AgentProgress(
        task_id=TaskId("task_1"),
        fence=1,
        spent=AgentSpending(requests=-5, cost_micros=10**30),
        first=-7,
        lines=tuple(LogLine(10**30, "x" * 999, "y" * 99_999) for _ in range(5_000)),
    )

    checked = checked_progress(hostile)

    assert (checked.spent.requests, checked.first, len(checked.lines)) == (0, 0, 1_000)
    assert checked.spent.cost_micros < 2**53
    assert all((len(one.level), len(one.text)) == (50, 2_000) and one.at < 2**63 for one in checked.lines)
    assert checked_progress(progress(1, 10**9, "x")).lines == ()
