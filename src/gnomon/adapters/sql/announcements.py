"""Announcements: written in the transaction of their moment, and read.

A run whose end is to be announced before it counts is held here: its announcements are written, and it goes on without
any task until the last of them is over (`announcement_queue.py`).
"""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_announcements
from gnomon.adapters.sql.completion import EndedRun
from gnomon.adapters.sql.rows import (
    ANNOUNCEMENT,
    LAST_CHARACTER,
    announcement_of,
    announcement_row,
    column_list,
    decode_workflow,
)
from gnomon.core.announcements.decide import (
    counts_failures,
    run_announcements,
    streak_key,
    tick_announcements,
    tick_moment,
)
from gnomon.core.announcements.model import Announcement
from gnomon.core.audit import retried_entry
from gnomon.core.model import Run, RunId, RunStatus, TickVerdict
from gnomon.core.runs.outcomes import run_error
from gnomon.ports.announcements import AnnouncementQuery
from gnomon.ports.coordination import HintTopic

_announcement = schema.announcement.c
_ADD = bulk.insert_statement(
    schema.announcement,
    tuple(str(column.name) for column in ANNOUNCEMENT),
    "ON CONFLICT (announcement_id) DO NOTHING",
)
_COUNT_FAILURE = bulk.statement(
    "INSERT INTO failure_streak (uid, failures) VALUES (?, 1)"
    " ON CONFLICT (uid) DO UPDATE SET failures = failure_streak.failures + 1 RETURNING failures"
)
_END_STREAK = bulk.statement("DELETE FROM failure_streak WHERE uid = ? RETURNING failures")
_ANNOUNCES = "definition LIKE '%\"announce\":%'"
#: Workflows by tenant, id and version, as far as they announce anything.
_ANNOUNCING = bulk.Statement(
    "SELECT tenant, workflow_id, version, definition FROM workflow"  # noqa: S608 - our own names, here and below
    f" WHERE tenant = ? AND workflow_id = ? AND version = ? AND {_ANNOUNCES}",
    "SELECT w.tenant, w.workflow_id, w.version, w.definition"  # noqa: S608
    " FROM unnest($1::text[], $2::text[], $3::integer[]) AS v (tenant, workflow_id, version)"
    " JOIN workflow AS w ON w.tenant = v.tenant AND w.workflow_id = v.workflow_id AND w.version = v.version"
    f" WHERE w.{_ANNOUNCES}",
)
_OF_RUNS = bulk.statement(
    f"SELECT {column_list(ANNOUNCEMENT)} FROM announcement WHERE run_id IN KEYS ORDER BY announcement_id"  # noqa: S608
)
_HELD = bulk.statement(
    "SELECT DISTINCT run_id FROM announcement"  # noqa: S608
    f" WHERE run_id IN KEYS AND {schema.TO_ANNOUNCE} AND NOT best_effort"
)
_UNSENT = bulk.statement(f"SELECT DISTINCT run_id FROM announcement WHERE run_id IN KEYS AND {schema.TO_ANNOUNCE}")  # noqa: S608
_RETRY = bulk.statement(
    "UPDATE announcement SET state = 'pending', tries = 0, next_at = ?, since_at = ?, ended_at = NULL, note = NULL"
    " WHERE announcement_id = ? AND tenant = ? AND state = 'given_up' RETURNING announcement_id"
)
_OF_TENANT = sa.select(*ANNOUNCEMENT).where(_announcement.tenant == sa.bindparam("owner"))


# ---- writing -------------------------------------------------------------------------------------


def write_run_ends(conn: sa.Connection, ended: Sequence[EndedRun]) -> Sequence[EndedRun]:
    """Write the announcements of the ends of these runs; return the runs that do not wait for one of them."""
    if not any(one.announce for one in ended):
        return ended
    made: dict[RunId, list[Announcement]] = {}
    # In the order of their keys: two transactions that count failures lock them in the same order.
    for one in sorted((one for one in ended if one.announce), key=lambda one: streak_key(one.run)):
        run, status = one.run, one.status
        failures = _count_failures(conn, run, status) if counts_failures(one.announce) else 1
        error = run_error(run, status, one.error)
        made[run.run_id] = run_announcements(run, one.announce, status, error, failures=failures, at=one.at)
    write(conn, [one for some in made.values() for one in some])
    return [one for one in ended if not any(announcement.holds_run for announcement in made.get(one.run.run_id, ()))]


