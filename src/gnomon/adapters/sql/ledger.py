"""Deciding ticks, in bulk: a few statements for a thousand schedules instead of a few for each."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import announcements, bulk, schema
from gnomon.adapters.sql.after_commit import notify_activity
from gnomon.adapters.sql.cancellation import supersede
from gnomon.adapters.sql.rows import LIMITED_RUN, SCHEDULE, limited_run_row, run_row, tick_row
from gnomon.adapters.sql.transitions import insert_tasks
from gnomon.adapters.sql.unreadable import NOT_KNOWN, UnreadableSchedules
from gnomon.core.ids import SHARDS, run_id
from gnomon.core.ledger.plan import NODE_TOLERANCE_MS, refuse_clock_ahead, run_record, tick_record
from gnomon.core.model import Run, Schedule, ScheduleUid, Task, TickVerdict
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import first_tasks
from gnomon.errors import StaleTerm
from gnomon.ports.ledger import Terms

_schedule = schema.schedule.c
_DUE = (
    sa.select(*SCHEDULE)
    .where(_schedule.next_fire_at <= sa.bindparam("now"))
    .order_by(_schedule.next_fire_at, _schedule.uid)
    .limit(sa.bindparam("limit"))
)
_NEXT = (
    sa.select(_schedule.next_fire_at)
    .where(_schedule.next_fire_at.is_not(None))
    .order_by(_schedule.next_fire_at)
    .limit(1)
)
_OURS = _schedule.shard.in_(sa.bindparam("shards", expanding=True))
_SERVER_NOW = sa.text(f"SELECT {bulk.SERVER_CLOCK.postgresql}")
_SOME_TERMS = "SELECT shard, term, {now} FROM shard WHERE shard {among} ORDER BY shard"
#: With the terms, a server tells its time, which saves a round trip.
_TERMS = bulk.Statement(
    _SOME_TERMS.format(now=bulk.SERVER_CLOCK.sqlite, among="IN (SELECT value FROM json_each(?))"),
    _SOME_TERMS.format(now=bulk.SERVER_CLOCK.postgresql, among="= ANY ($1::smallint[])"),
)
_HELD_TERMS = bulk.Statement(_TERMS.sqlite, f"{_TERMS.postgresql} FOR SHARE")
#: The number of times that a page with unreadable rows is read again without them.
_MOST_PAGES = 8


def due(
    conn: sa.Connection, now: int, shards: frozenset[int], limit: int, unreadable: UnreadableSchedules
) -> Sequence[Schedule]:
    """See Ledger.due. Unreadable schedules are skipped and remembered."""
    found: list[Schedule] = []
    if not shards:
        return found
    for _ in range(_MOST_PAGES):
        query, narrowed = _only(_DUE, shards, unreadable)
        rows = conn.execute(query, {"now": now, "limit": limit, **narrowed}).all()
        found = unreadable.readable(rows)
        # Otherwise unreadable rows filled the page, and the due schedules behind them were not read.
        if len(found) == len(rows):
            break
    return found


def next_due_at(conn: sa.Connection, shards: frozenset[int], unreadable: UnreadableSchedules) -> int | None:
    """See Ledger.next_due_at. Schedules known to be unreadable are never due, so they wake no node."""
    if not shards:
        return None
    query, narrowed = _only(_NEXT, shards, unreadable)
    found: int | None = conn.scalar(query, narrowed)
    return found


def _only(
    query: sa.Select[Any], shards: frozenset[int], unreadable: UnreadableSchedules
) -> tuple[sa.Select[Any], dict[str, list[Any]]]:
    """The query, limited to the shards unless these are all shards, and to schedules not known to be unreadable."""
    narrowed: dict[str, list[Any]] = {}
    if len(shards) != SHARDS:
        query, narrowed["shards"] = query.where(_OURS), sorted(shards)
    if unreadable.pairs:
        query, narrowed["unreadable"] = query.where(NOT_KNOWN), unreadable.known
    return query, narrowed


def decide(
    conn: sa.Connection, verdicts: Sequence[TickVerdict], now: int, terms: Terms, store_now: bulk.StoreNow
) -> frozenset[ScheduleUid]:
    """See Ledger.decide."""
    at = check_terms(conn, {verdict.schedule.shard for verdict in verdicts}, terms)
    refuse_clock_ahead(now, store_now(conn) if at is None else at)
    return apply_verdicts(conn, verdicts, now=now, terms=terms)


def check_terms(conn: sa.Connection, shards: Collection[int], terms: Terms) -> int | None:
    """Raise StaleTerm unless the terms of the shards are current; return the time of the server, if there is one."""
    # Locked until the commit, so that no node gets a newer term after the check.
    current, at = _terms(conn, shards, hold=True)
    stale = tuple(sorted(shard for shard in shards if shard not in terms or terms[shard] != current.get(shard)))
    if stale:
        raise StaleTerm(stale)
    return at


def refuse_early_edit(conn: sa.Connection, now: int) -> None:
    """Raise ClockAhead if an edit comes from a node whose clock is ahead of the server's by more than the tolerance.

    An edit decides ticks up to its time, and sets the mark there. A file has no clock of its own.
    """
    if conn.dialect.name != "sqlite":
        refuse_clock_ahead(now, conn.execute(_SERVER_NOW).scalar_one(), tolerance_ms=NODE_TOLERANCE_MS)


def terms_of(conn: sa.Connection, shards: Collection[int], *, hold: bool = False) -> dict[int, int]:
    """The current terms of the shards; `hold` locks them until the end of the transaction."""
    return _terms(conn, shards, hold=hold)[0]


def _terms(conn: sa.Connection, shards: Collection[int], *, hold: bool) -> tuple[dict[int, int], int | None]:
    """The current terms of the shards, and the time of the server; None if there is no server."""
    found = bulk.fetch_rows(conn, _HELD_TERMS if hold else _TERMS, sorted(shards))
    return {shard: term for shard, term, _ in found}, found[0][2] if found else None


def apply_verdicts(
    conn: sa.Connection, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms
) -> frozenset[ScheduleUid]:
    """Write every verdict whose schedule is unchanged since it was read; return the uids of these schedules."""
    # Sorted, so that two transactions on the same schedules mostly lock in the same order. PostgreSQL may join in
    # another order: the victim of such a deadlock is run again. The first verdict on a schedule voids any other.
    first = {verdict.schedule.uid: verdict for verdict in reversed(verdicts)}
    by_uid = [first[uid] for uid in sorted(first)]
    moved = bulk.update_unchanged_schedules(conn, [_moved(verdict) for verdict in by_uid])
    carried = [verdict for verdict in by_uid if verdict.schedule.uid in moved]
    _write_verdicts(conn, carried, now, terms)
    # The newest run replaces the others. A run that ends at once releases its slot to it.
    replacing = {v.schedule.uid: run_id(v.schedule.uid, v.newest_run_at) for v in carried if v.replaces}
    supersede(conn, replacing, now)
    notify_activity(conn, lambda observer: observer.decided(carried, now))
    return frozenset(verdict.schedule.uid for verdict in carried)


def _moved(verdict: TickVerdict) -> tuple[object, ...]:
    read = verdict.schedule
    return (
        verdict.mark_at,
        verdict.next_fire_at,
        verdict.active_runs,
        verdict.queued_runs,
        verdict.spread_until,
        read.uid,
        read.mark_at,
        read.revision,
        read.active_runs,
        read.queued_runs,
        read.paused_at,
    )


def _write_verdicts(conn: sa.Connection, verdicts: Sequence[TickVerdict], now: int, terms: Terms) -> None:
    ticks = []
    runs: list[Run] = []
    tasks: list[Task] = []
    for verdict in verdicts:
        schedule = verdict.schedule
        term = terms[schedule.shard]
        for decision in verdict.decisions:
            ticks.append(tick_row(tick_record(schedule, decision, now=now, term=term)))
            if decision.starts_run:
                new = run_record(schedule, decision, now=now)
                runs.append(new)
                spec = schedule.spec
                tasks += first_tasks(new, spec.first_steps, now=now, spans_ms=first_spans(spec.deadlines))
    bulk.insert_rows(conn, schema.tick, ticks)
    bulk.insert_rows(conn, schema.run, [run_row(new) for new in runs if new.deadline_at is None])
    limited = [limited_run_row(new) for new in runs if new.deadline_at is not None]
    bulk.insert_rows(conn, schema.run, limited, LIMITED_RUN)
    insert_tasks(conn, tasks)
    announcements.write_tick_decisions(conn, verdicts, now)
