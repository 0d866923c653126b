"""Numbers of ticks by time: from the sums of days as far as there are any, and from ranges of the ledger.

A schedule has a row of `tick_summed` as soon as its ticks are summed up. Everything that changes sums, or ticks that
are summed, locks it first: the sums of a day are then those of its ticks whenever a transaction has ended.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import column_list, tick_of
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.ledger.calendar import CellCount, CellKind, cell_kind
from gnomon.core.ledger.tick_sums import DENSE, QUARTER_MS, QUARTERS, CellRange, DaySums, split
from gnomon.core.model import DAY_MS, Reason, ScheduleUid, Tick, TickKind, TickStatus
from gnomon.ports.calendar import DayPosition, SumProgress

#: The schedules that are read at once: the sums of PostgreSQL become objects on the event loop.
_READ_AT_ONCE = 5
#: About how many ticks, and of how many schedules, one transaction sums up: others wait for it on SQLite.
_TICKS_AT_ONCE, _SCHEDULES_AT_ONCE = 2_000, 10
#: The days whose open quarters one transaction looks at again.
_DAYS_AT_ONCE = 5
_OPEN_STATUSES = (TickStatus.ENQUEUED, TickStatus.STARTED)

_IN_ONE_QUARTER = f"tick.planned_at / {QUARTER_MS} = tick.last_at / {QUARTER_MS}"
_COUNTS = f"""
SELECT cell.uid, cell.number, tick.kind, tick.reason, tick.status, sum(tick.count)
FROM {{cells}} CROSS JOIN tick
WHERE tick.uid = cell.uid AND tick.planned_at >= cell.from_at AND tick.planned_at < cell.until_at AND {_IN_ONE_QUARTER}
GROUP BY cell.uid, cell.number, tick.kind, tick.reason, tick.status
"""  # noqa: S608 - our own names, here and below
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
    f"SELECT {column_list(schema.tick.c)} FROM tick"  # noqa: S608
    f" WHERE {schema.SEVERAL_TICKS} AND uid IN KEYS AND last_at >= ? AND planned_at < ? AND NOT ({_IN_ONE_QUARTER})"
)
_DAYS = bulk.statement("SELECT uid, day, sums FROM tick_day WHERE uid IN KEYS AND day >= ? AND day <= ?")
_DAY = bulk.statement("SELECT sums FROM tick_day WHERE uid = ? AND day = ?")
_OPEN_DAYS = bulk.statement(
    f"SELECT uid, day, sums FROM tick_day WHERE {schema.SUMS_OPEN} AND (uid, day) > (?, ?) ORDER BY uid, day LIMIT ?"  # noqa: S608
)
_PUT_DAY = bulk.insert_statement(
    schema.tick_day,
    ("uid", "day", "open", "sums"),
    "ON CONFLICT (uid, day) DO UPDATE SET open = excluded.open, sums = excluded.sums",
)
_DROP_DAY = bulk.statement("DELETE FROM tick_day WHERE uid = ? AND day = ?")
_DROP_DAYS_FROM = bulk.statement("DELETE FROM tick_day WHERE uid = ? AND day >= ?")
#: The schedules of which a quarter is decided and not summed up.
_BEHIND = bulk.statement(
    "SELECT schedule.uid, schedule.mark_at, tick_summed.until_at FROM schedule"  # noqa: S608
    " LEFT JOIN tick_summed ON tick_summed.uid = schedule.uid WHERE schedule.uid > ?"
    f" AND (tick_summed.until_at IS NULL OR schedule.mark_at >= tick_summed.until_at + {QUARTER_MS})"
    " ORDER BY schedule.uid LIMIT ?"
)
_LOCK = bulk.statement("SELECT until_at FROM tick_summed WHERE uid = ? FOR UPDATE")
_BEGIN = bulk.insert_statement(schema.tick_summed, ("uid", "until_at"), "ON CONFLICT (uid) DO NOTHING")
_PROCEED = bulk.statement("UPDATE tick_summed SET until_at = ? WHERE uid = ?")
_FIRST_TICK = bulk.statement("SELECT min(planned_at) FROM tick WHERE uid = ? AND planned_at >= ?")
_NTH_TICK = bulk.statement(
    "SELECT planned_at FROM tick WHERE uid = ? AND planned_at >= ? AND planned_at < ?"  # noqa: S608
    f" ORDER BY planned_at LIMIT 1 OFFSET {_TICKS_AT_ONCE}"
)
_QUARTERS = bulk.statement(
    f"SELECT planned_at / {QUARTER_MS}, kind, reason, status, sum(count), count(*) FROM tick"  # noqa: S608
    f" WHERE uid = ? AND planned_at >= ? AND planned_at < ? AND {_IN_ONE_QUARTER}"
    f" GROUP BY planned_at / {QUARTER_MS}, kind, reason, status"
)


class SqlTickCalendar:
    """Implements TickCalendar."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """See TickCalendar.counts."""
        groups = [list(some) for _, some in groupby(cells, key=attrgetter("uid"))]
        found: list[CellCount] = []
        for start in range(0, len(groups), _READ_AT_ONCE):
            some = [cell for group in groups[start : start + _READ_AT_ONCE] for cell in group]
            found += await self._transactions.read(lambda conn, some=some: counts(conn, some))  # type: ignore[misc]
        return found

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """See TickCalendar.ranges."""
        return await self._transactions.read(lambda conn: ranges(conn, uids, since, until))

    async def sum_up(self, *, after: str) -> SumProgress:
        """See TickCalendar.sum_up."""
        engine = self._transactions
        return await engine.write(lambda conn: sum_up(conn, after, engine.now(conn)), apart=True)

    async def sum_ended(self, *, after: DayPosition) -> DayPosition | None:
        """See TickCalendar.sum_ended."""
        return await self._transactions.write(lambda conn: sum_ended(conn, after), apart=True)


# ---- reading -------------------------------------------------------------------------------------


def counts(conn: sa.Connection, cells: Sequence[CellRange]) -> Sequence[CellCount]:
    """See TickCalendar.counts."""
    if not cells:
        return ()
    uids: list[str] = sorted({cell.uid for cell in cells})
    first, last = min(cell.from_at for cell in cells) // DAY_MS, max(cell.until_at for cell in cells) // DAY_MS
    days = {(ScheduleUid(uid), day): _sums(text) for uid, day, text in bulk.fetch_rows(conn, _DAYS, uids, first, last)}
    found = split(cells, days)
    rows = [msgspec.structs.astuple(cell) for cell in found.rest]
    if not rows:
        return found.counts
    given: list[Any] = [rows] if conn.dialect.name == "sqlite" else [list(column) for column in zip(*rows, strict=True)]
    return found.counts + [
        CellCount(ScheduleUid(uid), number, cell_kind(TickKind(kind), Reason(reason), TickStatus(status)), int(count))
        for uid, number, kind, reason, status, count in bulk.fetch_rows(conn, _COUNT_CELLS, *given)
    ]


def ranges(conn: sa.Connection, uids: Sequence[ScheduleUid], since: int, until: int) -> Sequence[Tick]:
    """See TickCalendar.ranges."""
    names: list[str] = list(uids)
    found = [tick_of(row) for row in bulk.fetch_rows(conn, _RANGES, names, since, until)]
    return sorted(found, key=lambda one: (one.uid, one.decision.planned_at))


_DECODER = msgspec.json.Decoder(DaySums)


def _sums(text: str) -> DaySums:
    return _DECODER.decode(text)


# ---- summing up ----------------------------------------------------------------------------------


class _Quarter(NamedTuple):
    """The ticks of a quarter by kind, and whether all have ended."""

    counts: dict[CellKind, int]
    rows: int
    known: bool


def sum_up(conn: sa.Connection, after: str, now: int) -> SumProgress:
    """See TickCalendar.sum_up."""
    behind = bulk.fetch_rows(conn, _BEHIND, after, _SCHEDULES_AT_ONCE)
    counted, last = 0, after
    for uid, mark_at, until_at in behind:
        if counted >= _TICKS_AT_ONCE:
            return SumProgress(last, counted)
        counted += _sum_schedule(conn, uid, min(mark_at, now), until_at)
        last = uid
    return SumProgress(last if len(behind) == _SCHEDULES_AT_ONCE else None, counted)


def _sum_schedule(conn: sa.Connection, uid: str, decided_at: int, until_at: int | None) -> int:
    """Sum up the next quarters of a schedule; return how many ticks were counted, and 0 if there was nothing to do."""
    if until_at is None:
        [(first,)] = bulk.fetch_rows(conn, _FIRST_TICK, uid, -(1 << 62))
        begin = decided_at if first is None else first
        # Nothing more in this transaction: whoever removes ticks meanwhile does not see this row yet.
        bulk.execute_many(conn, _BEGIN, [(uid, begin // QUARTER_MS * QUARTER_MS)])
        return 1
    locked = bulk.fetch_rows(conn, _LOCK, uid)
    begin = locked[0][0] if locked else until_at
    [(first,)] = bulk.fetch_rows(conn, _FIRST_TICK, uid, begin)
    until = decided_at // QUARTER_MS * QUARTER_MS
    if first is None or first >= until:
        if until <= begin:
            return 0
        bulk.execute_statement(conn, _PROCEED, until, uid)
        return 1
    begin = first // QUARTER_MS * QUARTER_MS
    many = bulk.fetch_rows(conn, _NTH_TICK, uid, begin, until)
    if many:
        until = max(many[0][0] // QUARTER_MS * QUARTER_MS, begin + QUARTER_MS)
    # One day at a time: its sums are one row.
    until = min(until, (begin // DAY_MS + 1) * DAY_MS)
    counted = _sum_day(conn, uid, begin, until)
    bulk.execute_statement(conn, _PROCEED, until, uid)
    return counted


def _sum_day(conn: sa.Connection, uid: str, begin: int, until: int) -> int:
    day = begin // DAY_MS
    rows = bulk.fetch_rows(conn, _DAY, uid, day)
    found = _quarters(conn, uid, begin, until)
    sums = _sums(rows[0][0]) if rows else DaySums()
    counted = sum(one.rows for one in found.values())
    if not rows:
        if all(one.rows < DENSE for one in found.values()):
            return 1 + counted
        found = _quarters(conn, uid, day * DAY_MS, until)
    first = sums.known_until
    for quarter in range(first, (until - day * DAY_MS) // QUARTER_MS):
        one = found.get(day * QUARTERS + quarter, _Quarter({}, 0, known=True))
        sums.set(quarter, one.counts, known=one.known)
    _put(conn, uid, day, sums)
    return 1 + counted


def _quarters(conn: sa.Connection, uid: str, begin: int, until: int) -> Mapping[int, _Quarter]:
    """The quarters that have ticks, by their number since 1970."""
    found: dict[int, _Quarter] = {}
    for quarter, kind, reason, status, count, rows in bulk.fetch_rows(conn, _QUARTERS, uid, begin, until):
        before = found.get(quarter, _Quarter({}, 0, known=True))
        as_kind = cell_kind(TickKind(kind), Reason(reason), TickStatus(status))
        before.counts[as_kind] = before.counts.get(as_kind, 0) + int(count)
        found[quarter] = before._replace(
            rows=before.rows + rows, known=before.known and TickStatus(status) not in _OPEN_STATUSES
        )
    return found


def sum_ended(conn: sa.Connection, after: DayPosition) -> DayPosition | None:
    """See TickCalendar.sum_ended."""
    days = bulk.fetch_rows(conn, _OPEN_DAYS, *after, _DAYS_AT_ONCE)
    for uid, day, _ in days:
        bulk.fetch_rows(conn, _LOCK, uid)
        for (text,) in bulk.fetch_rows(conn, _DAY, uid, day):
            sums = _sums(text)
            for quarter in tuple(sums.open):
                at = day * DAY_MS + quarter * QUARTER_MS
                one = _quarters(conn, uid, at, at + QUARTER_MS).get(at // QUARTER_MS, _Quarter({}, 0, known=True))
                sums.set(quarter, one.counts, known=one.known)
            _put(conn, uid, day, sums)
    return (days[-1][0], days[-1][1]) if len(days) == _DAYS_AT_ONCE else None


def _put(conn: sa.Connection, uid: str, day: int, sums: DaySums) -> None:
    if sums.is_empty and sums.known_until == QUARTERS:
        bulk.execute_statement(conn, _DROP_DAY, uid, day)
    else:
        bulk.execute_many(conn, _PUT_DAY, [(uid, day, bool(sums.open), msgspec.json.encode(sums).decode())])


# ---- ticks that are removed ----------------------------------------------------------------------


def forget_removed(conn: sa.Connection, uid: ScheduleUid, planned: Sequence[int]) -> None:
    """Forget the sums of the quarters of these ticks, which are about to be removed."""
    if not planned or not bulk.fetch_rows(conn, _LOCK, uid):
        return
    for day, quarters in _by_day(planned):
        rows = bulk.fetch_rows(conn, _DAY, uid, day)
        if rows:
            sums = _sums(rows[0][0])
            sums.forget(quarters)
            _put(conn, uid, day, sums)


def _by_day(planned: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    quarters = sorted({at // QUARTER_MS for at in planned})
    for day, some in groupby(quarters, key=lambda quarter: quarter // QUARTERS):
        yield day, [quarter % QUARTERS for quarter in some]


def forget_from(conn: sa.Connection, uid: ScheduleUid, at: int) -> None:
    """Forget the sums of the day of `at` and of all days after it: the mark was set back to then."""
    locked = bulk.fetch_rows(conn, _LOCK, uid)
    if locked:
        day = at // DAY_MS
        bulk.execute_statement(conn, _DROP_DAYS_FROM, uid, day)
        if locked[0][0] > day * DAY_MS:
            bulk.execute_statement(conn, _PROCEED, day * DAY_MS, uid)
