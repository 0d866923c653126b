"""The schema: the same by every way that leads to it, whole or not there, and known to the program."""

import asyncio
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from contracts.store import NOON
from gnomon.adapters.sql import SqlStore, migrate, open_store
from gnomon.adapters.sql import schema as schema_module
from gnomon.adapters.sql.migrations import versions
from gnomon.adapters.sql.migrator import SCHEMA, schema_numbers, upgrade
from gnomon.adapters.sql.postgres_schema import VERSION_TABLE
from gnomon.core.model import Result, RunStatus, TaskId
from gnomon.core.runs.admission import ReadyTask
from gnomon.errors import UsageError
from gnomon.ports.runs import RunQuery
from support.effort import thorough
from support.postgres_server import postgres
from support.task_steps import completion_of, finish_run

#: Everything that makes up a schema, but the table in which migrations are counted.
#: The newest revision.
NEWEST = f"{SCHEMA:04}"
SHAPE = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE tbl_name <> 'gnomon_migration' ORDER BY type, name",
    "postgresql": """
        SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'gnomon_migration'
        UNION ALL
        SELECT tablename, indexname, indexdef, '', '', '' FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'gnomon_migration' ORDER BY 1, 2
    """,
}
HALF = """
import sys
import sqlalchemy as sa
from gnomon.adapters.sql.migrator import upgrade
from gnomon.adapters.sql.sqlite import engine_for

with engine_for(sys.argv[1], begin="BEGIN IMMEDIATE", connections=1).begin() as conn:
    @sa.event.listens_for(conn, "after_cursor_execute")
    def stop(conn, cursor, statement, *_):
        if "CREATE INDEX run_of_schedule" in statement:
            print("half-way", flush=True)
            sys.stdin.read()
    upgrade(conn)
"""


@pytest.fixture(params=["sqlite", pytest.param(16, marks=pytest.mark.thorough), 18], ids=str)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return await postgres(request.param).empty()


@pytest.fixture
async def created(url: str) -> AsyncIterator[SqlStore]:
    """A store whose tables were made after the metadata, not by migrations."""
    store = await unready(url)
    await store.transactions.write(schema_module.metadata.create_all)
    yield store
    await store.close()


async def unready(url: str) -> SqlStore:
    """A store whatever its schema."""
    if url.startswith("sqlite"):
        from gnomon.adapters.sql.sqlite import SqliteTransactions

        return SqlStore(SqliteTransactions(url.removeprefix("sqlite:///"), now=lambda: NOON))
    from gnomon.adapters.sql.postgres import PostgresTransactions

    # Without limits on time, as a migration has it.
    return SqlStore(PostgresTransactions(url, statement_cache=True, pool_size=2, patience_ms=None))


def shape(conn: sa.Connection) -> list[tuple[Any, ...]]:
    found = conn.exec_driver_sql(SHAPE[conn.dialect.name])
    return [tuple(" ".join(str(part).split()) for part in row) for row in found]


async def test_migrations_lead_to_the_tables_that_the_program_knows(created: SqlStore) -> None:
    expected = await created.transactions.read(shape)
    await created.transactions.write(schema_module.metadata.drop_all)

    await created.transactions.write(upgrade)

    assert await created.transactions.read(shape) == expected


async def test_nothing_is_left_to_generate(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    def differences(conn: sa.Connection) -> list[Any]:
        context = MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE})
        return list(compare_metadata(context, schema_module.metadata))

    store = await open_store(url)

    assert await store.transactions.read(differences) == []
    await store.close()


async def test_the_key_of_cursors_is_made_once_for_all_processes(url: str) -> None:
    stores = [await open_store(url), await open_store(url)]
    keys = [await store.cursor_key() for store in stores]
    await migrate(url)
    again = await open_store(url)
    keys.append(await again.cursor_key())
    for store in (*stores, again):
        await store.close()

    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    assert len(set(keys[0])) > 10


async def test_migrating_again_changes_nothing(url: str) -> None:
    assert [await migrate(url), await migrate(url)] == [NEWEST, NEWEST]


