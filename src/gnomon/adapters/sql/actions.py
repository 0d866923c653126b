"""The actions of tenants, counted in the transactions that admit them and given back in those that end them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.placement import lock_tenant
from gnomon.core.commands.actions import ACTION_WINDOW_MS, refusal_after
from gnomon.core.model import TaskId
from gnomon.core.runs.admission import Admission, within_action_limits
from gnomon.core.runs.outcomes import FAILURES, TaskCompletion
from gnomon.ports.tasks import AttemptRef

#: The number of an action that is no task, and so has no attempts.
_ONLY = 0
_SPENT = bulk.statement("SELECT tenant, count(*) FROM action WHERE tenant IN KEYS AND at > ? GROUP BY tenant")
_SPENT_BESIDES = bulk.statement(
    "SELECT count(*) FROM action WHERE tenant = ? AND at > ? AND NOT (action_id = ? AND number = ?)"
)
_FORGET = bulk.statement("DELETE FROM action WHERE tenant IN KEYS AND at <= ?")
_GIVE_BACK_MODEL_ACTION = bulk.statement("DELETE FROM action WHERE action_id IN KEYS AND number = ?")
#: The actions that are reserved for an attempt of an agent have ids that follow each other.
_GIVE_BACK_FROM = bulk.Statement(
    "DELETE FROM action WHERE action_id >= ? AND action_id < ? AND number = ?",
    "DELETE FROM action USING unnest($1::text[], $2::text[], $3::bigint[]) AS place (first, beyond, number)"
    ' WHERE action_id >= place.first COLLATE "C" AND action_id < place.beyond COLLATE "C"'
    " AND action.number = place.number",
)
#: The actions that are reserved for agents that were admitted, and not taken since; the last parameter is their task.
_GIVE_BACK_RESERVED = bulk.Statement(
    "DELETE FROM action WHERE action_id >= ? AND action_id < ?"
    " AND number > (SELECT fence FROM task WHERE task.task_id = ?)",
    "DELETE FROM action USING unnest($1::text[], $2::text[], $3::text[]) AS place (first, beyond, task_id)"
    ' WHERE action_id >= place.first COLLATE "C" AND action_id < place.beyond COLLATE "C"'
    " AND action.number > (SELECT fence FROM task WHERE task.task_id = place.task_id)",
)
#: The actions of tasks that were admitted, and not taken since.
_GIVE_BACK_UNTAKEN = bulk.statement(
    "DELETE FROM action WHERE action_id IN KEYS"
    " AND number > (SELECT fence FROM task WHERE task.task_id = action.action_id)"
)
#: The current attempts of these tasks.
_GIVE_BACK = bulk.statement(
    "DELETE FROM action WHERE action_id IN KEYS"
    " AND number = (SELECT fence FROM task WHERE task.task_id = action.action_id)"
)
_FAILURES = bulk.statement(
    "SELECT task_id, error FROM attempt WHERE task_id IN KEYS AND error IS NOT NULL"  # noqa: S608 - our own names
    f" AND result IN ({', '.join(repr(one.value) for one in sorted(FAILURES))}) ORDER BY number"
)


def count_since(conn: sa.Connection, tenant: str, since: int, besides: AttemptRef | None) -> int:
    """See PendingTasks.actions_since."""
    task_id, number = besides or ("", 0)
    [(count,)] = bulk.fetch_rows(conn, _SPENT_BESIDES, tenant, since, task_id, number)
    return int(count)


def count_model_action(conn: sa.Connection, action_id: str, tenant: str, limit: int, now: int) -> bool:
    """See ActionCounts.count."""
    lock_tenant(conn, tenant)
    bulk.execute_statement(conn, _FORGET, [tenant], now - ACTION_WINDOW_MS)
    if count_since(conn, tenant, now - ACTION_WINDOW_MS, None) >= limit:
        return False
    bulk.insert_rows(conn, schema.action, [(action_id, _ONLY, tenant, now)])
    return True


def give_back_model_action(conn: sa.Connection, action_id: str) -> None:
    """See ActionCounts.give_back."""
    bulk.execute_statement(conn, _GIVE_BACK_MODEL_ACTION, [action_id], _ONLY)


def reserve_agent_actions(
    conn: sa.Connection, task_id: str, number: int, tenant: str, *, count: int, limit: int, now: int
) -> bool:
    """See ActionCounts.reserve."""
    lock_tenant(conn, tenant)
    bulk.execute_statement(conn, _FORGET, [tenant], now - ACTION_WINDOW_MS)
    bulk.execute_many(conn, _GIVE_BACK_FROM, [(*_places_from(task_id, 0), number)])
    if count_since(conn, tenant, now - ACTION_WINDOW_MS, None) + count > limit:
        return False
    rows = [(_place(task_id, place), number, tenant, now) for place in range(count)]
    bulk.insert_rows(conn, schema.action, rows)
    return True


def give_back_agent_actions(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Forget the reserved actions that attempts have not taken. It is not known what a lost one has taken."""
    spent = [(one, one.usage.actions) for one in endings if one.usage is not None]
    bulk.execute_many(conn, _GIVE_BACK_FROM, [(*_places_from(one.task_id, taken), one.fence) for one, taken in spent])


