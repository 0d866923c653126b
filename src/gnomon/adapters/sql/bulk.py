"""Bulk statements: one round trip with arrays on PostgreSQL, a few multi-row statements inside the process on SQLite.

Only these statements differ between the two databases, and only these are written as text: SQLAlchemy's expression
language would cost several times as much for each row.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import schema

Rows = Sequence[tuple[Any, ...]]

#: An execution option of connections on which asyncpg may use COPY. COPY leaves a named statement behind, which it must
#: not do on a connection that a pooler shares with other clients.
MAY_COPY = "gnomon_may_copy"
_WORTH_A_COPY = 20
#: On SQLite, one statement for rows that get the same values is faster from this many rows for each statement on.
_WORTH_A_STATEMENT = 4
#: The numbers of rows of one statement on SQLite.
_CHUNKS = (64, 16, 4, 1)
_IN_JSON = "IN (SELECT value FROM json_each(?))"

_ARRAYS = {
    sa.BigInteger: "bigint[]",
    sa.Boolean: "boolean[]",
    sa.Integer: "integer[]",
    sa.LargeBinary: "bytea[]",
    sa.SmallInteger: "smallint[]",
    sa.Text: "text[]",
}
#: The columns that a verdict changes, then those that must be unchanged, in the order of the parameters.
_MOVED = (
    *("mark_at", "next_fire_at", "active_runs", "queued_runs", "spread_until"),
    *("uid", "mark_at", "revision", "active_runs", "queued_runs", "paused_at"),
)
#: How many of them a verdict changes.
_CHANGED = 5
#: SQLite needs two statements. No other transaction can write between them.
_MOVABLE_SQLITE = """
SELECT json_group_array(uid) FROM (VALUES {rows}) AS v JOIN schedule ON uid = v.column1
AND mark_at = v.column2 AND revision = v.column3 AND active_runs = v.column4 AND queued_runs = v.column5
AND paused_at IS v.column6 AND deleted_at IS NULL
"""
_MOVE_POSTGRESQL = """
UPDATE schedule SET mark_at = v.mark_at, next_fire_at = v.next_fire_at,
    active_runs = v.active_runs, queued_runs = v.queued_runs, spread_until = v.spread_until
FROM unnest({arrays}) AS v (mark_at, next_fire_at, active_runs, queued_runs, spread_until,
    uid, old_mark_at, revision, old_active_runs, old_queued_runs, paused_at)