async def test_two_who_migrate_at_once_take_turns(url: str) -> None:
    one, other = await unready(url), await unready(url)

    reached = await asyncio.gather(*(store.transactions.write(upgrade) for store in (one, other)))

    assert reached == [NEWEST, NEWEST]
    await asyncio.gather(one.close(), other.close())


async def test_every_shard_is_there_and_has_had_no_term(url: str) -> None:
    store = await open_store(url)

    assert await store.shards.claim("a", ttl_ms=1000, limit=1000) == dict.fromkeys(range(256), 1)
    await store.close()


async def test_a_migration_that_fails_half_way_leaves_nothing(url: str) -> None:
    store = await unready(url)

    def fails(conn: sa.Connection) -> None:
        upgrade(conn)
        raise LookupError("half-way")

    with pytest.raises(LookupError):
        await store.transactions.write(fails)

    assert await store.transactions.read(lambda conn: sa.inspect(conn).get_table_names()) == []
    assert await store.transactions.write(upgrade) == NEWEST
    await store.close()


def test_a_migration_that_is_killed_half_way_leaves_nothing(tmp_path: Path) -> None:
    database = str(tmp_path / "gnomon.db")
    started = [sys.executable, "-c", HALF, database]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half-way\n"
        process.kill()

    engine = sa.create_engine(f"sqlite:///{database}")
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()
    assert asyncio.run(migrate(f"sqlite:///{database}")) == NEWEST


async def test_an_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(UsageError, match="mysql"):
        await open_store("mysql://localhost/gnomon")


@pytest.mark.parametrize("schema", ["0001", *map(thorough, ("0002", "0003", "0004", "0005", "0006")), "0007"])
async def test_rows_of_an_older_schema_exist_after_the_upgrade(url: str, schema: str) -> None:
    store = await unready(url)
    await store.transactions.write(partial(upgrade, to=schema))
    await store.transactions.write(written_under_the_first_schema)

    assert await store.transactions.write(upgrade) == NEWEST

    found = await store.schedules.find("default", "report")
    assert found is not None
    assert (found.spec.workflow_id, found.spec.delete_after_run, found.active_runs) == ("report", False, 1)
    [waiting] = await store.tasks.waiting(NOON, limit=10)
    assert (waiting.run.run_id, waiting.run.started_at, waiting.task.attempts) == ("run_1", None, 0)
    assert await finish_run(store, waiting.run, now=NOON)
    assert [run.status for run in await store.executions.list_runs(RunQuery())] == [RunStatus.COMPLETED]
    await store.close()


