"""Deciding ticks, in bulk: what it costs a schedule is what it costs a thousand, divided by a thousand."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import notify_after_commit
from gnomon.adapters.sql.cancellation import supersede
from gnomon.adapters.sql.rows import SCHEDULE, run_row, task_row, tick_row
from gnomon.adapters.sql.unreadable import NOT_KNOWN, UnreadableSchedules
from gnomon.core.ids import SHARDS, run_id
from gnomon.core.ledger.plan import run_record, tick_record
from gnomon.core.model import Schedule, ScheduleUid, Verdict
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
_SOME_TERMS = "SELECT shard, term FROM shard WHERE shard {among} ORDER BY shard"
_TERMS = bulk.Statement(
    _SOME_TERMS.format(among="IN (SELECT value FROM json_each(?))"), _SOME_TERMS.format(among="= ANY ($1::smallint[])")
)
_HELD_TERMS = bulk.Statement(_TERMS.sqlite, f"{_TERMS.postgresql} FOR SHARE")
#: How often a page that had unreadable rows is asked for again without them, before the next call goes on.
_MOST_PAGES = 8


def due(
    conn: sa.Connection, now: int, shards: frozenset[int], limit: int, unreadable: UnreadableSchedules
) -> Sequence[Schedule]:
    """See Ledger.due. Those that cannot be read are passed over, and remembered as such."""
    found: list[Schedule] = []
    if not shards:
        return found
    for _ in range(_MOST_PAGES):
        asked, narrowed = _only(_DUE, shards, unreadable)
        rows = conn.execute(asked, {"now": now, "limit": limit, **narrowed}).all()
        found = unreadable.readable(rows)
        # Otherwise they took the places of others, which may be all there is to do.
        if len(found) == len(rows):
            break
    return found


def next_due_at(conn: sa.Connection, shards: frozenset[int], unreadable: UnreadableSchedules) -> int | None:
    """See Ledger.next_due_at. Those known to be unreadable are never due, so nobody is woken for them."""
    if not shards:
        return None
    asked, narrowed = _only(_NEXT, shards, unreadable)
    found: int | None = conn.scalar(asked, narrowed)
    return found


def _only(
    query: sa.Select[Any], shards: frozenset[int], unreadable: UnreadableSchedules
) -> tuple[sa.Select[Any], dict[str, list[Any]]]:
    """The query, narrowed down to the shards unless they are all there are, and to what may be readable."""
    narrowed: dict[str, list[Any]] = {}
    if len(shards) != SHARDS:
        query, narrowed["shards"] = query.where(_OURS), sorted(shards)
    if unreadable.pairs:
        query, narrowed["unreadable"] = query.where(NOT_KNOWN), unreadable.known
    return query, narrowed


def decide(conn: sa.Connection, verdicts: Sequence[Verdict], now: int, terms: Terms) -> frozenset[ScheduleUid]:
    """See Ledger.decide."""
    shards = {verdict.schedule.shard for verdict in verdicts}
    # Held until the end, so that no one gets a newer term between the look at it and the commit.
    current = terms_of(conn, shards, hold=True)
    stale = tuple(sorted(shard for shard in shards if shard not in terms or terms[shard] != current.get(shard)))
    if stale:
        raise StaleTerm(stale)
    return apply_verdicts(conn, verdicts, now=now, terms=current)


def terms_of(conn: sa.Connection, shards: Collection[int], *, hold: bool = False) -> dict[int, int]:
    """The terms of the shards as they are; as they will be until the end of the transaction, if held."""
    found = bulk.fetch_rows(conn, _HELD_TERMS if hold else _TERMS, sorted(shards))
    return {shard: term for shard, term in found}  # noqa: C416 - rows are no tuples to a type checker


def apply_verdicts(
    conn: sa.Connection, verdicts: Sequence[Verdict], *, now: int, terms: Terms
) -> frozenset[ScheduleUid]:
    """Every verdict is carried out whose schedule is still as it was read; their uids come back."""
    # Sorted, so that two who move the same schedules mostly take their locks in the same order. PostgreSQL may
    # join in another one: whoever then is the victim of a deadlock is run again. The first verdict on a schedule
    # makes any other void.
    first = {verdict.schedule.uid: verdict for verdict in reversed(verdicts)}
    by_uid = [first[uid] for uid in sorted(first)]
    moved = bulk.update_unchanged_schedules(conn, [_moved(verdict) for verdict in by_uid])
    carried = [verdict for verdict in by_uid if verdict.schedule.uid in moved]
    _write_verdicts(conn, carried, now, terms)
    # The newest is the one that replaces; those it replaces may make room for it at once.
    replacing = {v.schedule.uid: run_id(v.schedule.uid, v.newest_run_at) for v in carried if v.replaces}
    supersede(conn, replacing, now)
    notify_after_commit(conn, lambda tally: tally.decided(carried, now))
    return frozenset(verdict.schedule.uid for verdict in carried)


def _moved(verdict: Verdict) -> tuple[object, ...]:
    read = verdict.schedule
    return (
        verdict.mark_at,
        verdict.next_fire_at,
        verdict.active_runs,
        verdict.queued_runs,
        read.uid,
        read.mark_at,
        read.revision,
        read.active_runs,
        read.queued_runs,
        read.paused_at,
    )


def _write_verdicts(conn: sa.Connection, verdicts: Sequence[Verdict], now: int, terms: Terms) -> None:
    ticks, made, tasks = [], [], []
    for verdict in verdicts:
        schedule = verdict.schedule
        term = terms[schedule.shard]
        for decision in verdict.decisions:
            ticks.append(tick_row(tick_record(schedule, decision, now=now, term=term)))
            if decision.starts_run:
                new = run_record(schedule, decision, now=now)
                made.append(run_row(new))
                tasks += [task_row(task) for task in first_tasks(new, schedule.spec.first_steps, now=now)]
    bulk.insert_rows(conn, schema.tick, ticks)
    bulk.insert_rows(conn, schema.run, made)
    bulk.insert_rows(conn, schema.task, tasks)
