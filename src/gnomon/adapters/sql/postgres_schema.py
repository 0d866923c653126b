"""The schema of a PostgreSQL database that holds our tables: our own, so that they lie beside those of an application.

Tables of older installations are where the connection finds them, mostly in `public`. They stay there until an operator
moves them.
"""

import sqlalchemy as sa

from gnomon.adapters.sql.schema import metadata
from gnomon.errors import UsageError

#: The schema of new installations.
DEFAULT = "gnomon"
#: An execution option of connections: the schema that they use; None for whatever the connection finds.
SCHEMA_OPTION = "gnomon_schema"
#: Not Alembic's default name: an application that shares the database may use it.
VERSION_TABLE = "gnomon_migration"
#: The number of the schema, and of the oldest program, that is left where the tables were: no program accepts it.
MOVED = 1_000_000
_WHERE = sa.text(
    "SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.oid = to_regclass(:table)"
)
_EXISTS = sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
_META = "gnomon_meta"


def schema_of(conn: sa.Connection) -> str | None:
    """The schema that the connection uses; None for whatever it finds, and on SQLite."""
    name: str | None = conn.get_execution_options().get(SCHEMA_OPTION)
    return name


def find_schema(conn: sa.Connection, configured: str = "") -> str | None:
    """The schema to use: the configured one, or the one with the tables, or the default for a new installation.

    None if the tables are where the connection finds them by itself. UsageError if the configured one does not exist,
    but another one has the tables: a scheduler without jobs would start beside them.
    """
    wanted = configured or DEFAULT
    if _schema_with(conn, f"{wanted}.{_META}"):
        return wanted
    found = _schema_with(conn, _META) or _schema_with(conn, f"{DEFAULT}.{_META}")
    if found is None or (configured and conn.scalar(_EXISTS, {"name": configured})):
        return wanted
    if not configured:
        return None
    raise UsageError(
        f"database.schema is {configured}, but the tables are in {found}: gnomon db migrate --schema {configured} moves"
        f" them, once all servers and workers are stopped; for a second installation, create the schema {configured}"
    )


def _schema_with(conn: sa.Connection, table: str) -> str | None:
    name: str | None = conn.scalar(_WHERE, {"table": table})
    return name


def create_schema(conn: sa.Connection, name: str) -> None:
    """Create the schema, unless it exists. UsageError if the user may not."""
    # IF NOT EXISTS would demand the right to create a schema, even if there is one.
    if conn.scalar(_EXISTS, {"name": name}):
        return
    if not conn.scalar(sa.text("SELECT has_database_privilege(current_database(), 'CREATE')")):
        raise UsageError(
            f"this user may not create the schema {name}: GRANT CREATE ON DATABASE, or create it and grant its use,"
            " or set database.schema to a schema that exists"
        )
    conn.exec_driver_sql(f'CREATE SCHEMA "{name}"')


def move_tables(conn: sa.Connection, to: str) -> None:
    """Move all tables into the schema; UsageError while servers or workers are alive.

    Programs that look where the tables were find a table that they refuse: otherwise they would create new ones there.
    """
    found = _schema_with(conn, _META)
    if found is None or found == to:
        return
    if _schema_with(conn, f"{to}.{_META}"):
        raise UsageError(f"the schema {to} holds the tables of another installation")
    names = [*metadata.tables, VERSION_TABLE]
    conn.exec_driver_sql(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")
    _refuse_live(conn)
    create_schema(conn, to)
    for name in names:
        conn.exec_driver_sql(f'ALTER TABLE "{found}"."{name}" SET SCHEMA "{to}"')
    conn.exec_driver_sql(f'CREATE TABLE "{found}"."{_META}" (key text PRIMARY KEY, value text NOT NULL)')
    values = f"('schema', '{MOVED}'), ('min_compatible', '{MOVED}')"
    conn.exec_driver_sql(f'INSERT INTO "{found}"."{_META}" (key, value) VALUES {values}')  # noqa: S608 - our own names


def _refuse_live(conn: sa.Connection) -> None:
    for table, what in (("node", "servers"), ("worker", "workers")):
        now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        count = conn.exec_driver_sql(f"SELECT count(*) FROM {table} WHERE seen_until > {now}").scalar()  # noqa: S608 - our own
        if count:
            raise UsageError(f"the tables are in use: stop the {what}, and wait until their leases end")
