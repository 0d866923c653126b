"""Tasks with a deadline: the port TaskDeadlines. One partial index finds them; other tasks are not in it."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import approvals, bulk, schema
from gnomon.adapters.sql.actions import give_back_reserved, give_back_untaken
from gnomon.adapters.sql.graph import LOCKED_TASKS, EndedTask, end_tasks, lock_counters
from gnomon.adapters.sql.rows import ATTEMPT, RUN, TASK, attempt_of, column_list, task_and_run_of
from gnomon.adapters.sql.transitions import StateChange, state_in, state_update, write_changes
from gnomon.core.ledger.plan import NODE_TOLERANCE_MS, refuse_clock_ahead
from gnomon.core.model import ENGINE, TaskId
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask, earliest, has_passed
from gnomon.core.runs.states import WAITING, TaskState
from gnomon.ports.tasks import QueuePosition

_LIMITED = schema.LIMITED.replace("deadline_at", "task.deadline_at").replace("state ", "task.state ")
_HELD = "attempt.task_id = task.task_id AND attempt.number = task.fence AND attempt.ended_at IS NULL"
#: A fan-out has the worker ENGINE: it ends with its items, and a step with a sub-run ends with that.
_BY_WORKER = f"attempt.worker <> '{ENGINE}'"
_OVERDUE = bulk.statement(
    f"SELECT {column_list(TASK)}, {column_list(RUN)}, {column_list(ATTEMPT)}"  # noqa: S608 - our own names, here and below
    f" FROM task JOIN run ON run.run_id = task.run_id LEFT JOIN attempt ON {_HELD}"
    f" WHERE {_LIMITED} AND task.deadline_at <= ? AND (task.deadline_at, task.task_id) > (?, ?)"
    f" AND ({state_in(WAITING)} OR task.deadline_at <= ? AND {_BY_WORKER})"
    " ORDER BY task.deadline_at, task.task_id LIMIT ?"
)
_FIRST = f"SELECT task.deadline_at FROM task {{join}} WHERE {_LIMITED} AND {{which}} ORDER BY task.deadline_at LIMIT 1"  # noqa: S608
_NEXT = bulk.statement(
    f"SELECT ({_FIRST.format(join='', which=state_in(WAITING))}),"
    f" ({_FIRST.format(join=f'JOIN attempt ON {_HELD}', which=_BY_WORKER)})"
)
_END = state_update("note")


def next_end_at(conn: sa.Connection, grace_ms: int) -> int | None:
    """See TaskDeadlines.next_end_at."""
    [(waiting, held)] = bulk.fetch_rows(conn, _NEXT)
    return earliest(waiting, None if held is None else held + grace_ms)


def overdue(
    conn: sa.Connection, now: int, grace_ms: int, after: QueuePosition, limit: int, store_now: bulk.StoreNow
) -> Sequence[OverdueTask]:
    """See TaskDeadlines.overdue."""
    refuse_clock_ahead(now, store_now(conn), tolerance_ms=NODE_TOLERANCE_MS)
    found = []
    for row in bulk.fetch_rows(conn, _OVERDUE, now, *after, now - grace_ms, limit):
        task, run = task_and_run_of(row)
        attempt = row[-len(ATTEMPT) :]
        found.append(OverdueTask(task=task, run=run, attempt=None if attempt[0] is None else attempt_of(attempt)))
    return found


def end_overdue(
    conn: sa.Connection, ends: Sequence[OverdueEnd], now: int, store_now: bulk.StoreNow
) -> frozenset[TaskId]:
    """See TaskDeadlines.end_overdue."""
    refuse_clock_ahead(now, store_now(conn), tolerance_ms=NODE_TOLERANCE_MS)
    counters = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in ends))
    names: list[str] = [one.task_id for one in ends]
    found = {
        task.task_id: (task, run) for task, run in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, names))
    }
    changes: dict[TaskId, StateChange] = {}
    over: list[EndedTask] = []
    for one in ends:
        task, run = found.get(one.task_id, (None, None))
        if task is None or run is None or one.task_id in changes or task.state not in WAITING:
            continue
        if task.fence == one.fence and has_passed(task.deadline_at, now):
            changes[one.task_id] = StateChange(one.task_id, task.state, one.state, (one.note,))
            over.append(EndedTask(one, run, one.note, now, task.parent))
    write_changes(conn, _END, list(changes.values()))
    asking = [one.task_id for one in changes.values() if one.before is TaskState.APPROVAL_REQUIRED]
    approvals.void_of_ended(conn, asking, now)
    give_back_untaken(conn, list(changes))
    give_back_reserved(conn, list(changes))
    end_tasks(conn, over, counters)
    return frozenset(changes)
