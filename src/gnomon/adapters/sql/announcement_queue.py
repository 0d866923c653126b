"""Pending announcements: claimed by the process that sends them, and updated with the result."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.announcements import of_runs
from gnomon.adapters.sql.completion import ConcurrencyCounters, EndedRun
from gnomon.adapters.sql.graph import cascade_run_ends, lock_counters
from gnomon.adapters.sql.rows import ANNOUNCEMENT, RUN, announcement_of, column_list, run_of
from gnomon.core.announcements.decide import end_of_held_run, share_between_tenants
from gnomon.core.announcements.model import Announcement
from gnomon.core.model import RunId, ScheduleUid
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementUpdate

_COLUMNS = column_list(ANNOUNCEMENT)
_LINES = bulk.statement(
    f"SELECT tenant, channel FROM announcement WHERE {schema.TO_ANNOUNCE} AND next_at <= ?"  # noqa: S608 - our own names, here and below
    " GROUP BY tenant, channel ORDER BY tenant, channel"
)
_FREE = f"{schema.TO_ANNOUNCE} AND claimed_until <= ?"
_AGAIN = " AND ".join(f"other.{part}" for part in schema.TO_ANNOUNCE_AGAIN.split(" AND "))
_SAME = " AND ".join(f"other.{name} = announcement.{name}" for name in ("tenant", "channel", "recipient", "job"))
#: Locked, so that another process that claims at the same time takes others.
_DUE = bulk.statement(
    f"SELECT {_COLUMNS} FROM announcement WHERE {_FREE} AND tenant = ? AND channel = ? AND next_at <= ?"  # noqa: S608
    f" AND NOT EXISTS (SELECT 1 FROM announcement AS other WHERE {_AGAIN} AND {_SAME} AND"
    " (other.created_at, other.announcement_id) < (announcement.created_at, announcement.announcement_id))"
    " ORDER BY next_at, announcement_id LIMIT ? FOR UPDATE SKIP LOCKED"
)
_CLAIM = bulk.statement(
    "UPDATE announcement SET fence = fence + 1, claimed_by = ?, claimed_until = ? WHERE announcement_id IN KEYS"  # noqa: S608
    f" RETURNING {_COLUMNS}"
)
_UPDATE_SET = "state = ?, parts_sent = ?, tries = ?, next_at = ?, ended_at = ?, note = ?, claimed_until = ?"
_UPDATE = bulk.statement(
    f"UPDATE announcement SET {_UPDATE_SET} WHERE announcement_id = ? AND fence = ? AND {schema.TO_ANNOUNCE}"  # noqa: S608
    " RETURNING announcement_id"
)
_STALE = bulk.statement(
    f"SELECT announcement_id FROM announcement WHERE {_FREE} AND channel = ? AND since_at < ?"  # noqa: S608
    " ORDER BY next_at, announcement_id LIMIT ? FOR UPDATE SKIP LOCKED"
)
_GIVE_UP = bulk.statement(
    "UPDATE announcement SET state = 'given_up', ended_at = ?, note = ?, fence = fence + 1"  # noqa: S608
    f" WHERE announcement_id IN KEYS RETURNING {_COLUMNS}"
)
_NEXT = bulk.statement(
    f"SELECT next_at FROM announcement WHERE {schema.TO_ANNOUNCE} ORDER BY next_at LIMIT 1"  # noqa: S608
)
_OWNERS = bulk.statement(f"SELECT run_id, schedule_uid FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608
_RUNS = bulk.statement(
    f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER} ORDER BY run_id FOR UPDATE"  # noqa: S608
)


def claim(conn: sa.Connection, request: AnnouncementClaim, now: int) -> Sequence[Announcement]:
    """See AnnouncementQueue.claim. `now` is the time of the store."""
    due = {}
    for tenant, channel in bulk.fetch_rows(conn, _LINES, now):
        if channel not in request.without:
            most = min(request.limit, request.per_channel)
            rows = bulk.fetch_rows(conn, _DUE, now, tenant, channel, now, most)
            due[tenant, channel] = [str(row[0]) for row in rows]
    shared = share_between_tenants(due, limit=request.limit, per_channel=request.per_channel)
    names = sorted(name for _, name in shared)
    if not names:
        return []
    rows = bulk.fetch_rows(conn, _CLAIM, request.holder, now + request.claim_ms, names)
    return sorted(map(announcement_of, rows), key=lambda one: (one.created_at, one.announcement_id))


def update(conn: sa.Connection, updates: Sequence[AnnouncementUpdate], store_now: int, now: int) -> frozenset[str]:
    """See AnnouncementQueue.update."""
    counters = lock_counters(conn, _owners(conn, [one.announcement for one in updates]))
    written = []
    for one in sorted(updates, key=lambda update: update.announcement.announcement_id):
        sent = one.announcement
        if bulk.fetch_rows(
            conn, _UPDATE, sent.state.value, sent.parts_sent, sent.tries, sent.next_at, sent.ended_at, sent.note,
            store_now + one.claim_ms, sent.announcement_id, sent.fence,
        ):  # fmt: skip
            written.append(sent)
    _end_held_runs(conn, written, counters, now)
    return frozenset(sent.announcement_id for sent in written)


def give_up_stale(
    conn: sa.Connection, channel: str, *, since_before: int, note: str, limit: int, store_now: int, now: int
) -> Sequence[str]:
    """See AnnouncementQueue.give_up_stale."""
    stale = [str(name) for (name,) in bulk.fetch_rows(conn, _STALE, store_now, channel, since_before, limit)]
    if not stale:
        return []
    ended = list(map(announcement_of, bulk.fetch_rows(conn, _GIVE_UP, now, note, stale)))
    _end_held_runs(conn, ended, lock_counters(conn, _owners(conn, ended)), now)
    return stale


def next_at(conn: sa.Connection) -> int | None:
    """See AnnouncementQueue.next_at."""
    found = bulk.fetch_rows(conn, _NEXT)
    return int(found[0][0]) if found else None


def _owners(conn: sa.Connection, sent: Sequence[Announcement]) -> list[tuple[RunId, ScheduleUid | None]]:
    """The runs that wait for these and are to end with them, with their schedules."""
    names = sorted({str(one.run_id) for one in sent if one.over and one.holds_run})
    return [(run, uid) for run, uid in bulk.fetch_rows(conn, _OWNERS, names)] if names else []


def _end_held_runs(conn: sa.Connection, sent: Sequence[Announcement], counters: ConcurrencyCounters, now: int) -> None:
    """End the runs that waited for these, unless they wait for another."""
    names = sorted({str(one.run_id) for one in sent if one.over and one.holds_run})
    if not names:
        return
    # Locked before the others of their announcements are read: the last one to be over ends the run.
    runs = {run.run_id: run for run in map(run_of, bulk.fetch_rows(conn, _RUNS, names))}
    ends = {name: end_of_held_run(found) for name, found in of_runs(conn, list(runs)).items()}
    ended = [EndedRun(runs[name], *end, now) for name, end in ends.items() if end is not None]
    cascade_run_ends(conn, ended, counters)
