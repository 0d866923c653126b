"""The outcome of an attempt comes from the worker that holds it, in whatever order and company reports arrive."""

from collections.abc import Sequence

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gnomon.core.messages import EndedReport, WorkerReport, encode_worker_report
from gnomon.core.model import Result, RunStatus, Task
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.ports.tasks import AttemptRef
from support.fleet_harness import FleetHarness
from support.gates import SlowGate
from support.task_steps import workflow

FORGED, HONEST = b'"forged"', b'"honest"'


async def running_task(fleet: FleetHarness, name: str = "report") -> Task:
    """A task that `field_1` executes."""
    await fleet.open()
    run = await fleet.run(await fleet.job(workflow(name), name=name, workflow_id=name))
    await fleet.run_cycle()
    if not fleet.remote_runner.started:
        await fleet.run_cycle()
    await fleet.collect_reports()
    [task] = await fleet.store.history.tasks([run])
    return task


def forge(fleet: FleetHarness, task: Task, *, worker: str = "field_2", output: bytes = FORGED, number: int = 1) -> None:
    """Another worker reports that it has executed the task."""
    ended = EndedReport(task_id=task.task_id, fence=task.fence, result=Result.SUCCEEDED, output=Raw(output))
    body = encode_worker_report(WorkerReport(worker=worker, ended=(ended,)), message_id=f"{worker}:{number}", now=0)
    fleet.bus.reports.add(f"{worker}:{number}", body, sender=worker)


async def end_honestly(fleet: FleetHarness) -> None:
    fleet.remote_runner.end_all(output=HONEST)
    await fleet.remote_worker.step()


async def assert_ended_honestly(fleet: FleetHarness, task: Task) -> None:
    [attempt] = await fleet.store.executions.attempts([task.task_id])
    run = await fleet.store.executions.find_run(task.run_id)
    assert run is not None
    assert (attempt.worker, attempt.result, run.status) == ("field_1", Result.SUCCEEDED, RunStatus.COMPLETED)
    assert await fleet.store.executions.payload(task.task_id, "output") == HONEST
    assert not fleet.bus.reports.messages


@pytest.mark.guarantee("S9")
async def test_a_forged_outcome_in_the_same_batch_does_not_hide_the_honest_one() -> None:
    fleet = FleetHarness()
    task = await running_task(fleet)
    forge(fleet, task)
    await end_honestly(fleet)
    forge(fleet, task, worker="field_3")
    await fleet.collect_reports()

    await assert_ended_honestly(fleet, task)


@pytest.mark.guarantee("S9")
async def test_a_forged_outcome_is_announced_and_frees_no_slot() -> None:
    fleet = FleetHarness()
    task = await running_task(fleet)
    forge(fleet, task)
    await fleet.collect_reports()

    [facts] = [facts for name, facts in fleet.events.seen if name == "foreign_result"]
    assert (facts["worker"], facts["task"], facts["fence"]) == ("field_2", task.task_id, task.fence)
    assert (task.task_id, task.fence) in fleet.publisher.sent
    await end_honestly(fleet)
    await fleet.collect_reports()
    await assert_ended_honestly(fleet, task)


@pytest.mark.req("H-22")
async def test_a_worker_that_reports_what_it_does_not_hold_cannot_fill_the_log() -> None:
    fleet = FleetHarness()
    task = await running_task(fleet)
    for number in range(20):
        forge(fleet, task, number=number)
        forge(fleet, replace(task, fence=99), number=100 + number)
        await fleet.collect_reports()
    fleet.clock.advance(1000)
    forge(fleet, task, number=20)
    await fleet.collect_reports()

    for name in ("foreign_result", "late_result"):
        assert fleet.events.names().count(name) <= 2, name
    *_, last = [facts for name, facts in fleet.events.seen if name == "foreign_result"]
    assert last["left_out"] == 19


@pytest.mark.guarantee("S9")
async def test_the_gate_is_asked_about_the_output_of_the_holder_only() -> None:
    gate = SlowGate("slow")
    fleet = FleetHarness(gate=gate)
    gate.opened.set()
    task = await running_task(fleet, "slow")
    gate.opened.clear()
    forge(fleet, task)
    await fleet.collect_reports()
    await end_honestly(fleet)
    await fleet.collect_reports()
    forge(fleet, task, worker="field_3")
    await fleet.collect_reports()
    gate.opened.set()
    await fleet.collect_reports()
    await fleet.collect_reports()

    await assert_ended_honestly(fleet, task)


@pytest.mark.guarantee("S9")
async def test_a_forged_outcome_that_cannot_be_stored_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FleetHarness()
    task = await running_task(fleet)
    report = fleet.store.attempts.report

    async def strict(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        if any(one.output == FORGED for one in endings):
            raise ValueError("cannot be stored")
        return await report(endings)

    monkeypatch.setattr(fleet.store.attempts, "report", strict)
    forge(fleet, task)
    await fleet.collect_reports()
    await end_honestly(fleet)
    await fleet.collect_reports()

    await assert_ended_honestly(fleet, task)
