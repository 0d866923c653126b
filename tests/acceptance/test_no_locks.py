"""Each lock of Cordum's scheduler, and what gives its guarantee here; see docs/decisions."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from contracts.store import HOUR, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.config.settings import load
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Schedule, TaskId
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import Unavailable
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.coordination import SingletonLease
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.task_steps import LEASE, admission, completion_of

pytestmark = pytest.mark.req("R-15")

SECOND = 1000


@pytest.fixture
async def store() -> AsyncIterator[SqlStore]:
    """On a server, where several processes write at once."""
    async with postgres(18).database() as url:
        opened = await open_postgres(url, pool_size=8)
        yield opened
        await opened.close()


async def launched(store: Store, definition: Workflow | None = None) -> tuple[Schedule, Run]:
    schedule = minutely(overlap=Overlap.ALLOW)
    if definition is not None:
        changes = JobChangeset(workflows=[definition], added=[schedule])
        assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
    else:
        await store.schedules.add([schedule], actor="ada", tzdata="")
    run = new_requested_run(RunId("run_1"), schedule, source=RunSource.MANUAL, now=NOON)
    steps = ("main",) if definition is None else definition.first_steps
    spans = first_spans(schedule.spec.deadlines)
    await store.runs.launch([LaunchRequest(run=run, first_steps=steps, first_spans_ms=spans)], now=NOON)
    return schedule, run


# ---- the lock of a task --------------------------------------------------------------------------


async def test_of_many_writers_of_a_task_one_changes_its_state(store: SqlStore) -> None:
    schedule, run = await launched(store)
    [task] = await store.history.tasks([run])
    asked = admission(task, schedule_uid=schedule.uid)

    admitted = await asyncio.gather(*(store.tasks.admit([asked], now=NOON) for _ in range(8)))
    taken = await asyncio.gather(
        *(store.attempts.take(f"w{number}", limit=5, lease_ms=LEASE, now=NOON) for number in range(8))
    )
    [held] = [one for found in taken for one in found]
    counted = await asyncio.gather(
        *(store.attempts.report([completion_of(held, result, now=NOON)]) for result in [Result.SUCCEEDED] * 8)
    )

    assert sum(map(len, admitted)) == sum(map(len, counted)) == 1
    assert held.task.fence == 1


@pytest.mark.req("R-20")
@pytest.mark.parametrize(("lease_ms", "renewals"), [(30_000, 3), (30_000, 6), (12_000, 3)])
async def test_the_lease_of_an_attempt_is_renewed_in_time_and_ends_after_as_many_failures(
    lease_ms: int, renewals: int
) -> None:
    harness = ExecutionHarness(flags={"worker.lease_ms": lease_ms, "worker.renewals": renewals})
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    [held] = harness.runner.started
    every = lease_ms // renewals
    harness.clock.advance(every)
    await harness.worker.step()
    [attempt] = (await harness.store.attempts.open_attempts(after=TaskId(""), limit=5)).attempts
    assert attempt.attempt.lease_until == NOON + every + lease_ms, "renewed after its part of the lease"

    renew, tries = harness.store.attempts.renew, []

    async def fail(worker: str, held: object, *, lease_ms: int) -> object:
        del worker, held, lease_ms
        tries.append(harness.clock.now())
        raise Unavailable("the store is away")

    harness.store.attempts.renew = fail  # type: ignore[method-assign, assignment]
    while not harness.runner.stopped and harness.clock.now() < NOON + HOUR:
        harness.clock.advance(every)
        await harness.worker.step()
        await harness.worker.watch_lease()
    harness.store.attempts.renew = renew  # type: ignore[method-assign]

    assert harness.runner.stopped == [(held, Result.LOST)], run
    assert harness.clock.now() - (NOON + every) <= lease_ms
    assert len(tries) <= renewals


# ---- the lock of a run ---------------------------------------------------------------------------


async def test_two_ends_at_one_moment_make_one_successor(store: SqlStore) -> None:
    steps = (
        Step(name="a", function="f"),
        Step(name="b", function="f"),
        Step(name="c", function="f", depends_on=("a", "b")),
    )
    definition = Workflow(workflow_id="report", version=1, steps=steps)
    schedule, run = await launched(store, definition)
    tasks = await store.history.tasks([run])
    await store.tasks.admit([admission(task, schedule_uid=schedule.uid) for task in tasks], now=NOON)
    taken = await store.attempts.take("w1", limit=5, lease_ms=LEASE, now=NOON)
    ends = [completion_of(one, Result.SUCCEEDED, now=NOON, definition=definition) for one in taken]

    await asyncio.gather(*(store.attempts.report([end]) for end in ends for _ in range(3)))

    after = await store.history.tasks([run])
    assert sorted(task.step for task in after) == ["a", "b", "c"]
    assert next(task for task in after if task.step == "c").state is TaskState.PENDING


# ---- loops with one writer -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reconciler", "mender", "deadlines"])
@pytest.mark.parametrize("poll_ms", [30_000, 5_000])
async def test_one_replica_has_a_loop_for_two_polls(name: str, poll_ms: int) -> None:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    ttl_ms = 2 * load(flags={"reconciler.poll_ms": poll_ms}).reconciler.poll_ms
    first, second = (SingletonLease(store.singletons, clock, name, holder, ttl_ms=ttl_ms) for holder in ("one", "two"))

    assert await first.ours()
    seen = []
    for _ in range(2 * 4):
        clock.advance(ttl_ms // 4)
        seen.append(await second.ours())

    assert seen.index(True) == 3, "the silent holder is succeeded when its lease has ended, and not before"
    assert not await first.ours()


# ---- the snapshot of workers ---------------------------------------------------------------------


async def test_many_workers_write_their_rows_at_once_and_a_scheduler_that_starts_reads_all(store: SqlStore) -> None:
    cards = [WorkerInfo(worker=f"w{number}", functions=("f",), slots=4, started_at=NOON) for number in range(12)]

    await asyncio.gather(*(store.workers.register(card, ttl_ms=LEASE) for card in cards for _ in range(3)))

    assert [card.worker for card in await store.workers.alive()] == sorted(card.worker for card in cards)


# ---- the poller of delays ------------------------------------------------------------------------


async def test_a_delayed_task_is_a_row_that_any_dispatcher_admits_once(store: SqlStore) -> None:
    schedule, run = await launched(store)
    [task] = await store.history.tasks([run])
    later = admission(task, state=TaskState.PENDING, wait_reason=WaitReason.DELAY, available_at=NOON + SECOND)
    assert await store.tasks.admit([later], now=NOON)

    assert await store.tasks.waiting(NOON + SECOND - 1, limit=5) == []
    found = await asyncio.gather(*(store.tasks.waiting(NOON + SECOND, limit=5) for _ in range(4)))
    admitted = await asyncio.gather(
        *(store.tasks.admit([admission(one.task, schedule_uid=schedule.uid)], now=NOON + SECOND) for [one] in found)
    )

    assert sum(map(len, admitted)) == 1


@pytest.mark.req("R-20")
@pytest.mark.parametrize(("patience_ms", "refused"), [(200, True), (8_000, False)])
async def test_a_transaction_waits_for_a_row_as_long_as_the_setting_says(patience_ms: int, *, refused: bool) -> None:
    async with postgres(18).database() as url:
        store = await open_postgres(url, pool_size=2, patience_ms=patience_ms)
        _, run = await launched(store)
        other = await asyncpg.connect(url)
        await other.execute("SET search_path TO gnomon, public")
        held = other.transaction()
        await held.start()
        await other.execute("UPDATE run SET error = error")

        cancelling = asyncio.ensure_future(store.runs.cancel(run.run_id, reason="now", now=NOON))
        done, _ = await asyncio.wait([cancelling], timeout=20 if refused else 1)
        await held.rollback()
        outcome = await asyncio.gather(cancelling, return_exceptions=True)
        await other.close()
        await store.close()

    assert bool(done) is refused
    assert isinstance(outcome[0], Unavailable) is refused