async def test_active_work_of_the_second_schema_continues_after_the_upgrade(url: str) -> None:
    store = await unready(url)
    await store.transactions.write(partial(upgrade, to="0002"))
    await store.transactions.write(written_under_the_first_schema)
    await store.transactions.write(taken_under_the_second_schema)

    assert await store.transactions.write(upgrade) == NEWEST

    [held] = (await store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts
    assert (held.task.parent, held.task.open_items, held.task.skipped) == (None, 0, False)
    assert (held.run.parent_task, held.run.depth) == (None, 0)
    assert await store.attempts.report(
        [completion_of(ReadyTask(task=held.task, run=held.run), Result.SUCCEEDED, now=NOON)]
    )
    assert [run.status for run in await store.executions.list_runs(RunQuery())] == [RunStatus.COMPLETED]
    await store.close()


def taken_under_the_second_schema(conn: sa.Connection) -> None:
    """The run has begun, and a worker has its task in hand."""
    conn.execute(sa.text("UPDATE task SET state = 'RUNNING', fence = 1"))
    conn.execute(sa.text("UPDATE run SET status = 'running', started_at = created_at"))
    attempt = (
        "INSERT INTO attempt (task_id, number, worker, lease_until, dispatched_at) VALUES ('task_1', 1, 'w', 1, 1)"
    )
    conn.execute(sa.text(attempt))


def written_under_the_first_schema(conn: sa.Connection) -> None:
    """A schedule with a run, in the columns that there were."""
    spec: dict[str, Any] = {"trigger_kind": "every", "period_ms": 60_000, "anchor_at": NOON, "workflow_id": "report"}
    spec |= {"workflow_version": 1, "user_id": "", "first_steps": '["main"]', "overlap": "skip", "catchup": "none"}
    spec |= dict.fromkeys(("jitter_ms", "misfire_grace_ms", "catchup_window_ms", "lookahead_ms"), 0)
    spec |= {"catchup_cap": 1, "queue_limit": 1}
    schedule: dict[str, Any] = {
        "uid": "sch_1",
        "tenant": "default",
        "schedule_id": "report",
        "revision": 1,
        "shard": 0,
        **spec,
    }
    schedule |= {"mark_at": NOON, "active_runs": 1, "queued_runs": 0, "created_at": NOON, "updated_at": NOON}
    run: dict[str, Any] = {"run_id": "run_1", "tenant": "default", "schedule_uid": "sch_1", "schedule_id": "report"}
    run |= {"workflow_id": "report", "workflow_version": 1, "user_id": "", "source": "cron", "status": "pending"}
    run |= {"queued": False, "planned_at": NOON, "fire_at": NOON, "created_at": NOON}
    task: dict[str, Any] = {
        "task_id": "task_1",
        "tenant": "default",
        "run_id": "run_1",
        "step": "main",
        "state": "PENDING",
    }
    task |= {"wait_reason": "ready", "available_at": NOON, "created_at": NOON}
    for name, row in {"schedule": schedule, "run": run, "task": task}.items():
        columns = ", ".join(row)
        values = ", ".join(f":{column}" for column in row)
        conn.execute(sa.text(f"INSERT INTO {name} ({columns}) VALUES ({values})"), row)  # noqa: S608 - our own names


# ---- programs and schemas of different ages ------------------------------------------------------


async def numbered(url: str, schema: int, min_compatible: int) -> None:
    """A database that says these numbers of itself."""
    store = await open_store(url)
    for key, value in {"schema": schema, "min_compatible": min_compatible}.items():
        changed = (
            sa.update(schema_module.gnomon_meta).where(schema_module.gnomon_meta.c.key == key).values(value=str(value))
        )
        await store.transactions.write(partial(sa.Connection.execute, statement=changed))
    await store.close()


#: Migrations up to this one are older than the rule; the one after it raised the number for all of them.
BEFORE_THE_RULE = 15


@pytest.mark.guarantee("C12")
def test_every_migration_declares_the_oldest_program_that_may_use_the_schema_and_says_what_it_does() -> None:
    declared = {}
    for info in pkgutil.iter_modules(versions.__path__):
        module = importlib.import_module(f"{versions.__name__}.{info.name}")
        number = int(module.revision)
        if number > BEFORE_THE_RULE:
            assert 1 <= module.MIN_COMPATIBLE <= number, f"{info.name} lacks MIN_COMPATIBLE: see CONTRIBUTING.md"
            declared[number] = module.MIN_COMPATIBLE

    in_order = [declared[number] for number in sorted(declared)]
    assert in_order == sorted(in_order)


@pytest.mark.guarantee("C12")
async def test_a_new_database_keeps_out_the_programs_that_its_last_migration_keeps_out(url: str) -> None:
    store = await open_store(url)
    _, oldest = await store.transactions.read(schema_numbers)
    await store.close()

    newest = max((info.name for info in pkgutil.iter_modules(versions.__path__)), key=str)
    assert oldest == importlib.import_module(f"{versions.__name__}.{newest}").MIN_COMPATIBLE
    # Programs before exceptions fire a tick that was skipped.
    assert oldest > 5


async def test_an_empty_database_that_may_not_be_migrated_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="migrate the database"):
        await open_store(url, migrate=False)


async def test_a_newer_schema_that_still_works_with_this_program_is_accepted(url: str) -> None:
    await numbered(url, SCHEMA + 1, SCHEMA)

    await (await open_store(url)).close()


async def test_a_newer_schema_that_no_longer_works_with_this_program_is_refused(url: str) -> None:
    await numbered(url, SCHEMA + 2, SCHEMA + 1)

    with pytest.raises(UsageError, match="upgrade the program"):
        await open_store(url)
