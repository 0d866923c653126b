"""Schedulers, workers and kernels killed or frozen while people vote: no vote is lost, nothing starts without votes."""

import asyncio
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote, VoteKind
from gnomon.core.jobs.job import read_job
from gnomon.core.model import Result, RunStatus
from gnomon.errors import ApprovalClosed, NotFound, VotedAlready
from gnomon.ports.approvals import ApprovalFilter
from support import fleet_processes, gnomon_processes
from support.fleet_processes import QUICK, all_runs, launch, wait_until, wait_until_all_over
from support.gnomon_processes import GnomonProcess, policy_server, up, worker
from support.nats_redis_servers import Nats
from support.nats_users import nats_with_users
from support.postgres_server import postgres
from support.rulings import rulings_of
from support.server_process import free_port
from support.sqlite_files import new_sqlite_file
from support.witness import read_witness

pytestmark = [pytest.mark.req("R-03", "R-08"), pytest.mark.guarantee("S5", "S6", "S11"), pytest.mark.timeout(240)]

POLICY = """
default_decision: deny
rules:
  - id: payments
    match: {jobs: [pay]}
    decision: require_approval
    approval: {groups: [finance], quorum: 2}
"""
VOTERS = ("carl", "dora", "emil")
APPROVE, REJECT = VoteKind.APPROVE, VoteKind.REJECT


@pytest.fixture
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of the database that the shape needs."""
    if "sqlite" in request.node.callspec.id:
        yield f"sqlite:///{new_sqlite_file(tmp_path / 'gnomon.db')}"
    else:
        async with postgres(18).database() as address:
            yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


@pytest.fixture
def nats(request: pytest.FixtureRequest) -> Iterator[Nats | None]:
    if "nats" not in request.node.callspec.id:
        yield None
        return
    with nats_with_users() as running:
        yield running


async def prepare(url: str, store: SqlStore, runs: int) -> None:
    """A policy in force, and so many runs that need an approval."""
    settings, clock = load(flags={"database.url": url}), SystemClock()
    job = {"name": "pay", "function": "witness/coroutine", "overlap": "allow", "retry": {"max_attempts": 20}}
    async with Operations.open(settings) as operations:
        await operations.jobs.apply([read_job(job, schedule_defaults(settings), now=clock.now())], actor="ada")
    await store.policies.add(POLICY, author="ada", now=clock.now())
    await launch(store, "pay", runs)


async def approvals_of(store: SqlStore) -> list[Approval]:
    return list(
        await store.approvals.page(ApprovalFilter(tenant="default", kind=ApprovalKind.TASK), before=None, limit=1_000)
    )


async def wait_until_asked(store: SqlStore, count: int) -> list[Approval]:
    async def asked() -> bool:
        return len(await approvals_of(store)) >= count

    await wait_until(asked)
    return await approvals_of(store)


async def vote(store: SqlStore, one: Approval, voter: str, kind: VoteKind = APPROVE) -> None:
    cast = Vote(voter=voter, kind=kind, at=SystemClock().now())
    await store.approvals.vote("default", one.approval_id, cast, digest=one.digest)


async def test_votes_cast_while_the_scheduler_is_frozen_and_killed_count_for_the_next_one_sqlite(
    tmp_path: Path, witness: Path
) -> None:
    database = new_sqlite_file(tmp_path / "gnomon.db")
    store = await open_store(f"sqlite:///{database}")
    await prepare(f"sqlite:///{database}", store, 8)
    with up(database) as first:
        asked = await wait_until_asked(store, 8)
        first.signal(signal.SIGSTOP)
        for one in asked:
            await vote(store, one, "carl")
        for one in asked[:5]:
            await vote(store, one, "dora")
        for one in asked[5:7]:
            await vote(store, one, "dora", REJECT)
        assert read_witness(witness) == []
        first.kill()

    approved = {one.request.run_id for one in asked[:5] if one.request}
    with up(database) as second:
        await wait_until(lambda: _count_over(store, 7))
        second.kill()

    by_run = {run.run_id: run for run in await all_runs(store)}
    made = {run_id: [(one.decision, one.ruled_by) for one in await rulings_of(store, run_id)] for run_id in by_run}
    starts = Counter(run for what, _, run, *_ in read_witness(witness) if what == "start")
    [waiting] = [one for one in await approvals_of(store) if one.status is ApprovalStatus.WAITING]
    letters = await store.dead_letters.page("default")
    assert starts == dict.fromkeys(approved, 1)
    assert Counter(run.status for run in by_run.values()) == {
        RunStatus.COMPLETED: 5,
        RunStatus.FAILED: 2,
        RunStatus.PENDING: 1,
    }
    assert [one.voter for one in waiting.votes] == ["carl"]
    assert all(made[one] == [("require_approval", "policy"), ("allow", "approval")] for one in approved)
    assert [letter.reason for letter in letters] == ["approval_rejected"] * 2
    await store.close()


async def _count_over(store: SqlStore, count: int) -> bool:
    return sum(run.over for run in await all_runs(store)) >= count


class KilledFleet:
    """A scheduler, a worker where the shape has one, and perhaps a kernel: each is killed and started again."""

    def __init__(self, url: str, nats: Nats | None, *, kernel: Path | None) -> None:
        self._url, self._nats, self._kernel_file = url, nats, kernel
        self._port = free_port() if kernel else 0
        self._parts: dict[str, tuple[ExitStack, GnomonProcess]] = {}
        for name in self.names:
            self.start(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, in the order in which they start."""
        kernel = ("kernel",) if self._kernel_file else ()
        return (*kernel, "scheduler", *(() if self._url.startswith("sqlite") else ("worker",)))

    def start(self, name: str) -> None:
        stack = ExitStack()
        self._parts[name] = stack, stack.enter_context(self._context(name))

    def kill(self, name: str) -> None:
        stack, process = self._parts[name]
        process.kill()
        stack.close()

    def signal(self, name: str, number: int) -> None:
        self._parts[name][1].signal(number)

    def close(self) -> None:
        for stack, process in self._parts.values():
            process.signal(signal.SIGCONT)
            stack.close()

    def _context(self, name: str) -> AbstractContextManager[GnomonProcess]:
        environment = {**QUICK, **self._kernel_settings()}
        if name == "kernel":
            assert self._kernel_file is not None
            return _kernel_process(self._kernel_file, self._port)
        if self._url.startswith("sqlite"):
            return up(self._url, environment=environment)
        if self._nats is None:
            start = gnomon_processes.server if name == "scheduler" else worker
            return start(self._url, environment=environment)
        if name == "scheduler":
            return fleet_processes.server(self._url, self._nats, **self._kernel_settings())
        return fleet_processes.remote_worker(self._nats)

    def _kernel_settings(self) -> dict[str, str]:
        if self._kernel_file is None:
            return {}
        return {
            "GNOMON_POLICY__KERNEL": f"grpc://127.0.0.1:{self._port}",
            "GNOMON_POLICY__KERNEL_TIMEOUT_MS": "500",
            "GNOMON_POLICY__KERNEL_RETRY_MS": "300",
            "GNOMON_POLICY__KERNEL_OPEN_MS": "500",
        }


