"""Numbers of ticks by time. Every cell is a range of the primary key of the ledger."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import column_list, tick_of
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.ledger.calendar import CellCount
from gnomon.core.model import Reason, ScheduleUid, Tick, TickKind, TickStatus
from gnomon.ports.calendar import CellRange

_COUNTS = """
SELECT cell.uid, cell.number, tick.kind, tick.reason, tick.status, count(*)
FROM {cells} CROSS JOIN tick
WHERE tick.uid = cell.uid AND tick.planned_at >= cell.from_at AND tick.planned_at < cell.until_at AND tick.count = 1
GROUP BY cell.uid, cell.number, tick.kind, tick.reason, tick.status
"""
# A cross join is not reordered on SQLite.
_COUNT_CELLS = bulk.Statement(
    _COUNTS.format(
        cells="(SELECT value ->> 0 AS uid, value ->> 1 AS number, value ->> 2 AS from_at, value ->> 3 AS until_at"
        " FROM json_each(?)) AS cell"
    ),
    _COUNTS.format(
        cells="unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[]) AS cell (uid, number, from_at, until_at)"
    ),
)
_RANGES = bulk.statement(
    f"SELECT {column_list(schema.tick.c)} FROM tick"  # noqa: S608 - our own names
    f" WHERE {schema.SEVERAL_TICKS} AND uid IN KEYS AND last_at >= ? AND planned_at < ?"
)


class SqlTickCalendar:
    """Implements TickCalendar."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """See TickCalendar.counts."""
        return await self._transactions.read(lambda conn: counts(conn, cells))

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """See TickCalendar.ranges."""
        return await self._transactions.read(lambda conn: ranges(conn, uids, since, until))


def counts(conn: sa.Connection, cells: Sequence[CellRange]) -> Sequence[CellCount]:
    """See TickCalendar.counts."""
    rows = [msgspec.structs.astuple(cell) for cell in cells]
    if not rows:
        return ()
    given = [rows] if conn.dialect.name == "sqlite" else [list(column) for column in zip(*rows, strict=True)]
    return [
        CellCount(uid, number, TickKind(kind), Reason(reason), TickStatus(status), count)
        for uid, number, kind, reason, status, count in bulk.fetch_rows(conn, _COUNT_CELLS, *given)
    ]


def ranges(conn: sa.Connection, uids: Sequence[ScheduleUid], since: int, until: int) -> Sequence[Tick]:
    """See TickCalendar.ranges."""
    names: list[str] = list(uids)
    found = [tick_of(row) for row in bulk.fetch_rows(conn, _RANGES, names, since, until)]
    return sorted(found, key=lambda one: (one.uid, one.decision.planned_at))
