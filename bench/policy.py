"""The cost of the policy of tasks: one ruling, the throughput under a policy, and a replay of the history."""

import argparse
import asyncio
import gc
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, process_time_ns
from typing import Any, NamedTuple

import msgspec

from cluster_setup import cluster, launch_runs, register, until_over
from gnomon.adapters.policy_file import parse_policy
from gnomon.app.node import Node
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run, RunId, RunSource, RunStatus, Task, TaskId
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.approvals import ApprovalFilter
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.operations.policy import PolicyService
from gnomon.services.operations.presenters.approvals import approval_summary
from gnomon.testing.clock import VirtualClock
from node_setup import NullEvents, job_service_of, node_on, quantiles
from report import table, write_section
from resource_usage import processor_seconds

NOW = 1_772_452_800_000
ROUNDS = 15
#: How much the rates of two equal series may differ.
_AGREED = 0.02
WORKFLOW = Workflow(workflow_id="note", version=1, steps=(Step(name="main", function="note"),))
#: The last rule of each policy, which allows the task; the rules before it are about other topics.
LAST_RULES = {
    "alone": "{id: last, match: {topics: ['no*']}, decision: allow}",
    "and the source": "{id: last, match: {topics: ['no*'], sources: [cron, api]}, decision: allow}",
    "and the input": "{id: last, match: {topics: ['no*']}, when: input.amount > 3, decision: allow}",
}


def policy_text(rules: int, last: str, *, condition: str = "") -> str:
    """A policy of so many rules, of which only the last one matches."""
    others = "\n".join(
        f"- {{id: rule-{number}, match: {{topics: ['team-{number}.*'], capabilities: [pay], risk_tags: [prod]}}, "
        f"{condition}decision: deny}}"
        for number in range(rules - 1)
    )
    return f"rules:\n{others}\n- {last}\n"


def compiled(body: str) -> CompiledPolicy:
    """The policy in the text, ready to rule."""
    return CompiledPolicy(parse_policy(body), 1, throttle_ms=5000)


class _Versions:
    """A store with one version."""

    def __init__(self, body: str) -> None:
        self._version = PolicyVersion(version=1, digest="", body=body, author="bench", created_at=0)

    async def newest_number(self) -> int:
        return 1

    async def newest(self) -> PolicyVersion:
        return self._version


async def gate_by(body: str) -> PolicyGate:
    """The gate that rules by this policy."""
    stored = StoredPolicy(
        _Versions(body),  # type: ignore[arg-type]  # the two methods that it calls
        NullEvents(),
        compile_version=lambda version: compiled(version.body),
        refresh_seconds=1,
    )
    await stored.refresh()
    return PolicyGate(stored, VirtualClock(NOW))


def request_of(number: int) -> AdmissionRequest:
    """A task that asks to run."""
    run = Run(
        run_id=RunId(f"run_{number:08}"),
        tenant="default",
        schedule_uid=None,
        schedule_id="note",
        workflow_id="note",
        workflow_version=1,
        user_id="bench",
        source=RunSource.API,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=NOW,
        fire_at=NOW,
        created_at=NOW,
        actor="bench",
    )
    task = Task(
        task_id=TaskId(f"task_{number:08}"),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.PENDING,
        wait_reason=WaitReason.READY,
        available_at=NOW,
        created_at=NOW,
    )
    given = {"amount": 5 + number, "account": "DE89 3704 0044", "text": "rent"}
    return AdmissionRequest(
        waiting=ReadyTask(task=task, run=run), workflow=WORKFLOW, step=WORKFLOW.steps[0], input=given
    )


def microseconds(work: Callable[[AdmissionRequest], object], requests: list[AdmissionRequest]) -> float:
    """The processor time of one call: the best of some rounds, which other programs disturbed least."""
    times = []
    gc.disable()
    for _ in range(ROUNDS):
        began = process_time_ns()
        for one in requests:
            work(one)
        times.append((process_time_ns() - began) / len(requests) / 1000)
    gc.enable()
    return min(times)


async def rulings() -> list[list[str]]:
    """The processor time of one ruling, its digest included."""
    requests, rows = [request_of(number) for number in range(5_000)], []
    for name, last in LAST_RULES.items():
        for count in (10, 1000):
            gate = await gate_by(policy_text(count, last))
            assert all(found is not None and found.rule == "last" for found in map(gate.rule_now, requests[:10]))
            rows.append(
                [
                    f"{count} rules, the last one looks at the step {name}",
                    f"{microseconds(gate.rule_now, requests):.1f} µs",
                ]
            )
    return rows


HISTORY = (
    "UPDATE task SET state = 'SUCCEEDED', policy_rule = '1/last', request_digest = x'00'",
    (
        "INSERT INTO attempt (task_id, number, worker, lease_until, dispatched_at, started_at, ended_at, result)"
        " SELECT task_id, 1, 'w1', 0, created_at + 1, created_at + 2, created_at + 9, 'succeeded' FROM task"
    ),
    "UPDATE run SET status = 'completed', completed_at = created_at + 9",
)


