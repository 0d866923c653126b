"""Commits of a process that serves no counters wait in the store until a server counts each of them, once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from contracts.agent_usage import SPENT, AgentUsageContract
from gnomon.adapters.sql import SqlStore, open_store
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity
from gnomon.adapters.sql.metrics_outbox import add_to_outbox
from gnomon.errors import StoreUnavailable
from gnomon.ports.coordination import HintTopic
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.observability.commit_metrics import OutboxEntry
from gnomon.services.observability.metrics import MetricsRecorder
from gnomon.services.observability.outbox_reader import OutboxReader
from support.postgres_server import postgres


@pytest.fixture(params=["sqlite", 18], ids=str)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'gnomon.db'}"
    else:
        async with postgres(request.param).database() as url:
            yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


@pytest.fixture
def worker(store: SqlStore) -> SqlStore:
    """The store as a process sees it that serves no counters."""
    return store.observed(journal=OutboxEntry)


class Server:
    """A server that counts, and its counters."""

    def __init__(self, store: SqlStore, *, jobs: int = 10, active: Callable[[], bool] = lambda: True) -> None:
        self.recorder = MetricsRecorder(max_jobs=jobs)
        self.reader = OutboxReader(
            store.metrics_outbox, AlwaysHeldSingleton(), count=self.recorder.count_changes, active=active
        )

    @property
    def dead_letters(self) -> Counter[str]:
        return +Counter({job: count for (job,), count in self.recorder.counters["dead_letters"].items()})


def dead_letters(*jobs: str) -> Callable[[sa.Connection], None]:
    return lambda conn: notify_activity(conn, lambda observer: observer.dead_lettered(jobs))


def fails(conn: sa.Connection) -> None:
    dead_letters("never")(conn)
    raise ZeroDivisionError


def an_hour_passes_for_the_first(conn: sa.Connection) -> None:
    conn.exec_driver_sql(
        "UPDATE metrics_outbox SET created_at = created_at - 3601000"
        " WHERE number = (SELECT min(number) FROM metrics_outbox)"
    )


async def uncounted(store: SqlStore) -> int:
    found: int = await store.transactions.read(
        lambda conn: conn.exec_driver_sql("SELECT count(*) FROM metrics_outbox").scalar_one()
    )
    return found


@pytest.mark.req("H-14")
async def test_the_usage_of_an_agent_is_counted_with_its_attempt_once(store: SqlStore, worker: SqlStore) -> None:
    one = await AgentUsageContract().ended(store, 1, SPENT)
    for late in (replace(one, fence=one.fence + 1), one, one):
        await worker.attempts.report([late])
    server = Server(store)

    await server.reader.step()

    counters, job = server.recorder.counters, ("triage", "openai:small")
    assert +Counter(counters["agent_tokens"]) == {(*job, "input"): 100, (*job, "output"): 20}
    assert +Counter(counters["agent_cost_micros"]) == {job: 1500}


@pytest.mark.req("H-14")
async def test_commits_of_a_worker_are_counted_by_one_server_once(store: SqlStore, worker: SqlStore) -> None:
    bodies = [dead_letters("report", "mail"), dead_letters("report"), fails] * 5
    await asyncio.gather(*map(worker.transactions.write, bodies), return_exceptions=True)
    server = Server(store)

    await server.reader.step()
    await server.reader.step()

    assert server.dead_letters == {"report": 10, "mail": 5}
    assert await uncounted(store) == 0


@pytest.mark.req("H-14", "H-16")
async def test_of_two_servers_that_read_at_once_one_counts_a_commit(store: SqlStore, worker: SqlStore) -> None:
    for _ in range(30):
        await worker.transactions.write(dead_letters("report"))
    one, other = Server(store), Server(store)

    await asyncio.gather(*(server.reader.step() for server in (one, other, one, other)))

    assert one.dead_letters + other.dead_letters == {"report": 30}


async def test_more_than_fit_into_one_look_are_counted_at_once(store: SqlStore, worker: SqlStore) -> None:
    await asyncio.gather(*(worker.transactions.write(dead_letters("report")) for _ in range(501)))
    server = Server(store)

    waits: list[float] = []
    # A step in which the store is too slow counts nothing, and another one follows.
    while server.dead_letters["report"] < 501:
        waits.append(await server.reader.step())

    assert waits.count(0) == 1
    assert waits[-1] > 0
    assert server.dead_letters == {"report": 501}


async def test_a_write_that_changes_nothing_that_is_counted_leaves_nothing(store: SqlStore, worker: SqlStore) -> None:
    await worker.transactions.write(lambda conn: hint_after_commit(conn, HintTopic.READY))
    await worker.transactions.write(dead_letters())

    assert await uncounted(store) == 0


async def test_a_server_that_stands_by_leaves_the_entries_to_the_one_that_works(
    store: SqlStore, worker: SqlStore
) -> None:
    await worker.transactions.write(dead_letters("report"))
    idle = Server(store, active=lambda: False)

    await idle.reader.step()

    assert (await uncounted(store), idle.dead_letters) == (1, {})


@pytest.mark.guarantee("S25")
async def test_names_of_jobs_from_workers_are_bounded_like_all_others(store: SqlStore, worker: SqlStore) -> None:
    await worker.transactions.write(dead_letters(*(f"job-{number}" for number in range(50))))
    server = Server(store, jobs=3)

    await server.reader.step()

    assert len(server.dead_letters) == 4
    assert server.dead_letters["other"] == 47


async def test_an_entry_of_a_newer_program_does_not_keep_the_others_from_being_counted(
    store: SqlStore, worker: SqlStore
) -> None:
    newer = b'{"counts": [["something_newer", [], 3], ["dead_letters", ["report", "and more"], 1]], "newer": 1}'
    for changes in (newer, b"\xff not JSON"):
        await store.transactions.write(partial(add_to_outbox, changes=changes))
    await worker.transactions.write(dead_letters("report"))
    server = Server(store)

    await server.reader.step()

    assert server.dead_letters == {"report": 1}


async def test_where_no_server_counts_old_entries_are_removed(store: SqlStore, worker: SqlStore) -> None:
    await worker.transactions.write(dead_letters("report"))
    await worker.transactions.write(dead_letters("report"))
    await store.transactions.write(an_hour_passes_for_the_first)
    without_metrics = OutboxReader(store.metrics_outbox, AlwaysHeldSingleton(), count=None, active=lambda: True)

    assert await without_metrics.step() >= 60
    assert await uncounted(store) == 1


async def test_entries_wait_while_the_store_is_away() -> None:
    class Away:
        async def take(self, *, limit: int) -> list[bytes]:
            raise StoreUnavailable(f"away: {limit}")

        async def discard(self, *, older_than_ms: int) -> None:
            raise StoreUnavailable(f"away: {older_than_ms}")

    counting = OutboxReader(Away(), AlwaysHeldSingleton(), count=lambda _: None, active=lambda: True)

    assert await counting.step() > 0
