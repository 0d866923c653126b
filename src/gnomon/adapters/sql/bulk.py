"""Many rows at once: one round trip of arrays on PostgreSQL, a tight loop inside the process on SQLite.

These are the only statements that differ between the two, and the only ones in a dialect of their own: through
the expression language each row would cost several times as much.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import tables

Rows = Sequence[tuple[Any, ...]]

#: An option of connections on which asyncpg may use COPY. It names a statement for that, and a named statement
#: must not be left behind on a connection that a pooler gives to others.
MAY_COPY = "gnomon_may_copy"
_WORTH_A_COPY = 20

_ARRAYS = {
    sa.BigInteger: "bigint[]",
    sa.Boolean: "boolean[]",
    sa.Integer: "integer[]",
    sa.LargeBinary: "bytea[]",
    sa.SmallInteger: "smallint[]",
    sa.Text: "text[]",
}
#: What a verdict rests on and what it changes, in the order in which both statements take them.
_MOVED = (
    *("mark_at", "next_fire_at", "active_runs", "queued_runs"),
    *("uid", "mark_at", "revision", "active_runs", "queued_runs", "paused_at"),
)
_MOVE_SQLITE = """
UPDATE schedule SET mark_at = ?, next_fire_at = ?, active_runs = ?, queued_runs = ?
WHERE uid = ? AND mark_at = ? AND revision = ? AND active_runs = ? AND queued_runs = ? AND paused_at IS ?
AND deleted_at IS NULL
"""
_MOVE_POSTGRESQL = """
UPDATE schedule SET mark_at = v.mark_at, next_fire_at = v.next_fire_at,
    active_runs = v.active_runs, queued_runs = v.queued_runs
FROM unnest({arrays}) AS v (mark_at, next_fire_at, active_runs, queued_runs,
    uid, old_mark_at, revision, old_active_runs, old_queued_runs, paused_at)
WHERE schedule.uid = v.uid AND schedule.mark_at = v.old_mark_at AND schedule.revision = v.revision
AND schedule.active_runs = v.old_active_runs AND schedule.queued_runs = v.old_queued_runs
AND schedule.paused_at IS NOT DISTINCT FROM v.paused_at AND schedule.deleted_at IS NULL
RETURNING schedule.uid
"""
_NAME_IS_TAKEN = "ON CONFLICT (tenant, schedule_id) WHERE deleted_at IS NULL DO NOTHING"


def insert(conn: sa.Connection, table: sa.Table, rows: Rows) -> None:
    """Every row stands in the table, its last columns left to their defaults if the rows are shorter."""
    if not rows:
        return
    if len(rows) >= _WORTH_A_COPY and conn.get_execution_options().get(MAY_COPY):
        _copy(conn, table, rows)
        return
    sql = _insertion(conn.dialect.name, table, len(rows[0]))
    conn.exec_driver_sql(sql, list(rows) if conn.dialect.name == "sqlite" else tuple(zip(*rows, strict=True)))


def insert_schedules(conn: sa.Connection, rows: Rows) -> Collection[str]:
    """Those rows of schedules whose names are free stand in the table; their uids come back."""
    if not rows:
        return set()
    sql = f"{_insertion(conn.dialect.name, tables.schedule, len(rows[0]))} {_NAME_IS_TAKEN}"
    if conn.dialect.name == "sqlite":
        return _one_by_one(conn, sql, rows, uid=0)
    found = conn.exec_driver_sql(f"{sql} RETURNING uid", tuple(zip(*rows, strict=True)))
    return {uid for (uid,) in found}


def move_schedules(conn: sa.Connection, rows: Rows) -> Collection[str]:
    """Each schedule that is still as it was read has its new mark and counts; the uids of these come back.

    A row holds the new mark, next fire and counts, then the uid, and what was read: the mark, the revision, the
    counts and the pause.
    """
    if not rows:
        return set()
    if conn.dialect.name == "sqlite":
        return _one_by_one(conn, _MOVE_SQLITE, rows, uid=4)
    found = conn.exec_driver_sql(_move_postgresql(), tuple(zip(*rows, strict=True)))
    return {uid for (uid,) in found}


def _one_by_one(conn: sa.Connection, sql: str, rows: Rows, *, uid: int) -> Collection[str]:
    execute = conn.connection.cursor().execute
    return {row[uid] for row in rows if execute(sql, row).rowcount}


def _copy(conn: sa.Connection, table: sa.Table, rows: Rows) -> None:
    """As COPY, which takes half the time of arrays, in the transaction that the connection is in."""
    from sqlalchemy.util import await_only

    driver = conn.connection.driver_connection
    assert driver is not None  # noqa: S101 - the connection is in use
    columns = [column.name for column in table.columns][: len(rows[0])]
    await_only(driver.copy_records_to_table(table.name, records=rows, columns=columns))


@cache
def _insertion(dialect: str, table: sa.Table, width: int) -> str:
    columns = tuple(table.columns)[:width]
    into = f"INSERT INTO {table.name} ({', '.join(column.name for column in columns)})"
    if dialect == "sqlite":
        return f"{into} VALUES ({', '.join('?' * width)})"
    # The condition keeps the parser from taking ON CONFLICT for the condition of a join.
    return f"{into} SELECT * FROM unnest({_arrays(columns)}) AS v WHERE true"  # noqa: S608 - our own names


@cache
def _move_postgresql() -> str:
    return _MOVE_POSTGRESQL.format(arrays=_arrays([tables.schedule.c[name] for name in _MOVED]))


def _arrays(columns: Sequence[sa.Column[Any]]) -> str:
    return ", ".join(f"${number}::{_ARRAYS[type(column.type)]}" for number, column in enumerate(columns, 1))
