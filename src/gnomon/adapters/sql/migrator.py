"""Migrates a database to the schema of this program, and checks whether the program supports its schema.

The database stores the number of its schema and the number of the oldest program that supports it. So a new program can
extend the schema while old ones still run; a later version removes what they needed once they are gone.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from gnomon.adapters.sql.postgres_schema import MOVED, VERSION_TABLE, create_schema, schema_of
from gnomon.adapters.sql.schema import gnomon_meta
from gnomon.errors import UsageError

#: The number of the schema that this program was written for.
SCHEMA = 47
#: The entry of `gnomon_meta` with the key that seals cursors. Its length in bytes is that of a SHA-256 digest.
CURSOR_KEY, CURSOR_KEY_BYTES = "cursor_key", 32
#: The key of the advisory lock: an arbitrary constant.
_LOCK = 7_163_071_906


def upgrade(conn: sa.Connection, to: str = "head") -> str:
    """Migrate to the newest schema, or to a revision; return the revision.

    Runs in the caller's transaction: all of it, or nothing.
    """
    with _quiet_alembic():
        return _upgrade(conn, to)


def _upgrade(conn: sa.Connection, to: str) -> str:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    schema = schema_of(conn)
    if conn.dialect.name == "postgresql":
        # Two nodes that start at once migrate one after the other; the second has nothing left to do.
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if schema is not None:
            create_schema(conn, schema)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes |= {"connection": conn, "schema": schema}
    command.upgrade(config, to)
    options = {"version_table": VERSION_TABLE, "version_table_schema": schema}
    return str(MigrationContext.configure(conn, opts=options).get_current_revision())


#: The loggers on which Alembic reports every step.
_VERBOSE_LOGGERS = ("alembic.runtime.plugins", "alembic.runtime.migration")


@contextmanager
def _quiet_alembic() -> Iterator[None]:
    """Keep the information of Alembic in this thread out of the log: the host program may use Alembic, too."""
    here = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.thread != here

    loggers = [logging.getLogger(name) for name in _VERBOSE_LOGGERS]
    for logger in loggers:
        logger.addFilter(passes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(passes)


def is_current(conn: sa.Connection) -> bool:
    """Whether there is nothing to migrate."""
    return schema_numbers(conn)[0] >= SCHEMA


def schema_numbers(conn: sa.Connection) -> tuple[int, int]:
    """The number of the schema, and of the oldest program that it works with; zeros for an empty database."""
    if not sa.inspect(conn).has_table(gnomon_meta.name, schema=schema_of(conn)):
        return 0, 0
    meta = {key: int(value) for key, value in conn.execute(sa.select(gnomon_meta))}
    return meta["schema"], meta["min_compatible"]


def cursor_key(conn: sa.Connection) -> bytes:
    """The key that seals cursors, which a migration has generated."""
    value: str = conn.execute(sa.select(gnomon_meta.c.value).where(gnomon_meta.c.key == CURSOR_KEY)).scalar_one()
    return int(value).to_bytes(CURSOR_KEY_BYTES)


def check_schema(conn: sa.Connection) -> None:
    """Raise UsageError, with the remedy, unless this program supports the schema."""
    schema, min_compatible = schema_numbers(conn)
    if schema == MOVED:
        raise UsageError("the tables were moved to another schema of the database: set database.schema")
    if schema < SCHEMA:
        raise UsageError(f"the database has schema {schema}, this program needs {SCHEMA}: migrate the database")
    if min_compatible > SCHEMA:
        raise UsageError(
            f"the database has schema {schema}, which needs a program of schema {min_compatible} or later;"
            f" this one is of {SCHEMA}: upgrade the program"
        )
