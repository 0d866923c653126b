"""A node whose policy kernel is another process: it is killed, frozen and replaced, and only its own tasks wait."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.model import Run, RunStatus
from gnomon.core.runs.states import TaskState
from support.effort import thorough
from support.gnomon_processes import policy_server
from support.rulings import rulings_of
from support.running_node import RunningNode, job, printed, running_node

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("R-12", "R-13", "R-14")]

ALLOWS = "rules: [{id: reports, match: {topics: ['reports.*']}, decision: allow}]"
#: Short times, so that a test sees several of them; the breaker needs three failures.
QUICK: dict[str, Any] = {
    "policy.kernel_timeout": "500ms",
    "policy.kernel_retry": "300ms",
    "policy.kernel_open": "500ms",
}


def policy_file(tmp_path: Path, text: str = ALLOWS) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return file


def kernel_at(url: str) -> dict[str, Any]:
    return {"policy.kernel": url}


async def triggered(node: RunningNode, name: str, count: int = 1) -> None:
    for _ in range(count):
        await node.operations.launcher.trigger(name, actor="ada")


async def rulers(node: RunningNode, run: Run) -> list[tuple[str, str, str]]:
    found = await rulings_of(node.operations.store, run.run_id)
    return [(one.decision.value, one.rule, one.ruled_by.partition(":")[0]) for one in found]


@pytest.mark.parametrize("transport", ["grpc", thorough("http")])
async def test_tasks_wait_for_a_killed_kernel_and_run_once_another_one_is_there(tmp_path: Path, transport: str) -> None:
    file = policy_file(tmp_path)
    with policy_server(file, transport) as (kernel, port):
        async with running_node(tmp_path, **QUICK, **kernel_at(f"{transport}://127.0.0.1:{port}")) as node:
            await node.apply(job("report"))
            await triggered(node, "report")
            [first] = await node.until("report", RunStatus.COMPLETED)
            assert await rulers(node, first) == [("allow", "reports", "kernel")]

            kernel.kill()
            await triggered(node, "report", 5)
            [waiting, *_] = await node.until("report", RunStatus.PENDING, 5)
            note = await node.note_of(waiting)
            assert "policy kernel" in note
            why = await asyncio.to_thread(printed, tmp_path, "why", "report")
            assert "It waits at the gate: the policy kernel" in " ".join(why.split()), why
            breakers = await asyncio.to_thread(printed, tmp_path, "breakers", "list")
            assert "policy:kernel" in breakers
            await asyncio.to_thread(printed, tmp_path, "breakers", "reset", "policy:kernel")

            with policy_server(file, transport, port):
                runs = await node.until("report", RunStatus.COMPLETED, 6)
                assert [await rulers(node, run) for run in runs] == [[("allow", "reports", "kernel")]] * 6
                tasks = await node.operations.store.history.tasks(runs)
                assert [(one.state, one.fence) for one in tasks] == [(TaskState.SUCCEEDED, 1)] * 6
                why = await asyncio.to_thread(printed, tmp_path, "why", "report")
                assert re.search(r"Rule reports of policy \w{12} of the kernel allowed it", " ".join(why.split())), why


async def test_a_frozen_kernel_holds_up_no_tick_no_ending_and_no_stop(tmp_path: Path) -> None:
    with policy_server(policy_file(tmp_path), "grpc") as (kernel, port):
        async with running_node(tmp_path, **QUICK, **kernel_at(f"grpc://127.0.0.1:{port}")) as node:
            await node.apply(job("report", schedule="* * * * * *"))
            await node.until("report", RunStatus.COMPLETED, 2)
            kernel.signal(signal.SIGSTOP)
            try:
                waiting = await node.until("report", RunStatus.PENDING, 4)
                # Decided in their time: the limit is far above a second, because the machine may be loaded.
                assert max((one.fire_at or 0) - one.planned_at for one in waiting) < 10_000
                assert "has not answered within 0.5 s" in " ".join(
                    str(facts["reason"]) for name, facts in node.events.seen if name == "kernel_unavailable"
                )
                kernel.signal(signal.SIGCONT)
                await node.until("report", RunStatus.COMPLETED, 6)
                kernel.signal(signal.SIGSTOP)
                assert await node.stop() < 20
            finally:
                kernel.signal(signal.SIGCONT)
            assert kernel.terminate() == 0


async def test_with_the_fail_mode_open_tasks_run_without_the_kernel_and_are_counted(tmp_path: Path) -> None:
    flags = {**QUICK, **kernel_at("http://127.0.0.1:9"), "policy.fail_mode": "open"}
    async with running_node(tmp_path, **flags) as node:
        await node.apply(job("report"))
        await triggered(node, "report", 4)
        runs = await node.until("report", RunStatus.COMPLETED, 4)

        assert [await rulers(node, run) for run in runs] == [[("allow", "fail_open", "fail_open")]] * 4
        shown = (await node.node.observability.metrics()).body.decode()
        assert 'hanzo_scheduler_input_fail_open_total{topic="reports.make"} 4' in shown
        assert 'hanzo_scheduler_safety_unavailable_total{topic="reports.make"} 4' in shown
        why = await asyncio.to_thread(printed, tmp_path, "why", "report")
        assert "The fail mode of the policy allowed it" in " ".join(why.split()), why


async def test_a_denial_of_the_kernel_is_a_dead_letter_and_counted(tmp_path: Path) -> None:
    with policy_server(policy_file(tmp_path, "default_decision: deny"), "http") as (_, port):
        async with running_node(tmp_path, **kernel_at(f"http://127.0.0.1:{port}")) as node:
            await node.apply(job("report"))
            await triggered(node, "report")
            [run] = await node.until("report", RunStatus.FAILED)

            assert await rulers(node, run) == [("deny", "default", "kernel")]
            [letter] = await node.operations.store.dead_letters.page("default")
            assert letter.reason == "safety_denied"
            shown = (await node.node.observability.metrics()).body.decode()
            assert 'hanzo_scheduler_safety_denied_total{topic="reports.make"} 1' in shown
            assert 'hanzo_scheduler_commands_denied_total{rule="gate"}' not in shown


async def test_a_changed_file_is_in_force_and_one_with_a_mistake_is_not(tmp_path: Path) -> None:
    file = policy_file(tmp_path)
    with policy_server(file, "http") as (kernel, port):
        async with running_node(tmp_path, **kernel_at(f"http://127.0.0.1:{port}")) as node:
            await node.apply(job("report"))
            file.write_text("rules: [")
            await asyncio.to_thread(kernel.line_with, "the last good file stays in force")
            await triggered(node, "report")
            await node.until("report", RunStatus.COMPLETED)
            file.write_text("default_decision: deny")
            await asyncio.to_thread(kernel.line_with, "its rules are in force")
            await triggered(node, "report")
            await node.until("report", RunStatus.FAILED)