async def replay(count: int) -> list[list[str]]:
    """The processor time of a replay of so many tasks with an input each, in parts as the API answers them."""
    rows = []
    async with node_on("SQLite") as node:
        store = node.store
        said = {"name": "note", "function": "note", "overlap": "allow"}
        await job_service_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        schedule = await store.schedules.find("default", "note")
        assert schedule is not None
        for first in range(0, count, 1000):
            made = [
                new_requested_run(RunId(f"run_{number:08}"), schedule, source=RunSource.API, now=NOW)
                for number in range(first, first + 1000)
            ]
            given = [msgspec.json.encode({"amount": number, "text": "rent"}) for number in range(first, first + 1000)]
            await store.runs.launch(
                [
                    LaunchRequest(run=run, first_steps=("main",), input=one)
                    for run, one in zip(made, given, strict=True)
                ],
                now=NOW,
            )
        with sqlite3.connect(node.settings.database.url.removeprefix("sqlite:///")) as conn:
            for text in HISTORY:
                conn.execute(text)
        for name, last in LAST_RULES.items():
            service = PolicyService(
                store.policies,
                store.rulings,
                store.executions,
                store.jobs,
                store.schedules,
                node.clock,
                shadows=store.policy_shadows,
                budget_windows=store.budget_windows,
                parse=parse_policy,
            )
            began, after, tasks = process_time(), "", 0
            while True:
                part = await service.replay(policy_text(10, last), since=0, after=after, limit=5000)
                tasks += part.tally.tasks
                if part.after is None:
                    break
                after = part.after
            assert tasks == count
            rows.append([f"{count} tasks, rules look at the step {name}", f"{process_time() - began:.1f} s"])
    return rows


# ---- throughput --------------------------------------------------------------------------------------


class Figures(NamedTuple):
    """Of one series of no-op runs."""

    runs_a_second: float
    #: Of all processes but the database.
    processor_us: float


async def on_node(kind: str, count: int, body: str | None, **flags: Any) -> Figures:  # noqa: ANN401 - settings
    """One process that schedules and works."""
    async with node_on(kind, **flags) as node:
        await _prepare(node, body)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        names = await register(node, "note")
        await _series(node, names, 200)
        spent, began = process_time(), perf_counter()
        await _series(node, names, count)
        took, spent = perf_counter() - began, process_time() - spent
        stop.set()
        await running
    return Figures(count / took, spent / count * 1e6)


async def over_nats(count: int, body: str | None) -> Figures:
    """A server on PostgreSQL and a worker that is reached over NATS."""
    async with cluster("nats", slots=200) as up:
        await _prepare(up.node, body)
        names = await register(up.node, "note")
        await _series(up.node, names, 200)
        pids = [up.pids[name] for name in ("server", "worker")]
        spent, began = sum(map(processor_seconds, pids)), perf_counter()
        await _series(up.node, names, count)
        took, spent = perf_counter() - began, sum(map(processor_seconds, pids)) - spent
    return Figures(count / took, spent / count * 1e6)


async def _prepare(node: Node, body: str | None) -> None:
    if body is not None:
        await node.store.policies.add(body, author="bench", now=NOW)
        node.check_soon()
        # The loop of the policy looks each second.
        await asyncio.sleep(1.5)


async def _series(node: Node, names: list[str], count: int) -> None:
    _SERIES.append(count)
    await launch_runs(node, names, count, mark=f"{len(_SERIES)}")
    await until_over(node, names)


_SERIES: list[int] = []
SHAPES: dict[str, Callable[[int, str | None], Awaitable[Figures]]] = {
    "SQLite": lambda count, body: on_node("SQLite", count, body),
    "PostgreSQL 18": lambda count, body: on_node("PostgreSQL 18", count, body),
    "PostgreSQL 18 and NATS": over_nats,
}


async def _ruled(shape: str, count: int, body: str, ruled: bool) -> Figures:  # noqa: FBT001 - with or without
    return await SHAPES[shape](count, body if ruled else None)


#: The columns of comparisons.
COLUMNS = ["shape", "without, a second", "with", "", "without, a run", "with", "", "noise of the two without"]


async def compared(shape: str, series: Callable[[bool], Awaitable[Figures]], most: int) -> list[str]:
    """A series with what is measured between two without, again until these two agree."""
    for _ in range(most):
        first, ruled, second = await series(False), await series(True), await series(False)
        noise = abs(first.runs_a_second - second.runs_a_second) / max(first.runs_a_second, second.runs_a_second)
        if noise <= _AGREED:
            break
    plain = (first.runs_a_second + second.runs_a_second) / 2
    plain_us = (first.processor_us + second.processor_us) / 2
    return [
        shape,
        f"{first.runs_a_second:,.0f} and {second.runs_a_second:,.0f}",
        f"{ruled.runs_a_second:,.0f}",
        f"{ruled.runs_a_second / plain - 1:+.1%}",
        f"{plain_us:,.0f} µs",
        f"{ruled.processor_us:,.0f} µs",
        f"{ruled.processor_us / plain_us - 1:+.1%}",
        f"{noise:.1%}",
    ]