def _place(task_id: str, place: int) -> str:
    """The id of one of the actions that are reserved for a task."""
    return f"{task_id}.{place:05}"


def _places_from(task_id: str, place: int) -> tuple[str, str]:
    """The bounds of these ids, from that place on."""
    return _place(task_id, place), f"{task_id}/"


def within_budgets(
    conn: sa.Connection, admitted: Mapping[TaskId, Admission], fences: Mapping[str, int], now: int
) -> dict[TaskId, Admission]:
    """Count the admitted actions, and deny those beyond the budgets of their tenants.

    The caller has locked these tenants. `fences` are those of the tasks.
    """
    counted = [one for one in admitted.values() if one.action_limit is not None]
    if not counted:
        return dict(admitted)
    # A task that was recalled, and is admitted again, counts once.
    give_back_untaken(conn, [one.task_id for one in counted])
    tenants = sorted({one.action_limit[0] for one in counted if one.action_limit is not None})
    bulk.execute_statement(conn, _FORGET, tenants, now - ACTION_WINDOW_MS)
    found = _by_first(bulk.fetch_rows(conn, _SPENT, tenants, now - ACTION_WINDOW_MS))
    ruled = within_action_limits(list(admitted.values()), found)
    rows = [
        (one.task_id, fences[one.task_id] + 1, one.action_limit[0], now)
        for one in ruled
        if one.action_limit is not None
    ]
    bulk.insert_rows(conn, schema.action, rows)
    return {one.task_id: one for one in ruled}


def give_back_untaken(conn: sa.Connection, tasks: Sequence[str]) -> None:
    """Forget the actions of tasks that no worker has taken since their admission."""
    if tasks:
        bulk.execute_statement(conn, _GIVE_BACK_UNTAKEN, list(tasks))


def give_back_reserved(conn: sa.Connection, tasks: Sequence[str]) -> None:
    """Forget the actions that are reserved for agents that no worker has taken since their admission."""
    bulk.execute_many(conn, _GIVE_BACK_RESERVED, [(*_places_from(task, 0), task) for task in tasks])


def give_back_unstarted(conn: sa.Connection, unstarted: Collection[TaskCompletion]) -> None:
    """Forget the actions of attempts that end without having started."""
    if unstarted:
        bulk.execute_statement(conn, _GIVE_BACK, [one.task_id for one in unstarted])
        rows = [(*_places_from(one.task_id, 0), one.fence) for one in unstarted]
        bulk.execute_many(conn, _GIVE_BACK_FROM, rows)


def with_earlier_errors(conn: sa.Connection, denied: Sequence[Admission]) -> dict[TaskId, Admission]:
    """The denials, each with the error of the last attempt that failed before."""
    found = _failures(conn, [one.task_id for one in denied])
    return {one.task_id: replace(one, note=refusal_after(one.note or "", found.get(one.task_id))) for one in denied}


def with_earlier_error(conn: sa.Connection, refused: TaskCompletion) -> TaskCompletion:
    """The end of an attempt that a worker refused, with the error of the last attempt that failed before."""
    found = _failures(conn, [refused.task_id]) if refused.fence > 1 else {}
    return replace(refused, error=refusal_after(refused.error or "", found.get(refused.task_id)))


def _failures(conn: sa.Connection, tasks: list[str]) -> dict[str, str]:
    """The errors of the last attempts that failed, by task."""
    return _by_first(bulk.fetch_rows(conn, _FAILURES, tasks)) if tasks else {}


def _by_first(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The second column of the rows by the first; the last row counts."""
    return {row[0]: row[1] for row in rows}