def _count_failures(conn: sa.Connection, run: Run, status: RunStatus) -> int:
    """How many runs have failed in a row: with this one, or before this success."""
    if status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        return 0
    statement = _COUNT_FAILURE if status is RunStatus.FAILED else _END_STREAK
    found = bulk.fetch_rows(conn, statement, streak_key(run))
    return int(found[0][0]) if found else 0


def write_tick_decisions(conn: sa.Connection, verdicts: Sequence[TickVerdict], now: int) -> None:
    """Write the announcements of missed and skipped ticks."""
    announced = [one for one in verdicts if any(tick_moment(decision) for decision in one.decisions)]
    if not announced:
        return
    versions = {one.schedule.uid: _version(one) for one in announced}
    rules = {
        (tenant, name, version): decode_workflow(definition).announce
        for tenant, name, version, definition in bulk.execute_returning_rows(
            conn, _ANNOUNCING, sorted(set(versions.values()))
        )
    }
    made = [
        announcement
        for one in announced
        for announcement in tick_announcements(
            one.schedule, one.decisions, rules.get(versions[one.schedule.uid], ()), at=now
        )
    ]
    write(conn, made)


def _version(verdict: TickVerdict) -> tuple[str, str, int]:
    schedule = verdict.schedule
    return schedule.tenant, schedule.spec.workflow_id, schedule.spec.workflow_version


def write(conn: sa.Connection, made: Sequence[Announcement]) -> None:
    """Write announcements. One that is there already stays as it is."""
    if made:
        bulk.execute_many(conn, _ADD, [announcement_row(one) for one in made])
        wake_announcers(conn)


def wake_announcers(conn: sa.Connection) -> None:
    """Wake the process that sends announcements, once the transaction is committed."""
    hint_after_commit(conn, HintTopic.ANNOUNCEMENTS)
    notify_announcements(conn)


def awaiting(conn: sa.Connection, runs: Iterable[str]) -> frozenset[str]:
    """Those of the runs that stay open only until their end is announced."""
    names = sorted(runs)
    return frozenset(name for (name,) in bulk.fetch_rows(conn, _HELD, names)) if names else frozenset()


def unsent(conn: sa.Connection, runs: Iterable[str]) -> frozenset[str]:
    """Those of the runs that have a pending announcement."""
    names = sorted(runs)
    return frozenset(name for (name,) in bulk.fetch_rows(conn, _UNSENT, names)) if names else frozenset()


# ---- reading -------------------------------------------------------------------------------------


def find(conn: sa.Connection, tenant: str, announcement_id: str) -> Announcement | None:
    """See Announcements.find."""
    query = _OF_TENANT.where(_announcement.announcement_id == announcement_id)
    row = conn.execute(query, {"owner": tenant}).one_or_none()
    return None if row is None else announcement_of(row)


def page(conn: sa.Connection, query: AnnouncementQuery) -> Sequence[Announcement]:
    """See Announcements.page."""
    place = (_announcement.created_at, _announcement.announcement_id)
    found = _OF_TENANT.order_by(*(column.desc() for column in place)).limit(query.limit)
    if query.job is not None:
        found = found.where(_announcement.job == query.job)
    if query.state is not None:
        found = found.where(_announcement.state == query.state.value)
    if query.after is not None:
        found = found.where(sa.tuple_(*place) < sa.tuple_(*query.after))
    return [announcement_of(row) for row in conn.execute(found, {"owner": query.tenant})]


def find_by_prefix(conn: sa.Connection, tenant: str, prefix: str, limit: int) -> Sequence[Announcement]:
    """See Announcements.find_by_prefix."""
    named = _announcement.announcement_id
    found = _OF_TENANT.where(named >= prefix, named < prefix + LAST_CHARACTER).order_by(named).limit(limit)
    return [announcement_of(row) for row in conn.execute(found, {"owner": tenant})]


def of_runs(conn: sa.Connection, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[Announcement]]:
    """See Announcements.of_runs."""
    found: dict[RunId, list[Announcement]] = {}
    for one in map(announcement_of, bulk.fetch_rows(conn, _OF_RUNS, list(runs)) if runs else ()):
        found.setdefault(RunId(str(one.run_id)), []).append(one)
    return found


def retry(conn: sa.Connection, tenant: str, announcement_id: str, actor: str, now: int) -> bool:
    """See Announcements.retry."""
    if not bulk.fetch_rows(conn, _RETRY, now, now, announcement_id, tenant):
        return False
    audit.write(conn, [retried_entry(announcement_id, tenant, actor, now)])
    wake_announcers(conn)
    return True