WHERE schedule.uid = v.uid AND schedule.mark_at = v.old_mark_at AND schedule.revision = v.revision
AND schedule.active_runs = v.old_active_runs AND schedule.queued_runs = v.old_queued_runs
AND schedule.paused_at IS NOT DISTINCT FROM v.paused_at AND schedule.deleted_at IS NULL
"""
_LOCK = re.compile(" FOR UPDATE[A-Z ]*")


class Statement(NamedTuple):
    """A statement in the dialect of each database."""

    sqlite: str
    postgresql: str


#: Tells the time by the clock of the store.
StoreNow = Callable[[sa.Connection], int]
#: The time of a database server as an expression; on a file there is no server.
SERVER_CLOCK = Statement("NULL", "(extract(epoch FROM clock_timestamp()) * 1000)::bigint")


class MultiRowStatement(NamedTuple):
    """A statement for SQLite with many rows: `rows` in the text is replaced by the placeholders of all rows."""

    text: str
    columns: int

    def of(self, count: int) -> str:
        """The statement for this number of rows."""
        row = f"({', '.join('?' * self.columns)})"
        return self.text.format(rows=", ".join([row] * count))


class BulkInsert(NamedTuple):
    """An INSERT of many rows."""

    sqlite: str
    postgresql: str
    several: MultiRowStatement


class BulkUpdate(NamedTuple):
    """An UPDATE of many rows. Each row of parameters holds the new values and then the key."""

    sqlite: str
    postgresql: str
    several: MultiRowStatement
    #: For rows that differ only in the first column of the key: parameter `key` is the list of its values.
    alike: Statement
    key: int


# ---- by keys -------------------------------------------------------------------------------------


def statement(sql: str, keys: sa.Column[Any] = schema.task.c.task_id) -> Statement:
    """The statement for both databases, from text with question marks as parameters.

    The parameter of `IN KEYS` is a list of texts, or of values of the type of column `keys`. `FOR UPDATE` is left out
    on SQLite, where no other transaction writes meanwhile.
    """
    number = count(1)
    return Statement(
        _unjournaled(_LOCK.sub("", sql).replace("IN KEYS", _IN_JSON)),
        re.sub(r"\?", lambda _: f"${next(number)}", sql.replace("IN KEYS", f"= ANY (?::{_ARRAYS[type(keys.type)]})")),
    )


def _unjournaled(sql: str) -> str:
    """The statement without a statement journal on SQLite.

    With one, SQLite would copy every page that the statement writes. A failure rolls back the whole transaction anyway.
    """
    return re.sub("^UPDATE ", "UPDATE OR FAIL ", sql)


def fetch_rows(conn: sa.Connection, query: Statement, *parameters: Any) -> Sequence[Sequence[Any]]:  # noqa: ANN401 - columns
    """Execute the statement and return its rows."""
    if conn.dialect.name == "sqlite":
        found: list[tuple[Any, ...]] = conn.connection.cursor().execute(query.sqlite, _as_json(parameters)).fetchall()
        return found
    return conn.exec_driver_sql(query.postgresql, parameters).all()


def execute_statement(conn: sa.Connection, command: Statement, *parameters: Any) -> None:  # noqa: ANN401 - as the columns are
    """Execute the statement."""
    if conn.dialect.name == "sqlite":
        conn.connection.cursor().execute(command.sqlite, _as_json(parameters))
    else:
        conn.exec_driver_sql(command.postgresql, parameters)


def _as_json(parameters: Sequence[Any]) -> list[Any]:
    return [_json(one) if isinstance(one, list) else one for one in parameters]


def _json(keys: list[str]) -> str:
    return msgspec.json.encode(keys).decode()


# ---- by rows -------------------------------------------------------------------------------------


def update_statement(
    table: sa.Table, new: Sequence[str], *, by: Sequence[str], unindexed: Collection[str] = ()
) -> BulkUpdate:
    """The statement that sets the columns `new` where the columns `by` are equal; a row holds both, in this order.

    No index is used on the columns `unindexed` of the key, which are texts. A comparison of a column that a partial
    index has in its condition with a parameter makes SQLite compile the statement again each time it is executed.
    """
    update = f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in new)}"  # noqa: S608 - our own names
    others = "".join(f" AND {name} || '' = ?" if name in unindexed else f" AND {name} = ?" for name in by[1:])
    names = [f"new_{name}" for name in new] + [f"by_{name}" for name in by]
    return BulkUpdate(
        f"{update} WHERE {by[0]} = ?{others}",
        f"UPDATE {table.name} SET {', '.join(f'{name} = v.new_{name}' for name in new)}"  # noqa: S608 - our own names
        f" FROM unnest({_arrays([table.c[name] for name in (*new, *by)])}) AS v ({', '.join(names)})"
        f" WHERE {' AND '.join(f'{table.name}.{name} = v.by_{name}' for name in by)}",
        _multi_row_update(table, new, by),
        statement(f"{update} WHERE {by[0]} IN KEYS{others}", keys=table.c[by[0]]),
        len(new),
    )


def _multi_row_update(table: sa.Table, new: Sequence[str], by: Sequence[str]) -> MultiRowStatement:
    set_to = ", ".join(f"{name} = v.column{number}" for number, name in enumerate(new, 1))
    equal = " AND ".join(f"{table.name}.{name} = v.column{number}" for number, name in enumerate(by, len(new) + 1))
    text = f"UPDATE OR FAIL {table.name} SET {set_to} FROM (VALUES {{rows}}) AS v WHERE {equal}"  # noqa: S608 - our own names
    return MultiRowStatement(text, len(new) + len(by))


@cache
def insert_statement(table: sa.Table, columns: tuple[str, ...], conflict: str = "") -> BulkInsert:
    """The statement that inserts rows of these columns."""
    into = f"INTO {table.name} ({', '.join(columns)})"
    # WHERE true: without it SQLite parses ON CONFLICT as the condition of a join.
    arrays = _arrays([table.c[name] for name in columns])
    return BulkInsert(
        f"INSERT {into} VALUES ({', '.join('?' * len(columns))}) {conflict}",  # noqa: S608 - our own names, here and below
        f"INSERT {into} SELECT * FROM unnest({arrays}) AS v WHERE true {conflict}",  # noqa: S608
        # OR FAIL: no statement journal, see _unjournaled.
        MultiRowStatement(f"INSERT OR FAIL {into} VALUES {{rows}} {conflict}", len(columns)),  # noqa: S608
    )


def execute_many(conn: sa.Connection, command: Statement | BulkInsert | BulkUpdate, rows: Rows) -> None:
    """Execute the statement for every row."""
    if not rows:
        return
    if isinstance(command, BulkUpdate) and _update_alike(conn, command, rows):
        return
    if conn.dialect.name != "sqlite":
        conn.exec_driver_sql(command.postgresql, tuple(zip(*rows, strict=True)))
    elif isinstance(command, Statement):
        conn.connection.cursor().executemany(command.sqlite, rows)
    else:
        _execute_chunks(conn, command, rows)


def _execute_chunks(conn: sa.Connection, command: BulkInsert | BulkUpdate, rows: Rows) -> None:
    """Execute the statement for chunks of rows.

    That saves no work in SQLite. But after each statement the driver takes the interpreter lock again, for which it
    waits behind all other threads.
    """
    execute = conn.connection.cursor().execute
    for size, chunk in _chunks(rows):
        text = command.sqlite if size == 1 else _several(command.several, size)
        execute(text, chunk[0] if size == 1 else [value for row in chunk for value in row])


def _chunks(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """The rows in chunks of a few fixed sizes, so that the driver's statement cache has the statements for them."""
    done = 0
    for size in _CHUNKS:
        while len(rows) - done >= size:
            yield size, rows[done : done + size]
            done += size


