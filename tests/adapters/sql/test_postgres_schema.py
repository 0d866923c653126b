"""The tables on a server are in a schema of their own, unless an older installation has them elsewhere."""

import pytest

from contracts.store import MINUTE, minutely
from gnomon.adapters.sql import SqlStore, migrator, open_postgres
from gnomon.adapters.sql.connect import move_to_schema, wall_clock
from gnomon.adapters.sql.postgres import PostgresTransactions
from gnomon.adapters.sql.schema import metadata
from gnomon.config.settings import load
from gnomon.core.ids import SHARDS
from gnomon.errors import FieldError, UsageError
from support.pooler import Pooler
from support.postgres_server import postgres

SERVER = 18


async def tables(url: str) -> dict[str, set[str]]:
    """The tables in each schema."""
    rows = await postgres(SERVER).run(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
        url=url,
    )
    found: dict[str, set[str]] = {}
    for schema, table in rows:
        found.setdefault(schema, set()).add(table)
    return found


OURS = {*metadata.tables, "gnomon_migration"}


@pytest.fixture
async def url() -> str:
    """A database without any tables, for a user whose name is no schema: those would be found by themselves."""
    server = postgres(SERVER)
    await server.run("DO $$ BEGIN CREATE ROLE ada LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    return (await server.empty()).replace("//gnomon@", "//ada@")


async def older_installation(url: str) -> None:
    """An installation in `public`, as older programs made it, with a job."""
    transactions = PostgresTransactions(url, statement_cache=True, pool_size=1, patience_ms=None)
    await transactions.write(migrator.upgrade)
    await SqlStore(transactions).schedules.add([minutely()], actor="ada", tzdata="")
    await transactions.close()


async def works(store: SqlStore) -> bool:
    """Whether the store has the job, and decides, launches and copies rows."""
    terms = await store.shards.claim("node", ttl_ms=MINUTE, limit=SHARDS)
    await store.shards.leave("node")
    many = [minutely(f"job{number}") for number in range(50)]
    return len(terms) == SHARDS and not await store.schedules.add(many, actor="ada", tzdata="")


async def test_a_new_installation_has_a_schema_of_its_own_beside_the_tables_of_an_application(url: str) -> None:
    await postgres(SERVER).run("CREATE TABLE public.run (theirs int)", url=url)

    store = await open_postgres(url, pool_size=2)

    assert await works(store)
    await store.close()
    assert await tables(url) == {"public": {"run"}, "gnomon": OURS}


async def test_an_older_installation_stays_where_it_is(url: str) -> None:
    await older_installation(url)

    store = await open_postgres(url, pool_size=2)

    assert await store.schedules.find("default", "report") is not None
    assert await works(store)
    await store.close()
    assert await tables(url) == {"public": OURS}


@pytest.mark.parametrize("schema", ["gnomon", "jobs"])
async def test_the_tables_can_be_moved_with_all_that_is_in_them(url: str, schema: str) -> None:
    await older_installation(url)

    await move_to_schema(url, schema)

    assert await tables(url) == {schema: OURS, "public": {"gnomon_meta"}}
    store = await open_postgres(url, schema=schema, pool_size=2)
    assert await store.schedules.find("default", "report") is not None
    assert await works(store)
    await store.close()


async def test_a_program_that_looks_where_the_tables_were_is_refused_and_makes_no_new_ones(url: str) -> None:
    await older_installation(url)
    await move_to_schema(url, "jobs")

    # An older program: it compares these numbers with its own.
    before = PostgresTransactions(url, statement_cache=True, pool_size=1)
    schema, min_compatible = await before.read(migrator.schema_numbers)
    await before.close()
    assert min(schema, min_compatible) > migrator.SCHEMA
    with pytest.raises(UsageError, match=r"set database\.schema"):
        await open_postgres(url)

    assert await tables(url) == {"jobs": OURS, "public": {"gnomon_meta"}}


async def test_tables_in_use_are_not_moved(url: str) -> None:
    await older_installation(url)
    store = await open_postgres(url, pool_size=1)
    await store.shards.renew("node", ttl_ms=MINUTE)

    with pytest.raises(UsageError, match="stop the servers"):
        await move_to_schema(url, "gnomon")

    await store.shards.leave("node")
    assert await works(store)
    await store.close()
    await move_to_schema(url, "gnomon")


async def test_two_installations_share_a_database(url: str) -> None:
    one = await open_postgres(url, pool_size=2)
    with pytest.raises(UsageError, match="for a second installation, create the schema other"):
        await open_postgres(url, schema="other")
    await postgres(SERVER).run("CREATE SCHEMA other", url=url)
    other = await open_postgres(url, schema="other", pool_size=2)

    await one.schedules.add([minutely()], actor="ada", tzdata="")

    assert await one.schedules.find("default", "report") is not None
    assert await other.schedules.find("default", "report") is None
    assert await works(other)
    for store in (one, other):
        await store.close()
    assert await tables(url) == {"gnomon": OURS, "other": OURS}
    with pytest.raises(UsageError, match="another installation"):
        await move_to_schema(url, "other")


async def test_a_schema_without_the_tables_that_exist_is_an_error_with_the_remedy(url: str) -> None:
    await older_installation(url)

    with pytest.raises(UsageError, match="the tables are in public: gnomon db migrate --schema jobs"):
        await open_postgres(url, schema="jobs")

    assert await tables(url) == {"public": OURS}


async def test_a_user_who_may_not_create_a_schema_learns_what_to_grant(url: str) -> None:
    server = postgres(SERVER)
    await server.run("DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    guest = url.replace("//ada@", "//guest@")

    with pytest.raises(UsageError, match="may not create the schema gnomon: GRANT CREATE"):
        await open_postgres(guest)

    await server.run("CREATE SCHEMA gnomon AUTHORIZATION guest", url=url)
    store = await open_postgres(guest, pool_size=2)
    assert await works(store)
    await store.close()


async def test_behind_a_pooler_every_transaction_finds_the_tables(url: str) -> None:
    with Pooler(postgres(SERVER).port, sessions=3) as pooler:
        store = await open_postgres(pooler.through(url), statement_cache=False, pool_size=2)
        await store.schedules.add([minutely()], actor="ada", tzdata="")

        for _ in range(5):
            assert await store.schedules.find("default", "report") is not None
        assert await works(store)
        assert wall_clock() - await store.now() < MINUTE
        await store.close()
    assert await tables(url) == {"gnomon": OURS}


@pytest.mark.parametrize("name", ["Gnomon", "pg_jobs", "a-b", 'x"; DROP', "1st"])
def test_a_name_that_needs_quotes_is_refused(name: str) -> None:
    with pytest.raises(FieldError, match=r"database\.schema"):
        load(flags={"database.schema": name})