@contextmanager
def _kernel_process(file: Path, port: int) -> Iterator[GnomonProcess]:
    with policy_server(file, "grpc", port) as (process, _):
        yield process


class Voters:
    """People who vote all the time on whatever waits, and what they know."""

    def __init__(self, store: SqlStore, rng: random.Random) -> None:
        self._store, self._rng = store, rng
        #: The votes that counted, by approval.
        self.cast: dict[str, dict[str, VoteKind]] = defaultdict(dict)

    async def vote_until_stopped(self) -> None:
        while True:
            waiting = [one for one in await approvals_of(self._store) if one.status is ApprovalStatus.WAITING]
            for one in self._rng.sample(waiting, min(3, len(waiting))):
                kind, voter = self._rng.choices((APPROVE, REJECT), (9, 1))[0], self._rng.choice(VOTERS)
                with suppress(ApprovalClosed, VotedAlready, NotFound):
                    await vote(self._store, one, voter, kind)
                    self.cast[one.approval_id][voter] = kind
            await asyncio.sleep(0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", [False, True], ids=["rules", "kernel"])
@pytest.mark.parametrize("shape", ["sqlite", "postgresql", "postgresql-nats"])
async def test_kill_9_and_freezes_while_people_vote_lose_and_double_nothing(
    shape: str, url: str, nats: Nats | None, store: SqlStore, witness: Path, tmp_path: Path, *, kernel: bool
) -> None:
    rng = random.Random(f"{shape} {kernel}")
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    await prepare(url, store, 60)
    fleet, voters = KilledFleet(url, nats, kernel=file if kernel else None), Voters(store, rng)
    voting = asyncio.create_task(voters.vote_until_stopped())
    try:
        for _ in range(8):
            victim = rng.choice(fleet.names)
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            if rng.random() < 0.6:
                await asyncio.to_thread(fleet.kill, victim)
                await asyncio.to_thread(fleet.start, victim)
            else:
                fleet.signal(victim, signal.SIGSTOP)
                # Longer than the leases, now and then.
                await asyncio.sleep(rng.uniform(0.2, 3.5))
                fleet.signal(victim, signal.SIGCONT)
        await wait_until_all_over(store)
    finally:
        voting.cancel()
        fleet.close()

    await check_votes_and_starts(store, witness, voters, quorum=1 if kernel else 2)


async def check_votes_and_starts(store: SqlStore, witness: Path, voters: Voters, *, quorum: int) -> None:
    """Every vote that was answered is kept; a task started only with its votes; and every start is accounted for."""
    runs = {run.run_id: run for run in await all_runs(store)}
    tasks = {task.task_id: task for task in await store.history.tasks(list(runs.values()))}
    approvals = await approvals_of(store)
    starts: dict[str, list[int]] = defaultdict(list)
    for what, _, run_id, fence, *_ in read_witness(witness):
        if what == "start":
            starts[run_id].append(fence)
    assert Counter(one.request.task_id for one in approvals if one.request) == dict.fromkeys(tasks, 1)
    for one in approvals:
        assert one.request is not None
        kept = {cast.voter: cast.kind for cast in one.votes}
        assert voters.cast[one.approval_id].items() <= kept.items()
        run, fences = runs[one.request.run_id], starts[one.request.run_id]
        assert len(fences) == len(set(fences)), "an attempt was begun twice"
        if one.status is ApprovalStatus.APPROVED:
            assert list(kept.values()).count(APPROVE) >= quorum
            assert run.status is RunStatus.COMPLETED
            assert fences
        else:
            assert (one.status, run.status, fences) == (ApprovalStatus.REJECTED, RunStatus.FAILED, [])
    for attempt in await store.executions.attempts(list(tasks)):
        assert attempt.result in (Result.SUCCEEDED, Result.LOST, Result.NEVER_STARTED), attempt
