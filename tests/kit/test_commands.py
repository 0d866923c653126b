"""Commands on virtual time: they are never run, and end as a worker would tell it."""

from typing import Any

import pytest

from gnomon.core.model import RunStatus
from gnomon.testing.scheduler import Scheduler

COUNT = "wc -l < orders.csv"
LONE: dict[str, Any] = {"name": "lone", "command": "vacuum"}
REPORT: dict[str, Any] = {
    "name": "report",
    "dag": [
        {"step": "count", "command": COUNT},
        {
            "step": "tell",
            "command": 'echo "$ROWS"',
            "env": {"ROWS": "${steps.count.output.stdout}"},
            "depends_on": ["count"],
        },
    ],
}


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("2027-03-26T00:00")


async def test_a_command_that_nobody_described_prints_nothing_and_succeeds(scheduler: Scheduler) -> None:
    await scheduler.load(REPORT)

    await scheduler.trigger("report")

    [run] = scheduler.runs("report")
    assert (run.status, run.outputs["count"]) == (RunStatus.COMPLETED, {"status": 0, "stdout": ""})


async def test_what_a_command_prints_goes_on_to_the_next_step(scheduler: Scheduler) -> None:
    await scheduler.load(REPORT)
    scheduler.command(COUNT, stdout="42")

    await scheduler.trigger("report")

    assert scheduler.calls("gnomon.shell")[-1].input == {"env": {"ROWS": "42"}}


async def test_a_command_without_a_timeout_has_that_of_commands(scheduler: Scheduler) -> None:
    await scheduler.load(LONE)
    scheduler.command("vacuum", takes="3m")

    await scheduler.trigger("lone")
    await scheduler.run_for("10m")

    [run] = scheduler.runs("lone")
    assert (run.status, run.error) == (RunStatus.FAILED, "took longer than 120 s")


async def test_a_command_fails_by_its_status_and_then_succeeds(scheduler: Scheduler) -> None:
    await scheduler.load(LONE)
    scheduler.command("vacuum", status=[2])

    await scheduler.trigger("lone")
    await scheduler.trigger("lone")

    assert [(run.status, run.error) for run in scheduler.runs("lone")] == [
        (RunStatus.FAILED, "exit status 2"),
        (RunStatus.COMPLETED, None),
    ]


async def test_a_command_is_not_another_command(scheduler: Scheduler) -> None:
    await scheduler.load([LONE, {"name": "other", "command": "analyze"}])
    scheduler.command("vacuum", status=1)

    await scheduler.trigger("lone")
    await scheduler.trigger("other")

    assert [scheduler.runs(name)[0].status for name in ("lone", "other")] == [RunStatus.FAILED, RunStatus.COMPLETED]
