"""Commands on virtual time: they are never run, and end as a worker would tell it."""

from typing import Any

import pytest

from gnomon.core.model import RunStatus
from gnomon.errors import FieldError
from gnomon.testing.scheduler import VirtualScheduler

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
def scheduler() -> VirtualScheduler:
    return VirtualScheduler("2027-03-26T00:00")


async def test_a_command_that_nobody_described_prints_nothing_and_succeeds(scheduler: VirtualScheduler) -> None:
    await scheduler.load(REPORT)

    await scheduler.trigger("report")

    [run] = scheduler.runs("report")
    assert (run.status, run.outputs["count"]) == (RunStatus.COMPLETED, {"status": 0, "stdout": "", "stderr": ""})


async def test_the_output_of_a_command_is_given_to_the_next_step(scheduler: VirtualScheduler) -> None:
    await scheduler.load(REPORT)
    scheduler.command(COUNT, stdout="42")

    await scheduler.trigger("report")

    assert scheduler.calls("gnomon.shell")[-1].input == {"env": {"ROWS": "42"}}


async def test_a_command_without_a_timeout_has_that_of_commands(scheduler: VirtualScheduler) -> None:
    await scheduler.load(LONE)
    scheduler.command("vacuum", takes="3m")

    await scheduler.trigger("lone")
    await scheduler.run_for("10m")

    [run] = scheduler.runs("lone")
    assert (run.status, run.error) == (RunStatus.FAILED, "took longer than 120 s")


async def test_a_command_fails_by_its_status_and_then_succeeds(scheduler: VirtualScheduler) -> None:
    await scheduler.load(LONE)
    scheduler.command("vacuum", status=[2])

    await scheduler.trigger("lone")
    await scheduler.trigger("lone")

    assert [(run.status, run.error) for run in scheduler.runs("lone")] == [
        (RunStatus.FAILED, "exit status 2"),
        (RunStatus.COMPLETED, None),
    ]


async def test_a_command_is_not_another_command(scheduler: VirtualScheduler) -> None:
    await scheduler.load([LONE, {"name": "other", "command": "analyze"}])
    scheduler.command("vacuum", status=1)

    await scheduler.trigger("lone")
    await scheduler.trigger("other")

    assert [scheduler.runs(name)[0].status for name in ("lone", "other")] == [RunStatus.FAILED, RunStatus.COMPLETED]


@pytest.mark.parametrize("status", [-1, 256, [0, 300], "fails"])
def test_no_command_exits_with_such_a_status(scheduler: VirtualScheduler, status: Any) -> None:  # noqa: ANN401 - nonsense
    with pytest.raises(FieldError, match=r"status: .* must be a number from 0 to 255"):
        scheduler.command("vacuum", status=status)


async def test_an_invalid_instant_is_refused(scheduler: VirtualScheduler) -> None:
    nonsense: Any = 5

    with pytest.raises(FieldError, match="when: 5 is not an instant"):
        await scheduler.run_until(nonsense)


async def test_a_call_is_scripted_under_the_name_of_its_function(scheduler: VirtualScheduler) -> None:
    call = {"url": "https://api.example/${input.name}", "json": {"n": 1}}
    await scheduler.load({"name": "call", "http": call, "input": {"name": "a b"}})
    scheduler.function("gnomon.http", returns={"status": 200, "json": {"id": 7}})

    await scheduler.trigger("call")

    assert scheduler.runs("call")[0].output["json"] == {"id": 7}
    assert scheduler.calls("gnomon.http")[0].input["url"] == "https://api.example/a%20b"
