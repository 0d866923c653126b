"""Many rows at once: one round trip of arrays on PostgreSQL, a tight loop inside the process on SQLite.

These are the only statements that differ between the two, and the only ones written as text: through the expression
language each row would cost several times as much.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import schema

Rows = Sequence[tuple[Any, ...]]

#: An option of connections on which asyncpg may use COPY. It names a statement for that, and a named statement
#: must not be left behind on a connection that a pooler gives to others.
MAY_COPY = "gnomon_may_copy"
_WORTH_A_COPY = 20
#: How many rows there must be for each statement on SQLite for it to be quicker than one statement a row.
_WORTH_A_STATEMENT = 4
#: How many rows SQLite is given at once.
_PORTIONS = (64, 16, 4, 1)
_AMONG = "IN (SELECT value FROM json_each(?))"

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
#: On SQLite nobody else writes between the two.
_MOVABLE_SQLITE = """
SELECT json_group_array(uid) FROM (VALUES {rows}) AS v JOIN schedule ON uid = v.column1
AND mark_at = v.column2 AND revision = v.column3 AND active_runs = v.column4 AND queued_runs = v.column5
AND paused_at IS v.column6 AND deleted_at IS NULL
"""
_MOVE_POSTGRESQL = """
UPDATE schedule SET mark_at = v.mark_at, next_fire_at = v.next_fire_at,
    active_runs = v.active_runs, queued_runs = v.queued_runs
FROM unnest({arrays}) AS v (mark_at, next_fire_at, active_runs, queued_runs,
    uid, old_mark_at, revision, old_active_runs, old_queued_runs, paused_at)
WHERE schedule.uid = v.uid AND schedule.mark_at = v.old_mark_at AND schedule.revision = v.revision
AND schedule.active_runs = v.old_active_runs AND schedule.queued_runs = v.old_queued_runs
AND schedule.paused_at IS NOT DISTINCT FROM v.paused_at AND schedule.deleted_at IS NULL
"""
_LOCK = re.compile(" FOR UPDATE[A-Z ]*")


class Statement(NamedTuple):
    """One thing to ask, in the words of each database."""

    sqlite: str
    postgresql: str


class MultiRowStatement(NamedTuple):
    """The same for SQLite with many rows: they stand where `rows` is in the text, each as so many question marks."""

    text: str
    columns: int

    def of(self, count: int) -> str:
        """The statement with so many rows."""
        row = f"({', '.join('?' * self.columns)})"
        return self.text.format(rows=", ".join([row] * count))


class BulkInsert(NamedTuple):
    """One thing to insert, by the row."""

    sqlite: str
    postgresql: str
    several: MultiRowStatement


class BulkUpdate(NamedTuple):
    """The same with many rows, each of which holds new values and then the key of the row that gets them."""

    sqlite: str
    postgresql: str
    several: MultiRowStatement
    #: For rows that are alike but for the first part of their key: a list of these stands at the place `key`.
    alike: Statement
    key: int


# ---- by keys -------------------------------------------------------------------------------------


def statement(sql: str, keys: sa.Column[Any] = schema.task.c.task_id) -> Statement:
    """The statement, whose parameters are question marks.

    `IN KEYS` takes a list of texts, or of what is in that column. Rows are locked on PostgreSQL alone: on SQLite
    nobody else writes meanwhile.
    """
    number = count(1)
    return Statement(
        _unjournaled(_LOCK.sub("", sql).replace("IN KEYS", _AMONG)),
        re.sub(r"\?", lambda _: f"${next(number)}", sql.replace("IN KEYS", f"= ANY (?::{_ARRAYS[type(keys.type)]})")),
    )


def _unjournaled(sql: str) -> str:
    """The statement, which SQLite need not be able to take back by itself.

    It would copy every page that the statement writes. Whoever fails takes everything back anyway.
    """
    return re.sub("^UPDATE ", "UPDATE OR FAIL ", sql)


def fetch_rows(conn: sa.Connection, asked: Statement, *parameters: Any) -> Sequence[Sequence[Any]]:  # noqa: ANN401 - columns
    """The rows that the statement finds."""
    if conn.dialect.name == "sqlite":
        found: list[tuple[Any, ...]] = conn.connection.cursor().execute(asked.sqlite, _as_json(parameters)).fetchall()
        return found
    return conn.exec_driver_sql(asked.postgresql, parameters).all()


def execute_statement(conn: sa.Connection, asked: Statement, *parameters: Any) -> None:  # noqa: ANN401 - as the columns are
    """The statement is carried out."""
    if conn.dialect.name == "sqlite":
        conn.connection.cursor().execute(asked.sqlite, _as_json(parameters))
    else:
        conn.exec_driver_sql(asked.postgresql, parameters)


def _as_json(parameters: Sequence[Any]) -> list[Any]:
    return [_json(one) if isinstance(one, list) else one for one in parameters]


def _json(keys: list[str]) -> str:
    return msgspec.json.encode(keys).decode()


# ---- by rows -------------------------------------------------------------------------------------


def update_statement(table: sa.Table, new: Sequence[str], *, by: Sequence[str]) -> BulkUpdate:
    """The statement that sets the columns `new` where the columns `by` are equal; a row holds both, in this order."""
    update = f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in new)}"  # noqa: S608 - our own names
    others = "".join(f" AND {name} = ?" for name in by[1:])
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
    # The condition keeps the parser from taking ON CONFLICT for the condition of a join.
    arrays = _arrays([table.c[name] for name in columns])
    return BulkInsert(
        f"INSERT {into} VALUES ({', '.join('?' * len(columns))}) {conflict}",  # noqa: S608 - our own names, here and below
        f"INSERT {into} SELECT * FROM unnest({arrays}) AS v WHERE true {conflict}",  # noqa: S608
        # It need not be able to take itself back, either: see _unjournaled.
        MultiRowStatement(f"INSERT OR FAIL {into} VALUES {{rows}} {conflict}", len(columns)),  # noqa: S608
    )


def execute_many(conn: sa.Connection, asked: Statement | BulkInsert | BulkUpdate, rows: Rows) -> None:
    """The statement is carried out for every row."""
    if not rows:
        return
    if isinstance(asked, BulkUpdate) and _update_alike(conn, asked, rows):
        return
    if conn.dialect.name != "sqlite":
        conn.exec_driver_sql(asked.postgresql, tuple(zip(*rows, strict=True)))
    elif isinstance(asked, Statement):
        conn.connection.cursor().executemany(asked.sqlite, rows)
    else:
        _in_portions(conn, asked, rows)


def _in_portions(conn: sa.Connection, asked: BulkInsert | BulkUpdate, rows: Rows) -> None:
    """The rows by a few statements, most of which have many.

    That takes no less work; but after every single one the driver would wait for its turn among all other threads.
    """
    execute = conn.connection.cursor().execute
    for size, portion in _portions(rows):
        text = asked.sqlite if size == 1 else _several(asked.several, size)
        execute(text, portion[0] if size == 1 else [value for row in portion for value in row])


def _portions(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """The rows in portions of few different sizes, so that the driver knows the statements for them."""
    done = 0
    for size in _PORTIONS:
        while len(rows) - done >= size:
            yield size, rows[done : done + size]
            done += size


@cache
def _several(asked: MultiRowStatement, size: int) -> str:
    return asked.of(size)


def _update_alike(conn: sa.Connection, asked: BulkUpdate, rows: Rows) -> bool:
    """Whether the rows were so much alike that they could be changed by few statements, on PostgreSQL by one."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    key = asked.key
    most = len(rows) // _WORTH_A_STATEMENT if conn.dialect.name == "sqlite" else 1
    for row in rows:
        alike.setdefault(row[:key] + row[key + 1 :], []).append(row[key])
        if len(alike) > most:
            return False
    for values, keys in alike.items():
        execute_statement(conn, asked.alike, *values[:key], keys, *values[key:])
    return True


