"""A gate that fails on the output of a remote task holds up no other report, and loses none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.core.model import Run, RunStatus, Task
from gnomon.core.runs.admission import AdmissionRequest, GateDecision
from gnomon.core.runs.states import TaskState
from gnomon.errors import StoreUnavailable
from gnomon.testing.clock import VirtualClock
from support.fleet_harness import FleetHarness
from support.gates import ALLOWED, BROKEN, RELEASE_NONSENSE, FaultyGate, HangingForMany, SlowGate, hang, many_hung
from support.task_steps import workflow

LIMIT_MS = 5_000
CASES = {**BROKEN, **RELEASE_NONSENSE}


class FaultyOutputs(FaultyGate):
    """Faulty on the output side alone."""

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        del request
        return ALLOWED


async def running(fleet: FleetHarness, *names: str) -> list[Run]:
    """Runs of these workflows that a worker has begun."""
    runs = []
    for name in names:
        job = await fleet.job(workflow(name), name=name, workflow_id=name)
        runs.append(await fleet.run(job, name))
    await fleet.run_cycle()
    await fleet.run_cycle()
    assert len(fleet.remote_runner.started) == len(names)
    return runs


async def end_all(fleet: FleetHarness) -> None:
    """All bodies have ended, and the worker has reported it."""
    fleet.remote_runner.end_all(output=b'{"n":1}')
    await fleet.remote_worker.step()


async def task_of(fleet: FleetHarness, run: Run) -> Task:
    [task] = await fleet.store.history.tasks([run])
    return task


async def opened(gate: FaultyGate | SlowGate) -> FleetHarness:
    fleet = FleetHarness(gate=gate)
    await fleet.open()
    return fleet


@pytest.mark.parametrize(("fault", "said"), CASES.values(), ids=CASES.keys())
async def test_a_gate_without_an_answer_holds_up_no_other_report(fault: Callable[[], Any], said: str) -> None:
    fleet = await opened(FaultyOutputs(fault))
    bad, good = await running(fleet, "bad", "good")
    await end_all(fleet)
    await fleet.collect_reports()
    assert (await fleet.now(good)).status is RunStatus.COMPLETED

    fleet.clock.advance(LIMIT_MS)
    await fleet.collect_reports()

    task = await task_of(fleet, bad)
    assert task.state is TaskState.SUCCEEDED
    assert await fleet.store.executions.payload(task.task_id, "output") == b'{"n":1}'
    [line] = await fleet.store.executions.log_lines(task.task_id)
    assert said in line.text
    assert not fleet.bus.reports.messages
    assert not fleet.bus.dead


async def test_a_report_is_kept_on_the_bus_until_the_gate_has_decided_about_all_of_it() -> None:
    gate = SlowGate("slow")
    fleet = await opened(gate)
    gate.opened.set()
    slow, quick = await running(fleet, "slow", "quick")
    gate.opened.clear()
    await end_all(fleet)
    await fleet.collect_reports()
    assert (await fleet.now(quick)).status is RunStatus.COMPLETED
    assert (await fleet.now(slow)).status is RunStatus.RUNNING
    assert len(fleet.bus.reports.messages) == 1

    fleet.consumer.wake.clear()
    gate.quarantine = "a password"
    gate.opened.set()
    await asyncio.sleep(0.01)
    assert fleet.consumer.wake.is_set()
    await fleet.consumer.write_released()

    assert (await task_of(fleet, slow)).state is TaskState.OUTPUT_QUARANTINED
    assert not fleet.bus.reports.messages


async def test_an_ending_is_not_lost_with_the_server_that_asked_the_gate() -> None:
    gate = SlowGate("slow")
    fleet = await opened(gate)
    gate.opened.set()
    [slow] = await running(fleet, "slow")
    gate.opened.clear()
    await end_all(fleet)
    await fleet.collect_reports()
    fleet.consumer.close()
    await asyncio.sleep(0)
    assert gate.calls == 0

    gate.opened.set()
    _, fleet.consumer = fleet.new_server()
    for _ in range(10):
        fleet.clock.advance(LIMIT_MS)
        await fleet.collect_reports()

    assert (await fleet.now(slow)).status is RunStatus.COMPLETED
    assert not fleet.bus.reports.messages


async def test_endings_that_cannot_be_written_are_tried_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SlowGate("slow")
    fleet = await opened(gate)
    gate.opened.set()
    await running(fleet, "slow")
    await end_all(fleet)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(fleet.store.attempts, "report", away)
    await fleet.consumer.step()
    waits = []
    for _ in range(4):
        waits.append(await fleet.consumer.write_released())
        # There is nothing more to collect, so that this needs no store.
        await fleet.consumer.step()

    assert waits == [0.05, 0.1, 0.2, 0.4]


async def test_an_ending_that_could_not_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SlowGate("slow")
    fleet = await opened(gate)
    gate.opened.set()
    [slow] = await running(fleet, "slow")
    await end_all(fleet)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(fleet.store.attempts, "report", away)
        await fleet.collect_reports()
        assert await fleet.consumer.write_released() > 0
    assert len(fleet.bus.reports.messages) == 1
    await fleet.consumer.write_released()

    assert (await fleet.now(slow)).status is RunStatus.COMPLETED
    assert not fleet.bus.reports.messages


async def test_an_ending_that_no_store_can_keep_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SlowGate("slow")
    fleet = await opened(gate)
    gate.opened.set()
    one, other = await running(fleet, "slow1", "slow2")
    gate.opened.clear()
    held = {each.workflow.workflow_id: ref for ref, each in fleet.remote_runner.started.items()}
    for name in ("slow1", "slow2"):
        fleet.remote_runner.end(held[name], output=b"1")
        await fleet.remote_worker.step()
    await fleet.collect_reports()
    report = fleet.consumer._report  # noqa: SLF001 - nothing that a store does comes that far

    async def picky(endings: Any, known: Any) -> None:  # noqa: ANN401
        if any(each.run.run_id == one.run_id for each in endings):
            raise RuntimeError("not that one")
        await report(endings, known)

    with monkeypatch.context() as broken:
        broken.setattr(fleet.consumer, "_report", picky)
        gate.opened.set()
        await fleet.consumer.write_released()
    assert (await fleet.now(other)).status is RunStatus.COMPLETED
    assert len(fleet.bus.reports.messages) == 1
    assert "reports_refused" in fleet.events.names()

    for _ in range(3):
        fleet.clock.advance(LIMIT_MS)
        await fleet.collect_reports()
    assert (await fleet.now(one)).status is RunStatus.COMPLETED
    assert not fleet.bus.reports.messages


async def test_an_attempt_is_not_lost_while_the_gate_hangs_for_its_output() -> None:
    fleet = FleetHarness(gate=FaultyOutputs(hang), flags={"worker.lease": "3s", "execution.gate_timeout": "1m"})
    await fleet.open()
    [bad] = await running(fleet, "bad")
    await end_all(fleet)
    for _ in range(20):
        await fleet.collect_reports()
        await fleet.reconciler.step()
        fleet.clock.advance(100)

    assert (await task_of(fleet, bad)).state is TaskState.SUCCEEDED
    assert [one.number for one in await fleet.attempts_of(bad)] == [1]


@many_hung
async def test_an_output_of_a_healthy_workflow_is_checked_though_the_gate_hangs_for_others(
    workflows: int, *, cancellable: bool
) -> None:
    clock = VirtualClock(NOON)
    gate = HangingForMany(clock, 0.5, cancellable=cancellable).on("release")
    fleet = FleetHarness(gate=gate, clock=clock, flags={"worker.slots": 2_000, "worker.lease": "3s"})
    await fleet.open()
    for number in range(workflows):
        job = await fleet.job(workflow(f"hung{number}"), name=f"hung{number}", workflow_id=f"hung{number}")
        for one in range(20):
            await fleet.run(job, f"hung{number}_{one}")
    await fleet.run_cycle()
    await fleet.run_cycle()
    await end_all(fleet)
    await fleet.collect_reports()
    job = await fleet.job(workflow("slow"), name="slow", workflow_id="slow")
    # They take six seconds at one call at a time, which is longer than the lease.
    slow = [await fleet.run(job, f"slow{one}") for one in range(12)]
    await fleet.run_cycle()
    await fleet.run_cycle()
    await end_all(fleet)

    for _ in range(200):
        await fleet.collect_reports()
        await fleet.reconciler.step()
        fleet.clock.advance(50)

    assert {(await fleet.now(run)).status for run in slow} == {RunStatus.COMPLETED}
    assert {len(await fleet.attempts_of(run)) for run in slow} == {1}
    unchecked = {facts["run"] for name, facts in fleet.events.seen if name == "output_unchecked"}
    assert unchecked
    assert not unchecked & {run.run_id for run in slow}


async def test_an_attempt_is_not_lost_while_its_output_waits_for_longer_than_its_lease() -> None:
    clock = VirtualClock(NOON)
    gate = HangingForMany(clock, 0.5, cancellable=True).on("release")
    fleet = FleetHarness(gate=gate, clock=clock, flags={"worker.slots": 200, "worker.lease": "3s"})
    await fleet.open()
    job = await fleet.job(workflow("slow"), name="slow", workflow_id="slow")
    # Sixteen at once take six seconds.
    runs = [await fleet.run(job, f"slow{number}") for number in range(192)]
    await fleet.run_cycle()
    await fleet.run_cycle()
    await end_all(fleet)

    for _ in range(140):
        await fleet.collect_reports()
        await fleet.reconciler.step()
        fleet.clock.advance(50)

    assert {(await fleet.now(run)).status for run in runs} == {RunStatus.COMPLETED}
    assert {len(await fleet.attempts_of(run)) for run in runs} == {1}
