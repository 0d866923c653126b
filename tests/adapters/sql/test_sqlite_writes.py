"""How SQLite is written to: many share a commit, none spoils it for others, and a disk that fails may recover."""

import asyncio
import os
import resource
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from contracts.store import NOON, minutely
from gnomon.adapters.sql import SqlStore, open_sqlite, sqlite
from gnomon.adapters.sql.schema import node
from gnomon.adapters.sql.sqlite import SqliteTransactions, _execute_pragma
from gnomon.errors import StoreUnavailable, UsageError


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "gnomon.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(path, now=lambda: NOON)
    yield store
    await store.close()


@pytest.fixture
def engine(store: SqlStore) -> SqliteTransactions:
    assert isinstance(store.transactions.engine, SqliteTransactions)
    return store.transactions.engine


def seen(conn: sa.Connection, name: str) -> str:
    conn.execute(sa.insert(node), {"holder": name, "seen_until": 1})
    return name


def names(conn: sa.Connection) -> list[str]:
    return list(conn.scalars(sa.select(node.c.holder).order_by(node.c.holder)))


@pytest.mark.req("H-22")
async def test_only_its_owner_can_read_a_new_database_and_its_log(store: SqlStore, path: str) -> None:
    await store.transactions.write(lambda conn: seen(conn, "a"))

    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in Path(path).parent.iterdir()}
    assert files == dict.fromkeys(("gnomon.db", "gnomon.db-wal", "gnomon.db-shm"), 0o600)


async def test_jobs_that_pile_up_share_a_commit(engine: SqliteTransactions) -> None:
    before = engine.commits

    done = await asyncio.gather(*(engine.write(partial(seen, name=f"n{i:03d}")) for i in range(200)))

    assert done == [f"n{i:03d}" for i in range(200)]
    assert engine.commits - before <= 5
    assert len(await engine.read(names)) == 200


def many_seen(conn: sa.Connection, count: int, word: str = "n") -> None:
    conn.execute(sa.insert(node), [{"holder": f"{word}{number:05d}", "seen_until": 1} for number in range(count)])