def execute_returning_keys(
    conn: sa.Connection, asked: BulkInsert, rows: Rows, key: str, *, at: int = 0
) -> Collection[str]:
    """The statement is carried out for every row; the keys of those for which it did anything come back.

    A row has its key at that place.
    """
    if not rows:
        return set()
    if conn.dialect.name == "sqlite":
        execute = conn.connection.cursor().execute
        return {row[at] for row in rows if execute(asked.sqlite, row).rowcount}
    found = conn.exec_driver_sql(f"{asked.postgresql} RETURNING {key}", tuple(zip(*rows, strict=True)))
    return {name for (name,) in found}


def execute_returning_rows(conn: sa.Connection, asked: Statement, rows: Rows) -> Sequence[Sequence[Any]]:
    """The statement is carried out for every row; what it returns comes back."""
    if not rows:
        return ()
    if conn.dialect.name == "sqlite":
        execute = conn.connection.cursor().execute
        return [found for row in rows for found in execute(asked.sqlite, row).fetchall()]
    return conn.exec_driver_sql(asked.postgresql, tuple(zip(*rows, strict=True))).all()


def insert_rows(conn: sa.Connection, table: sa.Table, rows: Rows, columns: tuple[str, ...] = ()) -> None:
    """Every row stands in the table; without columns it is as its table begins. All others have their defaults."""
    if not rows:
        return
    columns = columns or tuple(column.name for column in table.columns)[: len(rows[0])]
    if len(rows) >= _WORTH_A_COPY and conn.get_execution_options().get(MAY_COPY):
        _copy(conn, table, columns, rows)
    else:
        execute_many(conn, insert_statement(table, columns), rows)


def update_unchanged_schedules(conn: sa.Connection, rows: Rows) -> Collection[str]:
    """Each schedule that is still as it was read has its new mark and counts; the uids of these come back.

    A row holds the new mark, next fire and counts, then the uid, and what was read: the mark, the revision, the
    counts and the pause.
    """
    if not rows:
        return set()
    if conn.dialect.name != "sqlite":
        found = conn.exec_driver_sql(f"{_MOVE} RETURNING schedule.uid", tuple(zip(*rows, strict=True)))
        return {uid for (uid,) in found}
    movable: set[str] = set()
    execute = conn.connection.cursor().execute
    for size, portion in _portions(rows):
        read = [value for row in portion for value in row[4:]]
        movable |= set(msgspec.json.decode(execute(_several(_MOVABLE, size), read).fetchone()[0]))
    execute_many(conn, _MOVE_TO, [row[:5] for row in rows if row[4] in movable])
    return movable


def _copy(conn: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
    """As COPY, which takes half the time of arrays, in the transaction that the connection is in."""
    from sqlalchemy.util import await_only

    driver = conn.connection.driver_connection
    assert driver is not None  # noqa: S101 - the connection is in use
    await_only(driver.copy_records_to_table(table.name, records=rows, columns=columns))


def _arrays(columns: Sequence[sa.Column[Any]]) -> str:
    return ", ".join(f"${number}::{_ARRAYS[type(column.type)]}" for number, column in enumerate(columns, 1))


_MOVE = _MOVE_POSTGRESQL.format(arrays=_arrays([schema.schedule.c[name] for name in _MOVED]))
_MOVABLE = MultiRowStatement(_MOVABLE_SQLITE, len(_MOVED) - 4)
_MOVE_TO = update_statement(schema.schedule, _MOVED[:4], by=("uid",))
