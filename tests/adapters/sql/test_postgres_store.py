"""Properties of PostgreSQL alone: a server that can fail, and concurrent writers."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.util import await_only

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.adapters.sql.postgres import PostgresTransactions
from gnomon.adapters.sql.schema import node
from gnomon.adapters.sql.transactions import TransactionBody
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Result, RunId, RunSource, Schedule, ScheduleUid
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState
from gnomon.errors import StoreUnavailable
from support.postgres_server import Postgres, postgres
from support.task_steps import LEASE, admission, completion_of, runs_of, take_task


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server of its own, to be killed."""
    with Postgres(18) as server:
        yield server


@pytest.fixture
async def stores() -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two nodes on one database."""
    async with postgres(18).database() as url:
        one, other = await open_postgres(url), await open_postgres(url)
        yield one, other
        await asyncio.gather(one.close(), other.close())


@pytest.fixture
def store(stores: tuple[SqlStore, SqlStore]) -> SqlStore:
    return stores[0]


def seen(conn: sa.Connection, name: str) -> str:
    conn.execute(sa.insert(node), {"holder": name, "seen_until": 1})
    return name


def names(conn: sa.Connection) -> list[str]:
    return list(conn.scalars(sa.select(node.c.holder).order_by(node.c.holder)))


@asynccontextmanager
async def somebody_writing(store: SqlStore) -> AsyncIterator[None]:
    """Somebody is in the middle of a transaction, for as long as this lasts."""
    begun, go = asyncio.Event(), asyncio.Event()

    def waits(conn: sa.Connection) -> None:
        conn.exec_driver_sql("SELECT 1")
        begun.set()
        await_only(go.wait())

    writing = asyncio.create_task(store.transactions.write(waits))
    await begun.wait()
    yield
    go.set()
    await writing


@pytest.mark.guarantee("C8")
async def test_a_write_during_separate_transactions_waits_for_no_other_write(store: SqlStore) -> None:
    begun, go = asyncio.Semaphore(0), asyncio.Event()

    def waits(conn: sa.Connection) -> None:
        conn.exec_driver_sql("SELECT 1")
        begun.release()
        await_only(go.wait())

    apart = [asyncio.create_task(store.transactions.write(waits, apart=True)) for _ in range(2)]
    for _ in apart:
        await begun.acquire()

    async with asyncio.timeout(30):
        assert await store.transactions.write(partial(seen, name="a")) == "a"
    go.set()
    await asyncio.gather(*apart)


# ---- a server that goes away ---------------------------------------------------------------------


@pytest.mark.guarantee("C7")
async def test_a_server_that_was_killed_is_unavailable_until_it_is_back(mortal: Postgres) -> None:
    store = await open_postgres(await mortal.empty())
    assert await store.schedules.add([minutely("before")], actor="ada", tzdata="") == frozenset()
    mortal.kill()

    for asked in (
        store.schedules.find("default", "before"),
        store.schedules.add([minutely("during")], actor="ada", tzdata=""),
    ):
        with pytest.raises(StoreUnavailable):
            await asked

    mortal.start()
    assert await store.schedules.add([minutely("after")], actor="ada", tzdata="") == frozenset()
    found = await store.schedules.page("default", after="", limit=10)
    assert [schedule.schedule_id for schedule in found] == ["after", "before"]
    await store.close()


@pytest.mark.guarantee("C7", "C8")
async def test_a_server_that_is_killed_in_the_middle_of_a_transaction_takes_it_back_for_all(mortal: Postgres) -> None:
    store = await open_postgres(await mortal.empty())

    def dies(conn: sa.Connection) -> None:
        seen(conn, "half")
        mortal.kill()
        seen(conn, "other half")

    jobs: list[TransactionBody[Any]] = [partial(seen, name="a"), dies, partial(seen, name="b")]
    outcomes = await asyncio.gather(*(store.transactions.write(job) for job in jobs), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    mortal.start()
    assert await store.transactions.read(names) == []
    await store.close()


async def test_a_connection_that_the_server_ended_is_replaced_unnoticed(store: SqlStore) -> None:
    await store.schedules.find("default", "nothing")

    await postgres(18).run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        " AND pid <> pg_backend_pid()"
    )

    assert await store.schedules.find("default", "nothing") is None
    assert await store.schedules.add([minutely()], actor="ada", tzdata="") == frozenset()


async def test_a_read_survives_a_lost_connection(store: SqlStore) -> None:
    asked = ["SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 'an answer'"]

    assert await store.transactions.read(lambda conn: conn.exec_driver_sql(asked.pop(0)).scalar()) == "an answer"


async def test_nobody_at_the_address_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await open_postgres("postgresql://gnomon@127.0.0.1:1/gnomon")


# ---- sharing a commit ----------------------------------------------------------------------------


async def test_jobs_that_pile_up_share_a_commit(store: SqlStore) -> None:
    engine = store.transactions.engine
    assert isinstance(engine, PostgresTransactions)
    before = engine.commits

    done = await asyncio.gather(*(engine.write(partial(seen, name=f"n{i:03d}")) for i in range(100)))

    assert done == [f"n{i:03d}" for i in range(100)]
    assert engine.commits - before <= 2


async def test_a_read_does_not_wait_for_a_write(store: SqlStore) -> None:
    async with somebody_writing(store):
        assert await store.transactions.write(partial(seen, name="quick")) == "quick"


async def test_a_separate_transaction_waits_for_no_earlier_one(store: SqlStore) -> None:
    async with somebody_writing(store), somebody_writing(store):
        assert await store.transactions.write(partial(seen, name="apart"), apart=True) == "apart"


async def test_however_much_is_asked_at_once_there_are_no_more_connections_than_allowed() -> None:
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    async with postgres(18).database() as url:
        store = await open_postgres(url, pool_size=3)
        reading = (store.transactions.read(lambda conn: conn.exec_driver_sql(asked).scalar_one()) for _ in range(30))

        assert max(await asyncio.gather(*reading)) == 3
        await store.close()


async def test_a_job_that_fails_takes_back_what_it_did_and_spoils_no_other(store: SqlStore) -> None:
    def failing(conn: sa.Connection) -> None:
        seen(conn, "half")
        seen(conn, "half")

    jobs: list[TransactionBody[Any]] = [partial(seen, name="a"), failing, partial(seen, name="b")]
    outcomes = await asyncio.gather(*(store.transactions.write(job) for job in jobs), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [str, sa.exc.IntegrityError, str]
    assert await store.transactions.read(names) == ["a", "b"]


async def test_jobs_whose_locks_cross_those_of_another_node_are_done_all_the_same(
    stores: tuple[SqlStore, SqlStore],
) -> None:
    await stores[0].transactions.write(lambda conn: [seen(conn, "a"), seen(conn, "b")])
    both, met = asyncio.Barrier(2), set[str]()

    def touch(conn: sa.Connection, name: str) -> None:
        conn.execute(sa.update(node).where(node.c.holder == name).values(seen_until=node.c.seen_until + 1))

    def touch_and_meet(conn: sa.Connection, name: str) -> None:
        touch(conn, name)
        if name not in met:
            met.add(name)
            await_only(both.wait())

    await asyncio.gather(
        stores[0].transactions.write(partial(touch_and_meet, name="a")),
        stores[0].transactions.write(partial(touch, name="b")),
        stores[1].transactions.write(partial(touch_and_meet, name="b")),
        stores[1].transactions.write(partial(touch, name="a")),
    )

    counts = await stores[0].transactions.read(lambda conn: list(conn.scalars(sa.select(node.c.seen_until))))
    assert counts == [3, 3]


async def test_a_lone_job_that_is_given_up_for_another_is_run_again_a_few_times(store: SqlStore) -> None:
    calls: list[str] = []

    def unlucky(conn: sa.Connection, state: str, times: int) -> str:
        calls.append(state)
        if calls.count(state) <= times:
            conn.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'no luck' USING ERRCODE = '{state}'; END $$")
        return seen(conn, state)

    for state in ("40P01", "40001"):
        assert await store.transactions.write(partial(unlucky, state=state, times=3)) == state
    with pytest.raises(StoreUnavailable, match="no luck"):
        await store.transactions.write(partial(unlucky, state="40P01", times=99))

    assert await store.transactions.read(names) == ["40001", "40P01"]


async def test_two_who_add_the_same_names_in_opposite_orders_do_not_fail(stores: tuple[SqlStore, SqlStore]) -> None:
    for turn in range(10):
        schedules = [minutely(f"s{turn}_{i:03d}") for i in range(500)]
        others = [replace(schedule, uid=ScheduleUid(f"{schedule.uid}_other")) for schedule in reversed(schedules)]

        taken = await asyncio.gather(
            stores[0].schedules.add(schedules, actor="ada", tzdata=""),
            stores[1].schedules.add(others, actor="eve", tzdata=""),
        )

        assert sorted(name for of_one in taken for name in of_one) == [s.schedule_id for s in schedules]
        found = await stores[0].schedules.page("default", after=f"s{turn}_", limit=500)
        assert [schedule.schedule_id for schedule in found] == [s.schedule_id for s in schedules]


# ---- several nodes -------------------------------------------------------------------------------


@pytest.mark.guarantee("C3")
async def test_no_shard_is_given_to_two_who_claim_at_once(stores: tuple[SqlStore, SqlStore]) -> None:
    claims = [store.shards.claim(f"{holder}", ttl_ms=60_000, limit=40) for holder in range(4) for store in stores]

    taken = [shard for terms in await asyncio.gather(*claims) for shard in terms]

    assert len(taken) == len(set(taken))
    assert len(taken) <= SHARDS


@pytest.mark.guarantee("S2")
async def test_of_two_who_decide_the_same_ticks_at_once_one_does(stores: tuple[SqlStore, SqlStore]) -> None:
    schedules = [minutely(f"s{i}") for i in range(200)]
    await stores[0].schedules.add(schedules, actor="ada", tzdata="")
    terms = await stores[0].shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    verdicts = [plan(schedule, now=NOON + MINUTE) for schedule in schedules]

    decided = await asyncio.gather(
        *(
            store.ledger.decide(batch, now=NOON + MINUTE, terms=terms)
            for store in stores
            for batch in (verdicts, verdicts[::-1])
        )
    )

    assert sorted(uid for uids in decided for uid in uids) == sorted(schedule.uid for schedule in schedules)


async def test_runs_that_end_at_once_on_two_nodes_strand_no_queued_one(stores: tuple[SqlStore, SqlStore]) -> None:
    schedule = minutely(overlap=Overlap.QUEUE)
    await stores[0].schedules.add([schedule], actor="ada", tzdata="")
    terms = await stores[0].shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    for minute in range(1, 6):
        found = await stores[0].schedules.find("default", "report")
        assert found is not None
        await stores[0].ledger.decide(
            [plan(found, now=NOON + minute * MINUTE)], now=NOON + minute * MINUTE, terms=terms
        )

    for _ in range(5):
        runs = await stores[0].history.runs(schedule.uid, before=NOON * 2, limit=10)
        [going] = [run for run in runs if not run.queued and not run.over]
        end = completion_of(await take_task(stores[0], "w1", going, now=NOON), Result.SUCCEEDED, now=NOON)
        ends = await asyncio.gather(*(store.attempts.report([end]) for store in stores * 2))
        assert sorted(len(counted) for counted in ends) == [0, 0, 0, 1]

    found = await stores[0].schedules.find("default", "report")
    assert found is not None
    assert (found.active_runs, found.queued_runs) == (0, 0)


async def launched(store: SqlStore, schedule: Schedule, names: Sequence[str]) -> list[LaunchOutcome]:
    runs = [new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.API, now=NOON) for name in names]
    return list(await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON))


@pytest.mark.guarantee("S5")
async def test_no_task_is_taken_twice_on_two_nodes(stores: tuple[SqlStore, SqlStore]) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await stores[0].schedules.add([schedule], actor="ada", tzdata="")
    await launched(stores[0], schedule, [f"{n:03}" for n in range(300)])
    tasks = await stores[0].history.tasks(await runs_of(stores[0], schedule))
    await stores[0].tasks.admit([admission(task) for task in tasks], now=NOON)

    takes = [store.attempts.take(f"w{n}", limit=25, lease_ms=LEASE, now=NOON) for n in range(6) for store in stores]
    taken = [one.task.task_id for hand in await asyncio.gather(*takes) for one in hand]

    assert sorted(taken) == sorted(task.task_id for task in tasks)


async def test_a_task_that_two_nodes_admit_at_once_is_admitted_by_one(stores: tuple[SqlStore, SqlStore]) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await stores[0].schedules.add([schedule], actor="ada", tzdata="")
    await launched(stores[0], schedule, [f"{n:03}" for n in range(300)])
    tasks = await stores[0].history.tasks(await runs_of(stores[0], schedule))
    admissions = [admission(task) for task in tasks]

    admits = [store.tasks.admit(some, now=NOON) for store in stores for some in (admissions, admissions[::-1])]
    admitted = [name for names in await asyncio.gather(*admits) for name in names]

    assert sorted(admitted) == sorted(task.task_id for task in tasks)


@pytest.mark.req("Z-12")
async def test_several_nodes_that_admit_at_once_never_exceed_the_budget(stores: tuple[SqlStore, SqlStore]) -> None:
    # Runs without a schedule: nothing else makes these transactions wait for each other.
    wanted = [new_requested_run(RunId(f"run_{n:03}"), minutely(), source=RunSource.API, now=NOON) for n in range(120)]
    runs = [replace(run, schedule_uid=None, schedule_id=None) for run in wanted]
    await stores[0].runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
    tasks = await stores[0].history.tasks(runs)
    admissions = [admission(task, action_limit=("default", 50)) for task in tasks]

    done = await asyncio.gather(
        *(
            stores[number % 2].tasks.admit(admissions[first : first + 10], now=NOON)
            for number, first in enumerate(range(0, len(admissions), 10))
        )
    )

    ruled = [one for admitted in done for one in admitted.values()]
    assert [one.state for one in ruled].count(TaskState.SCHEDULED) == 50
    assert [one.state for one in ruled].count(TaskState.DENIED) == 70
    assert await stores[0].tasks.actions_since("default", since=NOON - 1) == 50


@pytest.mark.parametrize("scheduled", [True, False])
async def test_a_run_that_two_nodes_launch_at_once_is_launched_by_one(
    stores: tuple[SqlStore, SqlStore], *, scheduled: bool
) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await stores[0].schedules.add([schedule], actor="ada", tzdata="")
    for turn in range(10):
        wanted = new_requested_run(RunId(f"run_{turn}"), schedule, source=RunSource.API, now=NOON)
        run = wanted if scheduled else replace(wanted, schedule_uid=None, schedule_id=None)
        request = LaunchRequest(run=run, first_steps=("main",), input=b"{}")

        became = await asyncio.gather(*(store.runs.launch([request], now=NOON) for store in stores))

        assert sorted(one for [one] in became) == [LaunchOutcome.ALREADY, LaunchOutcome.STARTED]


async def test_runs_of_one_schedule_that_end_on_two_nodes_at_once_are_all_counted(
    stores: tuple[SqlStore, SqlStore],
) -> None:
    schedule = minutely(overlap=Overlap.ALLOW)
    await stores[0].schedules.add([schedule], actor="ada", tzdata="")
    await launched(stores[0], schedule, [f"{n:03}" for n in range(200)])
    tasks = await stores[0].history.tasks(await runs_of(stores[0], schedule))
    await stores[0].tasks.admit([admission(task) for task in tasks], now=NOON)
    workers = [
        await store.attempts.take(f"w{n}", limit=20, lease_ms=LEASE, now=NOON) for n in range(5) for store in stores
    ]

    async def report(store: SqlStore, hand: Sequence[ReadyTask]) -> None:
        for one in hand:
            assert await store.attempts.report([completion_of(one, Result.SUCCEEDED, now=NOON)])

    await asyncio.gather(*(report(store, hand) for store, hand in zip(stores * 5, workers, strict=True)))

    found = await stores[0].schedules.find("default", "report")
    assert found is not None
    assert (found.active_runs, found.queued_runs) == (0, 0)


@pytest.mark.guarantee("S7")
async def test_an_attempt_that_two_nodes_end_at_once_ends_once(stores: tuple[SqlStore, SqlStore]) -> None:
    for turn in range(10):
        wanted = new_requested_run(RunId(f"run_{turn}"), minutely(), source=RunSource.API, now=NOON)
        run = replace(wanted, schedule_uid=None, schedule_id=None)
        await stores[0].runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        taken = await take_task(stores[0], "w1", run, now=NOON)
        said = [completion_of(taken, result, now=NOON) for result in (Result.SUCCEEDED, Result.FAILED)]

        counted = await asyncio.gather(*(store.attempts.report([one]) for store, one in zip(stores, said, strict=True)))

        assert sorted(map(len, counted)) == [0, 1]


async def test_runs_that_begin_end_and_are_cancelled_on_two_nodes_at_once_are_counted_right(
    stores: tuple[SqlStore, SqlStore],
) -> None:
    schedules = [minutely(f"s{n}", overlap=Overlap.QUEUE) for n in range(4)]
    await stores[0].schedules.add(schedules, actor="ada", tzdata="")
    for schedule in schedules:
        await launched(stores[0], schedule, [f"{schedule.schedule_id}_{n:02}" for n in range(12)])

    async def work_for(store: SqlStore, worker: str) -> None:
        while waiting := await store.tasks.waiting(NOON, limit=10):
            await store.tasks.admit([admission(w.task, schedule_uid=w.run.schedule_uid) for w in waiting], now=NOON)
            taken = await store.attempts.take(worker, limit=10, lease_ms=LEASE, now=NOON)
            await store.attempts.report([completion_of(one, Result.SUCCEEDED, now=NOON) for one in reversed(taken)])

    async def cancel(store: SqlStore, names: Sequence[str]) -> None:
        for name in names:
            await store.runs.cancel(RunId(f"run_{name}"), reason="no", now=NOON)

    names = [f"s{n}_{run:02}" for run in range(0, 12, 3) for n in range(4)]
    await asyncio.gather(
        *(work_for(store, f"w{number}") for number, store in enumerate(stores * 2)),
        cancel(stores[0], names),
        cancel(stores[1], names[::-1]),
    )
    await work_for(stores[0], "last")

    for schedule in schedules:
        assert all(run.over for run in await runs_of(stores[0], schedule))
        found = await stores[0].schedules.find("default", schedule.schedule_id)
        assert found is not None
        assert (found.active_runs, found.queued_runs) == (0, 0)


# ---- behind a pooler -----------------------------------------------------------------------------


@pytest.mark.guarantee("C13")
async def test_without_the_cache_no_statement_is_left_on_a_connection() -> None:
    async with postgres(18).database() as url:
        store = await open_postgres(url, statement_cache=False, pool_size=1)
        schedules = [minutely(f"s{i}") for i in range(100)]
        await store.schedules.add(schedules, actor="ada", tzdata="")
        terms = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
        await store.ledger.decide([plan(s, now=NOON + MINUTE) for s in schedules], now=NOON + MINUTE, terms=terms)

        left = sa.text("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
        assert await store.transactions.read(lambda conn: conn.scalar(left)) == 0
        await store.close()


@pytest.mark.guarantee("C13")
@pytest.mark.parametrize("pooled", [True, False])
async def test_reads_are_transactions_only_behind_a_pooler_and_writes_always_are(*, pooled: bool) -> None:
    def in_transaction(conn: sa.Connection) -> bool:
        conn.execute(sa.text("SELECT 1"))
        driver = conn.connection.driver_connection
        assert driver is not None
        return bool(driver.is_in_transaction())

    async with postgres(18).database() as url:
        store = await open_postgres(url, statement_cache=not pooled, pool_size=1)
        found = [await store.transactions.read(in_transaction) for _ in range(2)]
        written = await store.transactions.write(in_transaction)
        again = await store.transactions.read(in_transaction)
        await store.close()

    assert found == [pooled, pooled]
    assert written
    assert again is pooled