async def kernels(count: int) -> list[list[str]]:
    """No-op runs on SQLite whose tasks a kernel over gRPC rules on, each asked about, and remembered."""
    plain = await on_node("SQLite", count, None)
    rows = [["without a policy", f"{plain.runs_a_second:,.0f}", "100%"]]
    with tempfile.TemporaryDirectory() as folder, kernel(Path(folder, "policy.yaml")) as address:
        for name, cache_ms in (("each task asked about", 0), ("answers remembered for a minute", 60_000)):
            found = await on_node("SQLite", count, None, policy__kernel=address, policy__kernel_cache_ms=cache_ms)
            share = found.runs_a_second / plain.runs_a_second
            rows.append([name, f"{found.runs_a_second:,.0f}", f"{share:.0%}"])
    return rows


@contextmanager
def kernel(file: Path) -> Iterator[str]:
    """A policy kernel in a process of its own; its address."""
    file.write_text(policy_text(10, LAST_RULES["alone"]))
    command = [sys.executable, "-m", "gnomon", "policy", "serve", "-f", str(file), "--grpc", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"port\D+(\d+)", line)
        assert found is not None, line
        yield f"grpc://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


# ---- approvals ---------------------------------------------------------------------------------------

#: How many approvals a page of the list has, and how long an idle node is watched.
_PAGE, _IDLE_SECONDS = 100, 10.0
ASKING = "rules: [{id: ask, match: {topics: ['no*']}, decision: require_approval}]"


async def approvals(count: int) -> list[list[str]]:
    """The list of so many waiting approvals, and a node that does nothing while they wait, beside one without any."""
    rows = [["an idle node without approvals", f"{await _idle_share(0):.2%} of a processor"]]
    pages: list[float] = []
    rows.append(
        [f"an idle node with {count} waiting approvals", f"{await _idle_share(count, pages):.2%} of a processor"]
    )
    return [[f"a page of {_PAGE} of {count} waiting approvals", quantiles(pages)], *rows]


async def _idle_share(count: int, pages: list[float] | None = None) -> float:
    """The processor time of an idle node as a share of the time; the milliseconds of each page of approvals."""
    async with node_on("SQLite") as node:
        await _prepare(node, ASKING)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        names = await register(node, "note")
        wanted = ApprovalFilter(tenant="default", status=ApprovalStatus.WAITING)
        await launch_runs(node, names, count, mark="ask")
        while count and (await node.store.stats.held_tasks()).to_approve < count:
            await asyncio.sleep(0.2)
        before: str | None = None
        for _ in range(count // _PAGE):
            began = perf_counter()
            found = await node.store.approvals.page(wanted, before=before, limit=_PAGE)
            shown = msgspec.json.encode([approval_summary(one) for one in found])
            if pages is not None:
                pages.append((perf_counter() - began) * 1000)
            assert len(found) == _PAGE
            assert shown
            before = found[-1].approval_id
        await asyncio.sleep(1)
        spent, began = process_time(), perf_counter()
        await asyncio.sleep(_IDLE_SECONDS)
        share = (process_time() - spent) / (perf_counter() - began)
        stop.set()
        await running
    return share


# ---- imports -----------------------------------------------------------------------------------------

_LOADED = """
import sys
import gnomon.app.node, gnomon.app.operations, gnomon.app.server, gnomon.api.routes
rules = ("compiled", "document", "facts", "reader", "step_rules")
print(sum(name in sys.modules for name in ("grpc", *(f"gnomon.core.policy.{one}" for one in rules))))
"""


def imports() -> list[list[str]]:
    """How many modules that only a policy or a kernel needs a process without them has loaded."""
    found = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)  # noqa: S603
    return [["modules of rules and kernels in a server without a policy", found.stdout.strip()]]


_THROUGHPUT = (
    "Throughput of no-op runs, under 10 rules beside two series without a policy, repeated until these agreed within "
    "{agreed:.0%}, at most {tries} times. The processor time is that of all processes but the database."
)


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=6_000, help="runs of a series")
    options.add_argument("--tasks", type=int, default=100_000, help="tasks of the history that is replayed")
    options.add_argument("--approvals", type=int, default=10_000, help="approvals that wait")
    options.add_argument("--tries", type=int, default=3, help="how often a series is repeated until it is quiet")
    chosen = options.parse_args()
    body = policy_text(10, LAST_RULES["alone"])
    parts = [
        table(["one plain permission, with its digest", "processor time"], await rulings()),
        _THROUGHPUT.format(agreed=_AGREED, tries=chosen.tries),
        table(
            COLUMNS,
            [await compared(shape, partial(_ruled, shape, chosen.count, body), chosen.tries) for shape in SHAPES],
        ),
        table(["a kernel over gRPC, SQLite", "runs a second", ""], await kernels(chosen.count)),
        table(["replay of the history on SQLite", "processor time"], await replay(chosen.tasks)),
        table(["approvals on SQLite", ""], await approvals(chosen.approvals)),
        table(["imports", "modules"], imports()),
    ]
    write_section("The policy of tasks", "\n\n".join(parts))


if __name__ == "__main__":
    asyncio.run(main())
