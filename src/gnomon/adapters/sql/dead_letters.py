"""Dead letters: tasks that have failed for good."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import notify_activity, notify_letters
from gnomon.adapters.sql.payloads import ready_tasks, sealed_letter, unsealed_letter
from gnomon.adapters.sql.rows import (
    ATTEMPT,
    DEAD_LETTER,
    LAST_CHARACTER,
    RUN,
    TASK,
    attempt_of,
    column_list,
    dead_letter_of,
    dead_letter_row,
    load_workflow,
)
from gnomon.core.model import LONGEST_ERROR_LINE, Attempt, DeadLetter, TaskId
from gnomon.core.runs.admission import ReadyTask, stored_run_input
from gnomon.core.runs.outcomes import dead_letter
from gnomon.core.runs.workflow import COMPENSATION
from gnomon.ports.runs import LetterGroup, LetterGroups, LetterPage, LetterPosition, LetterQuery

_letter = schema.dead_letter.c
_TASKS = bulk.statement(
    f"SELECT {column_list(TASK)}, {column_list(RUN)}, payload.body, NULL FROM task JOIN run ON run.run_id = task.run_id"  # noqa: S608 - our own names
    " LEFT JOIN payload ON payload.owner_id = task.run_id AND payload.kind = 'input' WHERE task.task_id IN KEYS"
)
_ATTEMPTS = bulk.statement(f"SELECT {column_list(ATTEMPT)} FROM attempt WHERE task_id IN KEYS ORDER BY task_id, number")  # noqa: S608 - our own names
_ADD = bulk.insert_statement(
    schema.dead_letter,
    tuple(column.name for column in DEAD_LETTER),
    "ON CONFLICT (dead_letter_id) DO NOTHING",
)
_RESOLVE = (
    sa.update(schema.dead_letter)
    .where(
        _letter.dead_letter_id.in_(sa.bindparam("names", expanding=True)),
        _letter.tenant == sa.bindparam("owner"),
        _letter.resolved_at.is_(None),
    )
    .values(resolved_at=sa.bindparam("at"), resolved_by=sa.bindparam("by"))
)
_UNRESOLVED = bulk.statement(
    "SELECT dead_letter_id FROM dead_letter WHERE dead_letter_id IN KEYS AND tenant = ? AND resolved_at IS NULL"
    " ORDER BY dead_letter_id FOR UPDATE"
)
_OF_TENANT = sa.select(*DEAD_LETTER).where(_letter.tenant == sa.bindparam("owner"))
_FIND = _OF_TENANT.where(_letter.dead_letter_id == sa.bindparam("name"))
_PLACE = (_letter.created_at, _letter.dead_letter_id)
# The id of a letter begins with that of its run, so that the letters of a run are a range of the primary key.
_OF_EXECUTION = bulk.statement(
    "SELECT other.dead_letter_id FROM dead_letter AS one JOIN dead_letter AS other"
    " ON other.dead_letter_id >= 'dl_' || substr(one.run_id, 5)"
    " AND other.dead_letter_id < 'dl_' || substr(one.run_id, 5) || '~'"
    " AND other.run_id = one.run_id WHERE one.dead_letter_id IN KEYS AND one.tenant = ?"
)


_OF_COMPENSATIONS = bulk.statement(
    f"SELECT dead_letter_id FROM dead_letter WHERE run_id IN KEYS AND step LIKE '{COMPENSATION}%'"  # noqa: S608 - our own
)


class FailedTask(NamedTuple):
    """A task that has failed for good: the reason, and the error and the time of its last attempt."""

    task_id: TaskId
    reason: str
    error: str | None
    at: int


def write(conn: sa.Connection, dead: Sequence[FailedTask]) -> None:
    """Write the dead letters of these tasks. The ends of the tasks are written before."""
    if not dead:
        return
    names: list[str] = sorted({one.task_id for one in dead})
    found = {ready.task.task_id: ready for ready in ready_tasks(conn, bulk.fetch_rows(conn, _TASKS, names))}
    by_task: dict[str, list[Attempt]] = {name: [] for name in names}
    for attempt in attempts(conn, names):
        by_task[attempt.task_id].append(attempt)
    letters = [_letter_of(conn, one, found[one.task_id], by_task[one.task_id]) for one in dead]
    bulk.execute_many(conn, _ADD, [dead_letter_row(sealed_letter(conn, letter)) for letter in letters])
    notify_activity(conn, lambda observer: observer.dead_lettered([letter.job for letter in letters]))
    notify_letters(conn, lambda observer: observer.letters_written(letters))


def _letter_of(conn: sa.Connection, one: FailedTask, of: ReadyTask, of_task: Sequence[Attempt]) -> DeadLetter:
    run = of.run
    workflow = None
    if of.input is None:
        workflow = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
    given = stored_run_input(of.input, workflow)
    return dead_letter(of.task, run, of_task, one.reason, one.error, given, now=one.at)


def attempts(conn: sa.Connection, tasks: Sequence[str]) -> Sequence[Attempt]:
    """See Executions.attempts."""
    return [attempt_of(row) for row in bulk.fetch_rows(conn, _ATTEMPTS, list(tasks))]


def find(conn: sa.Connection, tenant: str, dead_letter_id: str) -> DeadLetter | None:
    """See DeadLetters.find."""
    row = conn.execute(_FIND, {"owner": tenant, "name": dead_letter_id}).one_or_none()
    return None if row is None else unsealed_letter(conn, dead_letter_of(row))


def page(conn: sa.Connection, query: LetterQuery) -> Sequence[DeadLetter]:
    """See DeadLetters.page."""
    return search(conn, query).letters


def search(conn: sa.Connection, query: LetterQuery) -> LetterPage:
    """See DeadLetters.search."""
    end = _scan_end(conn, query) if query.searches else None
    wanted = _in_order(_matching(conn, _within(_OF_TENANT, query, end), query), query)
    rows = conn.execute(wanted.limit(query.limit), {"owner": query.tenant})
    found = [unsealed_letter(conn, dead_letter_of(row)) for row in rows]
    if len(found) == query.limit:
        return LetterPage(found, (found[-1].created_at, found[-1].dead_letter_id))
    return LetterPage(found, end)


def groups(conn: sa.Connection, query: LetterQuery) -> LetterGroups:
    """See DeadLetters.groups."""
    end = _scan_end(conn, query)
    line = _error_line(conn).label("error_line")
    columns = sa.select(_letter.job, _letter.step, line, _letter.created_at).where(
        _letter.tenant == sa.bindparam("owner")
    )
    letters = _matching(conn, _within(columns, query, end), query).subquery()
    newest = sa.func.max(letters.c.created_at)
    key = (letters.c.job, letters.c.step, letters.c.error_line)
    found = sa.select(*key, sa.func.count(), sa.func.min(letters.c.created_at), newest).group_by(*key)
    rows = conn.execute(found.order_by(newest.desc(), *key), {"owner": query.tenant})
    return LetterGroups(
        [
            LetterGroup(job=job, step=step, error_line=text, count=count, oldest_at=oldest_at, newest_at=newest_at)
            for job, step, text, count, oldest_at, newest_at in rows
        ],
        end,
    )


def _scan_end(conn: sa.Connection, query: LetterQuery) -> LetterPosition | None:
    """The position of the last letter that one search looks at; None if the listing ends before."""
    listing = sa.select(*_PLACE).where(_letter.tenant == sa.bindparam("owner"))
    last = _in_order(_within(listing, query, None), query).offset(query.scan - 1).limit(1)
    row = conn.execute(last, {"owner": query.tenant}).one_or_none()
    return None if row is None else (row[0], row[1])


def _in_order(listing: sa.Select[Any], query: LetterQuery) -> sa.Select[Any]:
    return listing.order_by(*(column.asc() if query.oldest_first else column.desc() for column in _PLACE))


def _within(listing: sa.Select[Any], query: LetterQuery, end: LetterPosition | None) -> sa.Select[Any]:
    """The letters in the part of an index that the query and the end of its search select."""
    place = sa.tuple_(*_PLACE)
    if query.job is not None:
        listing = listing.where(_letter.job == query.job)
    if query.unresolved:
        listing = listing.where(_letter.resolved_at.is_(None))
    if query.since is not None:
        listing = listing.where(_letter.created_at >= query.since)
    if query.until is not None:
        listing = listing.where(_letter.created_at < query.until)
    if query.after is not None:
        after = sa.tuple_(*query.after)
        listing = listing.where(place > after if query.oldest_first else place < after)
    if end is not None:
        listing = listing.where(place <= sa.tuple_(*end) if query.oldest_first else place >= sa.tuple_(*end))
    return listing


def _matching(conn: sa.Connection, listing: sa.Select[Any], query: LetterQuery) -> sa.Select[Any]:
    """Those of the letters that LetterQuery.matches."""
    if query.reason is not None:
        listing = listing.where(_letter.reason == query.reason)
    if query.step is not None:
        listing = listing.where(_letter.step == query.step)
    if query.error is not None:
        error = sa.func.coalesce(_letter.last_error, "")
        listing = listing.where(sa.func.substr(error, 1, len(query.error)) == query.error)
    if query.error_line is not None:
        listing = listing.where(_error_line(conn) == query.error_line)
    return listing


def _error_line(conn: sa.Connection) -> sa.ColumnElement[str]:
    """DeadLetter.error_line of a row."""
    error = sa.func.coalesce(_letter.last_error, "")
    if conn.dialect.name == "sqlite":
        line = sa.func.substr(error, 1, sa.func.instr(error.concat("\n"), "\n") - 1)
    else:
        line = sa.func.split_part(error, "\n", 1)
    return sa.func.substr(line, 1, LONGEST_ERROR_LINE)


def find_by_prefix(conn: sa.Connection, tenant: str, prefix: str, limit: int) -> Sequence[DeadLetter]:
    """See DeadLetters.find_by_prefix."""
    named = _letter.dead_letter_id
    found = _OF_TENANT.where(named >= prefix, named < prefix + LAST_CHARACTER).order_by(named).limit(limit)
    return [unsealed_letter(conn, dead_letter_of(row)) for row in conn.execute(found, {"owner": tenant})]


def of_execution(conn: sa.Connection, tenant: str, dead_letter_ids: Collection[str]) -> list[str]:
    """The ids of all letters of the executions that left these."""
    return sorted(name for (name,) in bulk.fetch_rows(conn, _OF_EXECUTION, sorted(set(dead_letter_ids)), tenant))


def lock_unresolved(conn: sa.Connection, tenant: str, dead_letter_ids: Collection[str]) -> list[str]:
    """The ids of the unresolved dead letters among these, locked until the end of the transaction."""
    return [name for (name,) in bulk.fetch_rows(conn, _UNRESOLVED, sorted(set(dead_letter_ids)), tenant)]


def of_compensations(conn: sa.Connection, run_id: str) -> Sequence[str]:
    """The ids of the letters that compensations of the run have left."""
    return [name for (name,) in bulk.fetch_rows(conn, _OF_COMPENSATIONS, [run_id])]


def resolve(conn: sa.Connection, tenant: str, dead_letter_ids: Collection[str], by: str, now: int) -> int:
    """See DeadLetters.resolve."""
    wanted = {"names": sorted(set(dead_letter_ids)), "owner": tenant, "at": now, "by": by}
    return conn.execute(_RESOLVE, wanted).rowcount
