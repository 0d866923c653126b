"""Servers and workers over NATS as real processes, and checks of the work that a witness recorded."""

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.schema import task
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Attempt, Result, Run, RunId, RunSource, RunStatus
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.ports.runs import RunQuery
from support.gnomon_processes import TESTS, GnomonProcess
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, NatsCluster
from support.witness import read_witness

LEASE_MS = 2_000
#: Short enough for a test to see how lost attempts are handled.
QUICK = {
    "GNOMON_WORKER__LEASE_MS": str(LEASE_MS),
    "GNOMON_RECONCILER__POLL_MS": "300",
    "GNOMON_LEADER__TTL_MS": "2000",
    "GNOMON_LEADER__RENEW_INTERVAL_MS": "500",
    "GNOMON_LEADER__CLAIM_INTERVAL_MS": "200",
    "GNOMON_NATS__TIMEOUT_MS": "1000",
    "GNOMON_AUTH__VERIFY_TOKENS": "false",
    "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
    "PYTHONUNBUFFERED": "1",
}


def environment_of(nats: Nats | NatsCluster, user: str) -> dict[str, str]:
    return {
        **QUICK,
        "GNOMON_NATS__URL": nats.url,
        "GNOMON_NATS__USER": user,
        "GNOMON_NATS__PASSWORD": PASSWORDS[user],
        "GNOMON_NATS__REPLICAS": "3" if isinstance(nats, NatsCluster) else "1",
    }


@contextmanager
def run_process(command: list[str], environment: Mapping[str, str], said: str) -> Iterator[GnomonProcess]:
    """Start a process; yield it once it logs a text, and kill it at the end if it still runs."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    started = subprocess.Popen(
        command,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = GnomonProcess(started)
    try:
        running.line_with(said)
        yield running
    finally:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


@contextmanager
def server(url: str, nats: Nats | NatsCluster, *arguments: str, **environment: str) -> Iterator[GnomonProcess]:
    """`gnomon server`, which executes nothing, once it runs."""
    command = [sys.executable, "-m", "gnomon", "server", "--database", url, "--port", "0", *arguments]
    with run_process(command, {**environment_of(nats, "scheduler"), **environment}, "Ctrl-C stops") as running:
        yield running


@contextmanager
def remote_worker(nats: Nats | NatsCluster, *arguments: str, **environment: str) -> Iterator[GnomonProcess]:
    """A worker that has no address of a database, once it runs."""
    command = [sys.executable, "-m", "gnomon", "worker", "--import", "support.witness", *arguments]
    with run_process(command, {**environment_of(nats, "worker"), **environment}, "Ctrl-C stops") as running:
        yield running


@contextmanager
def start_together(*starting: AbstractContextManager[GnomonProcess]) -> Iterator[list[GnomonProcess]]:
    """Start all of them concurrently; return them once each runs."""
    with ExitStack() as stack:
        with ThreadPoolExecutor(len(starting)) as threads:
            running = list(threads.map(stack.enter_context, starting))
        yield running


# ---- launching runs ------------------------------------------------------------------------------


async def launch(store: SqlStore, job: str, count: int = 1) -> list[RunId]:
    """Launch so many runs of a job; return their ids."""
    schedule = await store.schedules.find("default", job)
    assert schedule is not None
    ids, now = RandomIds(), SystemClock().now()
    runs = [
        new_requested_run(RunId(ids.new("run", now)), schedule, source=RunSource.API, now=now) for _ in range(count)
    ]
    await store.runs.launch([LaunchRequest(run=run, first_steps=schedule.spec.first_steps) for run in runs], now=now)
    return [run.run_id for run in runs]


async def all_runs(store: SqlStore) -> list[Run]:
    found: list[Run] = []
    after = None
    while page := await store.executions.list_runs(RunQuery(limit=1000, after=after)):
        found += page
        after = page[-1].created_at, page[-1].run_id
    return found


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll for a condition that another process brings about."""
    while not await condition():  # noqa: ASYNC110 - what others do sets no event of ours
        await asyncio.sleep(0.05)


async def postpone_task(store: SqlStore) -> None:
    """Postpone the next try of an unroutable task by an hour."""

    async def unroutable_tasks() -> bool:
        return bool(await store.tasks.unroutable_tasks(after=(0, ""), limit=1))

    await wait_until(unroutable_tasks)
    later = sa.update(task).values(available_at=SystemClock().now() + 3_600_000)
    await store.transactions.write(lambda conn: conn.execute(later))


async def wait_until_all_over(store: SqlStore) -> None:
    async def over() -> bool:
        return all(run.over for run in await all_runs(store))

    await wait_until(over)


async def wait_for_witness_lines(witness: Path, count: int = 1) -> None:
    async def some() -> bool:
        return len(read_witness(witness)) >= count

    await wait_until(some)


async def wait_until_begun(witness: Path, job: str) -> None:
    async def begun() -> bool:
        return any(what == "start" and name == job for what, name, *_ in read_witness(witness))

    await wait_until(begun)


# ---- checking ------------------------------------------------------------------------------------


async def check_runs(store: SqlStore, witness: Path, *, once: frozenset[str] = frozenset()) -> dict[str, list[Attempt]]:
    """Check that no run was lost and every start has an attempt and a reason; return the attempts of each run."""
    runs = await all_runs(store)
    tasks = {task.task_id: task for task in await store.history.tasks(runs)}
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in await store.executions.attempts(list(tasks)):
        attempts[tasks[attempt.task_id].run_id].append(attempt)
    starts: dict[str, list[int]] = defaultdict(list)
    for what, _, name, fence, _, _ in read_witness(witness):
        if what == "start":
            starts[name].append(fence)
    for run in runs:
        tried, fences = attempts[run.run_id], starts[run.run_id]
        assert run.over, run
        assert len(fences) == len(set(fences)), "an attempt was begun twice"
        assert set(fences) <= {one.number for one in tried}, "a body ran that is no attempt on record"
        justified = {Result.LOST, Result.NEVER_STARTED, Result.INTERRUPTED}
        assert all(one.result in justified for one in tried[:-1]), [one.result for one in tried]
        if run.schedule_id in once:
            assert len(fences) <= 1, "what must start once at most was started twice"
        elif run.status is RunStatus.COMPLETED:
            assert fences, "a run is said to have ended that nobody has begun"
        else:
            assert [one.result for one in tried].count(Result.LOST) == 3, [one.result for one in tried]
    return attempts