def in_the_file_itself(path: str) -> int:
    """How many rows there are for one who does not look at the log beside the file."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
        return int(file.execute("SELECT count(*) FROM node").fetchone()[0])


@pytest.fixture
async def checkpoints(engine: SqliteTransactions) -> asyncio.Semaphore:
    """As many as were made in quiet moments, to be waited for."""
    made = asyncio.Semaphore(0)
    loop, checkpoint = asyncio.get_running_loop(), engine.checkpoint

    def watched() -> None:
        checkpoint()
        loop.call_soon_threadsafe(made.release)

    engine.checkpoint = watched  # type: ignore[method-assign]
    return made


async def test_a_quiet_moment_after_much_was_written_is_used_for_a_checkpoint(
    engine: SqliteTransactions, path: str, checkpoints: asyncio.Semaphore
) -> None:
    await engine.write(partial(many_seen, count=5000))

    async with asyncio.timeout(30):
        await checkpoints.acquire()
    assert in_the_file_itself(path) == 5000


async def test_quiet_moments_are_used_after_a_new_connection_which_has_written_less_than_the_old_one(
    engine: SqliteTransactions, path: str, checkpoints: asyncio.Semaphore
) -> None:
    def failing(_: sa.Connection) -> None:
        raise StoreUnavailable("away")

    await engine.write(partial(many_seen, count=7000))
    async with asyncio.timeout(30):
        await checkpoints.acquire()
    with pytest.raises(StoreUnavailable):
        await engine.write(failing)
    await engine.write(partial(seen, name="again"))
    await engine.write(partial(many_seen, count=5000, word="m"))

    async with asyncio.timeout(30):
        await checkpoints.acquire()
    assert in_the_file_itself(path) == 12_001


async def test_a_checkpoint_that_cannot_be_made_is_left_to_a_commit(engine: SqliteTransactions, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM node").fetchone()
        await engine.write(partial(many_seen, count=10))

        await asyncio.to_thread(engine.checkpoint)

    assert await engine.write(partial(seen, name="later")) == "later"


async def test_a_job_that_fails_takes_back_what_it_did_and_spoils_no_other(engine: SqliteTransactions) -> None:
    def failing(conn: sa.Connection) -> None:
        seen(conn, "half")
        raise LookupError("no")

    first, failed, last = await asyncio.gather(
        engine.write(partial(seen, name="a")),
        engine.write(failing),
        engine.write(partial(seen, name="b")),
        return_exceptions=True,
    )

    assert (first, last) == ("a", "b")
    assert isinstance(failed, LookupError)
    assert await engine.read(names) == ["a", "b"]


async def test_a_lone_job_that_fails_leaves_nothing_behind(engine: SqliteTransactions) -> None:
    def failing(conn: sa.Connection) -> None:
        seen(conn, "half")
        raise LookupError("no")

    with pytest.raises(LookupError):
        await engine.write(failing)

    assert await engine.read(names) == []


async def test_a_reader_sees_what_is_committed_and_does_not_wait(engine: SqliteTransactions) -> None:
    written, go = threading.Event(), threading.Event()

    def slow(conn: sa.Connection) -> None:
        seen(conn, "a")
        written.set()
        go.wait(10)

    writing = asyncio.create_task(engine.write(slow))
    await asyncio.to_thread(written.wait, 10)
    before = await engine.read(names)
    go.set()
    await writing

    assert before == []
    assert await engine.read(names) == ["a"]


async def test_one_who_stops_waiting_harms_nobody(engine: SqliteTransactions) -> None:
    impatient = asyncio.create_task(engine.write(partial(seen, name="a")))
    await asyncio.sleep(0)
    impatient.cancel()

    assert await engine.write(partial(seen, name="b")) == "b"


async def test_writes_requested_before_closing_are_committed(path: str, store: SqlStore) -> None:
    adding = [asyncio.create_task(store.schedules.add([minutely(f"s{i}")], actor="ada", tzdata="")) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*adding)

    again = await open_sqlite(path)
    assert len(await again.schedules.page("default", after="", limit=100)) == 20
    await again.close()


async def test_a_closed_store_says_so(store: SqlStore) -> None:
    await store.close()

    for asked in (store.schedules.find("default", "a"), store.shards.release("a", [1])):
        with pytest.raises(StoreUnavailable, match="closed"):
            await asked


# ---- a world that fails --------------------------------------------------------------------------


async def reopened(path: str, store: SqlStore) -> SqlStore:
    """The store again, its connections opened anew."""
    await store.close()
    return await open_sqlite(path, migrate=False)


@pytest.mark.guarantee("E4")
async def test_a_full_disk_is_unavailable_and_service_resumes_when_there_is_room(
    path: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sqlite.PRAGMAS, "max_page_count", "1")  # no more than there are
    full = await reopened(path, store)
    many = [minutely(f"s{i}") for i in range(2000)]

    with pytest.raises(StoreUnavailable, match="full"):
        await full.schedules.add(many, actor="ada", tzdata="")
    assert await full.schedules.page("default", after="", limit=10) == []

    monkeypatch.delitem(sqlite.PRAGMAS, "max_page_count")
    assert await full.schedules.add(many, actor="ada", tzdata="") == frozenset()
    await full.close()


@pytest.mark.guarantee("E4")
async def test_an_error_of_the_disk_is_unavailable_to_all_who_shared_the_transaction(store: SqlStore) -> None:
    many = [minutely(f"s{i}") for i in range(3000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        outcomes = await asyncio.gather(
            *(store.schedules.add(part, actor="ada", tzdata="") for part in (many[:1000], many[1000:])),
            return_exceptions=True,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert await store.schedules.page("default", after="", limit=10) == []
    assert await store.schedules.add(many, actor="ada", tzdata="") == frozenset()


async def test_a_disk_that_cannot_be_written_is_unavailable(
    path: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sqlite.PRAGMAS, "query_only", "1")
    closed = await reopened(path, store)

    with pytest.raises(StoreUnavailable, match="readonly"):
        await closed.schedules.add([minutely()], actor="ada", tzdata="")

    monkeypatch.delitem(sqlite.PRAGMAS, "query_only")
    assert await closed.schedules.add([minutely()], actor="ada", tzdata="") == frozenset()
    await closed.close()


async def test_a_database_that_another_writes_to_for_too_long_is_unavailable(
    path: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sqlite.PRAGMAS, "busy_timeout", "20")
    hasty = await reopened(path, store)
    other = sqlite.engine_for(path, begin="BEGIN IMMEDIATE", connections=1)

    with other.begin(), pytest.raises(StoreUnavailable, match="locked"):
        await hasty.schedules.add([minutely()], actor="ada", tzdata="")

    assert await hasty.schedules.add([minutely()], actor="ada", tzdata="") == frozenset()
    await hasty.close()
    other.dispose()


async def test_a_file_that_is_taken_away_is_unavailable_and_nobody_makes_an_empty_one_in_its_place(
    path: str, store: SqlStore, engine: SqliteTransactions
) -> None:
    await engine.read(lambda conn: conn.invalidate())
    os.unlink(path)  # noqa: PTH108 - nothing that would block for long

    with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
        await store.schedules.find("default", "beat")

    assert "gnomon.db" not in os.listdir(os.path.dirname(path))  # noqa: PTH120, PTH208


@pytest.mark.parametrize("name", ["a b.db", "what?.db", "100%25.db", "#1.db", "é.db"])
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    store = await open_sqlite(str(tmp_path / name), now=lambda: NOON)
    await store.close()

    assert os.listdir(tmp_path) == [name]  # noqa: PTH208


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        await open_sqlite(str(tmp_path / "nowhere" / "gnomon.db"))


async def test_a_file_that_is_no_database_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at as one" * 100)

    with pytest.raises(UsageError, match="text is no database"):
        await open_sqlite(str(tmp_path / "text"))


def test_a_file_whose_journal_others_are_changing_is_asked_for_again() -> None:
    class Busy:
        def __init__(self) -> None:
            self.asked = 0

        def execute(self, _: str) -> None:
            self.asked += 1
            if self.asked < 3:
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error

    connection = Busy()
    _execute_pragma(connection, "PRAGMA journal_mode = WAL")

    assert connection.asked == 3
