"""Migrates a database to the schema of this program, and checks whether the program supports its schema.

The database stores the number of its schema and the number of the oldest program that supports it. So a new program can
extend the schema while old ones still run; a later version removes what they needed once they are gone.
"""

from pathlib import Path

import sqlalchemy as sa

from gnomon.adapters.sql.schema import gnomon_meta
from gnomon.errors import UsageError

#: The number of the schema that this program was written for.
SCHEMA = 9
#: The key of the advisory lock: an arbitrary constant.
_LOCK = 7_163_071_906


def upgrade(conn: sa.Connection, to: str = "head") -> str:
    """Migrate to the newest schema, or to a revision; return the revision.

    Runs in the caller's transaction: all of it, or nothing.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    if conn.dialect.name == "postgresql":
        # Two nodes that start at once migrate one after the other; the second has nothing left to do.
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, to)
    reached = MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE}).get_current_revision()
    return str(reached)


#: Not Alembic's default name: an application that shares the database may use it.
VERSION_TABLE = "gnomon_migration"


def is_current(conn: sa.Connection) -> bool:
    """Whether there is nothing to migrate."""
    return schema_numbers(conn)[0] >= SCHEMA


def schema_numbers(conn: sa.Connection) -> tuple[int, int]:
    """The number of the schema, and of the oldest program that it works with; zeros for an empty database."""
    if not sa.inspect(conn).has_table(gnomon_meta.name):
        return 0, 0
    meta = {key: int(value) for key, value in conn.execute(sa.select(gnomon_meta))}
    return meta["schema"], meta["min_compatible"]


def check_schema(conn: sa.Connection) -> None:
    """Raise UsageError, with the remedy, unless this program supports the schema."""
    schema, min_compatible = schema_numbers(conn)
    if schema < SCHEMA:
        raise UsageError(f"the database has schema {schema}, this program needs {SCHEMA}: migrate the database")
    if min_compatible > SCHEMA:
        raise UsageError(
            f"the database has schema {schema}, which needs a program of schema {min_compatible} or later;"
            f" this one is of {SCHEMA}: upgrade the program"
        )
