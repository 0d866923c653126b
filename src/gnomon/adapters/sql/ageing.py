"""What may go. Everything is found by an index, and removed in small portions, so that nobody waits for long."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.event_log import entries
from gnomon.adapters.sql.families import Family, families
from gnomon.adapters.sql.rows import tick_of
from gnomon.adapters.sql.run_rows import DEAD_LETTER, RUN, dead_letter_of, named, run_of
from gnomon.core.model import ScheduleUid
from gnomon.core.retention import Horizons, Past, event_may_go, letter_may_go, run_may_go, ticks_that_may_go
from gnomon.ports.maintenance import Kind, Lot, Place, Record

_PASTS = bulk.statement(
    "SELECT uid, tenant, schedule_id, workflow_id, mark_at, catchup_window_ms, deleted_at,"
    " (SELECT min(run.planned_at) FROM run WHERE run.schedule_uid = schedule.uid),"
    " (SELECT min(tick.planned_at) FROM tick WHERE tick.uid = schedule.uid),"
    " (SELECT max(tick.planned_at) FROM tick WHERE tick.uid = schedule.uid)"
    " FROM schedule WHERE uid > ? ORDER BY uid LIMIT ?"
)
_NEXT_TENANT = [
    bulk.statement(f"SELECT tenant FROM {table} WHERE tenant > ? ORDER BY tenant LIMIT 1")  # noqa: S608 - our own names, here and below
    for table in ("event", "dead_letter")
]
_PAGE = "planned_at < ? AND (planned_at, run_id) > (?, ?) ORDER BY planned_at, run_id LIMIT ?"
_RUNS = bulk.statement(f"SELECT {named(RUN)} FROM run WHERE schedule_uid = ? AND {_PAGE}")  # noqa: S608
_LOOSE_RUNS = bulk.statement(f"SELECT {named(RUN)} FROM run WHERE schedule_uid IS NULL AND {_PAGE}")  # noqa: S608
_TICKS = bulk.statement(
    f"SELECT {named(tables.tick.c)} FROM tick"  # noqa: S608
    " WHERE uid = ? AND planned_at > ? AND planned_at < ? ORDER BY planned_at LIMIT ?"
)
_THERE = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS")
_UNDER_WAY = bulk.statement(f"SELECT run_id FROM run WHERE run_id IN KEYS AND {tables.NOT_OVER}")  # noqa: S608
_EVENTS = bulk.statement(
    f"SELECT {named(tables.event.c)} FROM event WHERE tenant = ? AND emitted_at < ?"  # noqa: S608
    " AND (emitted_at, event_id) > (?, ?) ORDER BY emitted_at, event_id LIMIT ?"
)
_LETTERS = bulk.statement(
    f"SELECT {named(DEAD_LETTER)} FROM dead_letter WHERE tenant = ? AND dead_letter_id > ?"  # noqa: S608
    " ORDER BY dead_letter_id LIMIT ?"
)
_DELETED = bulk.statement("SELECT deleted_at FROM schedule WHERE uid = ?")
#: How many rows a run is thought to have, until they are counted.
_ROWS_OF_A_RUN = 4


def pasts(conn: sa.Connection, after: str, limit: int) -> Sequence[Past]:
    """See Keeping.pasts."""
    return [
        Past(**dict(zip(Past.__struct_fields__, row, strict=True))) for row in bulk.rows(conn, _PASTS, after, limit)
    ]


def tenants(conn: sa.Connection) -> Sequence[str]:
    """See Keeping.tenants."""
    found: set[str] = set()
    for following in _NEXT_TENANT:
        after = ""
        while rows := bulk.rows(conn, following, after):
            after = rows[0][0]
            found.add(after)
    return sorted(found)


# ---- runs ----------------------------------------------------------------------------------------


def aged_runs(conn: sa.Connection, past: Past | None, kept: Horizons, after: Place, limit: int) -> Lot:
    """See Keeping.aged_runs."""
    most = max(1, limit // _ROWS_OF_A_RUN)
    place = (kept.runs_at, *after, most)
    found = bulk.rows(conn, _LOOSE_RUNS, *place) if past is None else bulk.rows(conn, _RUNS, past.uid, *place)
    page = [run_of(row) for row in found]
    going, seen = families(conn, [run for run in page if run_may_go(run, kept)], limit)
    last = page[-1] if seen is None and len(page) == most else seen
    return Lot(
        kind=Kind.RUNS,
        names=tuple(run.run_id for family in going for run in family.runs),
        records=_records_of(conn, going),
        after=None if last is None else (last.planned_at, last.run_id),
    )


def _records_of(conn: sa.Connection, going: Sequence[Family]) -> Sequence[Record]:
    """All that belongs to the runs, by the day on which the first of each family ended."""
    at: dict[str, int] = {run.run_id: family.runs[0].completed_at or 0 for family in going for run in family.runs}
    runs = list(at)
    found = records(conn, tables.run, "run_id", runs, at) + records(conn, tables.task, "run_id", runs, at)
    tasks = [record.row["task_id"] for record in found if record.table == "task"]
    at |= {record.row["task_id"]: record.at for record in found if record.table == "task"}
    found += records(conn, tables.attempt, "task_id", tasks, at) + records(conn, tables.task_log, "task_id", tasks, at)
    return found + records(conn, tables.payload, "owner_id", [*runs, *tasks], at)


def records(
    conn: sa.Connection, table: sa.Table, key: str, names: Sequence[str], at: Mapping[str, int]
) -> list[Record]:
    """The rows of the table that have one of these keys, each by the instant that its key has."""
    asked = bulk.statement(f"SELECT {named(table.c)} FROM {table.name} WHERE {key} IN KEYS")  # noqa: S608
    found = bulk.rows(conn, asked, list(names)) if names else ()
    rows = (row_as_data(table, row) for row in found)
    return [Record(str(table.name), row, at[row[key]]) for row in rows]


def row_as_data(table: sa.Table, row: Sequence[Any]) -> Mapping[str, Any]:
    """The row as JSON can hold it. Its bytes are JSON already, but for keys, which are digests."""
    return {str(column.name): _said(column, value) for column, value in zip(table.columns, row, strict=True)}


def _said(column: sa.Column[Any], value: Any) -> Any:  # noqa: ANN401 - as the columns are
    if isinstance(value, bytes):
        return value.hex() if column.name == "key" else value.decode()
    # SQLite has no truth values, only numbers.
    return bool(value) if isinstance(column.type, sa.Boolean) and value is not None else value


# ---- everything else -----------------------------------------------------------------------------


def aged_ticks(conn: sa.Connection, past: Past, kept: Horizons, after: Place, limit: int) -> Lot:
    """See Keeping.aged_ticks."""
    page = [tick_of(row) for row in bulk.rows(conn, _TICKS, past.uid, after[0], kept.keys_at, limit)]
    wanted: list[str] = [tick.run_id for tick in page if tick.run_id is not None]
    there = {name for (name,) in bulk.rows(conn, _THERE, wanted)} if wanted else set()
    going = {tick.decision.planned_at: tick.decided_at for tick in ticks_that_may_go(past, page, kept, there)}
    rows = [row for row in bulk.rows(conn, _TICKS, past.uid, after[0], kept.keys_at, limit) if row[1] in going]
    return Lot(
        kind=Kind.TICKS,
        uid=past.uid,
        names=tuple(going),
        records=[Record("tick", row_as_data(tables.tick, row), going[row[1]]) for row in rows],
        after=(page[-1].decision.planned_at, "") if len(page) == limit else None,
    )


def aged_events(conn: sa.Connection, tenant: str, before_at: int, after: Place, limit: int) -> Lot:
    """See Keeping.aged_events."""
    page = {row[0]: row for row in bulk.rows(conn, _EVENTS, tenant, before_at, *after, limit)}
    became: dict[str, list[Any]] = {name: [] for name in page}
    for entry in entries(conn, list(page)) if page else ():
        became[entry.event_id].append(entry)
    going = [name for name in page if event_may_go(became[name])]
    at = {name: row[5] for name, row in page.items()}
    found = [Record("event", row_as_data(tables.event, page[name]), at[name]) for name in going]
    found += records(conn, tables.event_entry, "event_id", going, at)
    last = list(page)[-1] if len(page) == limit else None
    further = None if last is None else (at[last], last)
    return Lot(kind=Kind.EVENTS, names=tuple(going), records=found, after=further)


def aged_letters(conn: sa.Connection, tenant: str, before_at: int, after: Place, limit: int) -> Lot:
    """See Keeping.aged_letters."""
    page = [dead_letter_of(row) for row in bulk.rows(conn, _LETTERS, tenant, after[1], limit)]
    again: list[str] = [letter.replayed_by for letter in page if letter.replayed_by is not None]
    under_way = {name for (name,) in bulk.rows(conn, _UNDER_WAY, again)} if again else set()
    going = {one.dead_letter_id: one.created_at for one in page if letter_may_go(one, before_at, under_way)}
    return Lot(
        kind=Kind.DEAD_LETTERS,
        names=tuple(going),
        records=records(conn, tables.dead_letter, "dead_letter_id", list(going), going),
        after=(0, page[-1].dead_letter_id) if len(page) == limit else None,
    )


def aged_schedule(conn: sa.Connection, uid: ScheduleUid) -> Lot:
    """See Keeping.aged_schedule."""
    [(deleted_at,)] = bulk.rows(conn, _DELETED, uid) or [(None,)]
    kept = (tables.schedule, tables.schedule_revision, tables.pause)
    found = [record for table in kept for record in records(conn, table, "uid", [uid], {uid: deleted_at or 0})]
    return Lot(kind=Kind.SCHEDULES, names=(uid,), records=found)