@cache
def _several(command: MultiRowStatement, size: int) -> str:
    return command.of(size)


def _update_alike(conn: sa.Connection, command: BulkUpdate, rows: Rows) -> bool:
    """Update rows that get the same values together; False, and nothing done, if too few do.

    On PostgreSQL all rows must get the same values, so that one statement is enough.
    """
    alike: dict[tuple[Any, ...], list[str]] = {}
    key = command.key
    most = len(rows) // _WORTH_A_STATEMENT if conn.dialect.name == "sqlite" else 1
    for row in rows:
        alike.setdefault(row[:key] + row[key + 1 :], []).append(row[key])
        if len(alike) > most:
            return False
    for values, keys in alike.items():
        execute_statement(conn, command.alike, *values[:key], keys, *values[key:])
    return True


def execute_returning_keys(
    conn: sa.Connection, command: BulkInsert, rows: Rows, key: str, *, at: int = 0
) -> Collection[str]:
    """Execute the statement for every row; return the keys of the rows that it wrote.

    `at` is the position of the key in a row of parameters.
    """
    if not rows:
        return set()
    if conn.dialect.name == "sqlite":
        execute = conn.connection.cursor().execute
        return {row[at] for row in rows if execute(command.sqlite, row).rowcount}
    found = conn.exec_driver_sql(f"{command.postgresql} RETURNING {key}", tuple(zip(*rows, strict=True)))
    return {name for (name,) in found}


def execute_returning_rows(conn: sa.Connection, command: Statement, rows: Rows) -> Sequence[Sequence[Any]]:
    """Execute the statement for every row, and return the rows that it returns."""
    if not rows:
        return ()
    if conn.dialect.name == "sqlite":
        execute = conn.connection.cursor().execute
        return [found for row in rows for found in execute(command.sqlite, row).fetchall()]
    return conn.exec_driver_sql(command.postgresql, tuple(zip(*rows, strict=True))).all()


def insert_rows(conn: sa.Connection, table: sa.Table, rows: Rows, columns: tuple[str, ...] = ()) -> None:
    """Insert the rows. Without `columns` they hold the first columns of the table; other columns get their defaults."""
    if not rows:
        return
    columns = columns or tuple(column.name for column in table.columns)[: len(rows[0])]
    if len(rows) >= _WORTH_A_COPY and conn.get_execution_options().get(MAY_COPY):
        _copy(conn, table, columns, rows)
    else:
        execute_many(conn, insert_statement(table, columns), rows)


def update_unchanged_schedules(conn: sa.Connection, rows: Rows) -> Collection[str]:
    """Write new marks and counts of the schedules that are unchanged since they were read; return their uids.

    A row holds the new mark, next fire, counts and end of the spread, then the uid, and the mark, revision, counts and
    pause as read.
    """
    if not rows:
        return set()
    if conn.dialect.name != "sqlite":
        found = conn.exec_driver_sql(f"{_MOVE} RETURNING schedule.uid", tuple(zip(*rows, strict=True)))
        return {uid for (uid,) in found}
    movable: set[str] = set()
    execute = conn.connection.cursor().execute
    for size, chunk in _chunks(rows):
        read = [value for row in chunk for value in row[_CHANGED:]]
        movable |= set(msgspec.json.decode(execute(_several(_MOVABLE, size), read).fetchone()[0]))
    execute_many(conn, _MOVE_TO, [row[: _CHANGED + 1] for row in rows if row[_CHANGED] in movable])
    return movable


def _copy(conn: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
    """Insert the rows by COPY, in the current transaction. It takes half the time of an INSERT from arrays."""
    from sqlalchemy.util import await_only

    driver = conn.connection.driver_connection
    assert driver is not None  # noqa: S101 - the connection is in use
    await_only(driver.copy_records_to_table(table.name, records=rows, columns=columns))


def _arrays(columns: Sequence[sa.Column[Any]]) -> str:
    return ", ".join(f"${number}::{_ARRAYS[type(column.type)]}" for number, column in enumerate(columns, 1))


_MOVE = _MOVE_POSTGRESQL.format(arrays=_arrays([schema.schedule.c[name] for name in _MOVED]))
_MOVABLE = MultiRowStatement(_MOVABLE_SQLITE, len(_MOVED) - _CHANGED)
_MOVE_TO = update_statement(schema.schedule, _MOVED[:_CHANGED], by=("uid",))
