"""The reports of a worker wait for no more of those of another than its turns."""

import pytest

from gnomon.core.messages import EndedReport, WorkerReport, encode_worker_report
from gnomon.core.model import Result, RunStatus, TaskId
from gnomon.ports.messaging import InboundMessage
from gnomon.services.remote.report_turns import ReportTurns
from support.fleet_harness import FleetHarness
from support.task_steps import workflow


def message(sender: str, number: int, *, size: int = 10, name: str | None = None) -> InboundMessage:
    said = f"{sender}:{number}" if name is None else name
    return InboundMessage(b"x" * size, 1, number, sender=sender, name=said)


def names(messages: list[InboundMessage]) -> list[str]:
    return [one.name for one in messages]


def test_workers_take_turns_and_the_reports_of_each_keep_their_order() -> None:
    turns = ReportTurns()
    turns.add([*(message("a", number) for number in range(4)), message("b", 0), message("c", 0), message("b", 1)])

    assert names(turns.take(5)) == ["a:0", "b:0", "c:0", "a:1", "b:1"]
    assert names(turns.take(5)) == ["a:2", "a:3"]
    assert len(turns) == 0


def test_the_starts_of_an_enrolled_worker_share_its_turn() -> None:
    turns = ReportTurns()
    turns.add([*(message(f"field_pool.w1.{number}", number) for number in range(5)), message("field_pool.w2.0", 0)])

    assert [one.sender for one in turns.take(2)] == ["field_pool.w1.0", "field_pool.w2.0"]


def test_a_report_that_is_delivered_again_while_it_waits_counts_once() -> None:
    turns = ReportTurns()
    turns.add([message("a", 1), message("a", 1), message("b", 1, name="a:1"), message("a", 2, name="")])
    turns.add([message("a", 1)])

    assert names(turns.take(9)) == ["a:1", "a:1", ""]


def test_excess_reports_go_back_beginning_with_the_last_turns() -> None:
    turns = ReportTurns(100 * 10_000)
    turns.add([message("a", number, size=1808) for number in range(100)])
    assert turns.take_excess() == []
    turns.add([message("b", 0), message("c", 0, size=900_000)])

    excess = names(turns.take_excess())

    assert "b:0" not in excess
    assert excess == [f"a:{number}" for number in range(1, 100)]
    assert names(turns.take(9)) == ["a:0", "b:0", "c:0"]


@pytest.mark.req("H-22")
async def test_a_flood_of_one_worker_delays_the_reports_of_another_by_a_few_steps() -> None:
    fleet = FleetHarness()
    await fleet.open()
    run = await fleet.run(await fleet.job(workflow("report"), name="report", workflow_id="report"))
    await fleet.run_cycle()
    await fleet.run_cycle()
    for number in range(5000):
        forged = EndedReport(task_id=TaskId(f"task_{number}"), fence=1, result=Result.SUCCEEDED)
        body = encode_worker_report(WorkerReport(worker="field_2", ended=(forged,)), message_id=f"{number}", now=0)
        fleet.bus.reports.add(f"field_2:{number}", body, sender="field_2")
    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()

    steps = 0
    while (found := await fleet.store.executions.find_run(run.run_id)) is not None and not found.over:
        await fleet.collect_reports()
        steps += 1

    assert found is not None
    assert found.status is RunStatus.COMPLETED
    # A step writes fifty messages: in the order of their arrival it would have been the hundredth.
    assert steps <= 15
    while fleet.bus.reports.messages:
        fleet.clock.advance(1000)
        await fleet.collect_reports()
        steps += 1
    assert steps <= 200
