"""A backlog of one tenant delays another by one task and not by its length, wherever tasks wait for a slot."""

import threading
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from gnomon.config.sections import ShellSettings
from gnomon.core.model import Schedule
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.registry import Functions
from gnomon.runners.thread_executor import DaemonThreadPool
from runners.runner_harness import assignment, open_runner, wait_until
from support.execution import ExecutionHarness
from support.fleet_harness import FleetHarness
from support.task_steps import workflow


def of_tenant(assigned: Assignment, tenant: str) -> Assignment:
    return replace(assigned, run=replace(assigned.run, tenant=tenant), task=replace(assigned.task, tenant=tenant))


def command(text: str, tenant: str) -> Assignment:
    return of_tenant(assignment(SHELL, command=text), tenant)


async def test_commands_of_one_tenant_that_wait_for_a_process_do_not_delay_another(tmp_path: Path) -> None:
    order, go = tmp_path / "order", tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.01; done; echo {{}} >> {order}"
    async with open_runner(
        Functions(), shell=ShellSettings(workspace=str(tmp_path), tenants=("a", "b")), max_concurrent=2
    ) as harness:
        backlog = [command(wait.format("a"), "a") for _ in range(12)]
        harness.runner.start(backlog)
        harness.runner.start([ours := command(wait.format("b"), "b")])
        await wait_until(lambda: harness.runner.occupied == 13)
        go.touch()
        await harness.outcome(ours)
        before = order.read_text().split().index("b")
        for each in backlog:
            await harness.outcome(each)

    # Two run already; the third process that is started is the other tenant's, whichever of them ends first.
    assert before <= 3


def test_functions_of_one_tenant_that_wait_for_a_thread_do_not_delay_another() -> None:
    order, go, done = list[str](), threading.Event(), threading.Semaphore(0)
    threads = DaemonThreadPool(1)

    def note(tenant: str) -> None:
        go.wait(20)
        order.append(tenant)
        done.release()

    tenants = [*("a" * 10), "b", "c"]
    for tenant in tenants:
        threads.submit(tenant, partial(note, tenant))
    go.set()
    for _ in tenants:
        assert done.acquire(timeout=20)
    threads.close()

    assert order[:3] == ["a", "b", "c"]


async def job_of(harness: ExecutionHarness, tenant: str) -> Schedule:
    return await harness.job(replace(workflow(), tenant=tenant), tenant=tenant)


def started(harness: ExecutionHarness) -> str:
    return "".join(sorted(one.run.tenant for one in harness.runner.started.values()))


async def test_a_worker_gives_its_free_slots_to_tenants_in_turns() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 3})
    of_a, of_b = await job_of(harness, "a"), await job_of(harness, "b")
    for number in range(9):
        await harness.run(of_a, f"a{number}")
    await harness.run_until_idle()
    for number in range(9):
        await harness.run(of_b, f"b{number}")
    await harness.run_until_idle()
    assert started(harness) == "aaa"

    seen = []
    for _ in range(6):
        oldest = next(iter(harness.runner.started))
        harness.runner.end(oldest)
        await harness.run_until_idle()
        seen.append(started(harness))

    assert seen[0] == "aab"
    assert set(seen) == {"aab", "abb"}


async def test_a_server_sends_tasks_of_tenants_to_remote_workers_in_turns() -> None:
    fleet = FleetHarness(flags={"worker.slots": 4})
    await fleet.open()
    of_a, of_b = await job_of(fleet, "a"), await job_of(fleet, "b")
    for number in range(9):
        await fleet.run(of_a, f"a{number}")
    await fleet.send()
    await fleet.get()
    for number in range(9):
        await fleet.run(of_b, f"b{number}")
    while not await fleet.dispatcher.step():
        pass

    for held in list(fleet.remote_runner.started)[:2]:
        fleet.remote_runner.end(held)
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    await fleet.publisher.step()
    await fleet.get()

    assert sorted(one.run.tenant for one in fleet.remote_runner.started.values()) == ["a", "a", "b", "b"]
