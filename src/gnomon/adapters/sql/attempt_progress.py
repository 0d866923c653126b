"""The logs of running attempts, and the usage of their agents, in the tables where they are kept until the end.

An attempt that its worker reports has a log of its own, which replaces the kept one. Only the ends of attempts of which
something was kept look at the table: the others cost nothing more.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import notify_logs
from gnomon.adapters.sql.agent_usage import grow_usage, kept_usage
from gnomon.core.model import LogLine, RunId, TaskId
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import AttemptProgress, ends_with_kept_log, may_have_kept_log
from gnomon.core.worker_ids import may_hold
from gnomon.ports.commit_observer import LoggedLines
from gnomon.ports.tasks import AttemptRef

_OPEN = (
    "SELECT attempt.worker, attempt.started_at, task.pool, task.step, run.run_id, run.tenant, run.schedule_id,"
    " run.workflow_id FROM attempt JOIN task ON task.task_id = attempt.task_id JOIN run ON run.run_id = task.run_id"
    " WHERE attempt.task_id = ? AND attempt.number = ? AND attempt.ended_at IS NULL"
)
# The lock waits for a transaction that is ending the attempt.
_OPEN_ATTEMPT = bulk.Statement(
    bulk.statement(_OPEN).sqlite, bulk.statement(f"{_OPEN} FOR UPDATE OF attempt").postgresql
)
_KEEP_LINE = bulk.insert_statement(
    schema.agent_log,
    ("task_id", "number", "place", "at", "level", "text"),
    "ON CONFLICT (task_id, number, place) DO UPDATE SET at = excluded.at, level = excluded.level, text = excluded.text",
)
_LAST_KEPT = bulk.statement("SELECT max(place) FROM agent_log WHERE task_id = ? AND number = ?")
_KEPT_LINES = bulk.statement(
    "SELECT task_id, number, at, level, text FROM agent_log WHERE task_id IN KEYS ORDER BY task_id, number, place"
)
_FORGET_LINES = bulk.statement("DELETE FROM agent_log WHERE task_id IN KEYS")


def keep_progress(conn: sa.Connection, progress: AttemptProgress, worker: str | None, now: int) -> bool:
    """See Attempts.keep_progress."""
    rows = bulk.fetch_rows(conn, _OPEN_ATTEMPT, progress.task_id, progress.fence)
    if not rows:
        return False
    [(holder, started_at, pool, step, run_id, tenant, schedule_id, workflow_id)] = rows
    if worker is not None and not may_hold(worker, holder=holder, started=started_at is not None, pool=pool):
        return False
    held, job = (progress.task_id, progress.fence), schedule_id or workflow_id
    if progress.spent is not None:
        grow_usage(conn, (*held, run_id, tenant, job, now), progress.spent)
    if progress.lines:
        [(last,)] = bulk.fetch_rows(conn, _LAST_KEPT, *held)
        places = range(progress.first, progress.first + len(progress.lines))
        lines = zip(places, progress.lines, strict=True)
        bulk.execute_many(conn, _KEEP_LINE, [(*held, place, one.at, one.level, one.text) for place, one in lines])
        fresh = places[-1] - (-1 if last is None else int(last))
        # A report that comes twice has none. The last line of an agent may stand for another one by now.
        if fresh > 0 or progress.spent is not None:
            logged = LoggedLines(tenant, job, RunId(run_id), step, progress.fence, max(1, fresh))
            notify_logs(conn, lambda observer: observer.logged([logged]))
    return True


def with_kept_progress(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> Sequence[TaskCompletion]:
    """The ends of attempts, those that no worker has reported with the usage and the log that were kept of them."""
    names: list[str] = [one.task_id for one in endings if ends_with_kept_log(one)]
    if not names:
        return endings
    spent = kept_usage(conn, names)
    lines: dict[AttemptRef, list[LogLine]] = {}
    for task, number, at, level, text in bulk.fetch_rows(conn, _KEPT_LINES, names):
        lines.setdefault((TaskId(task), number), []).append(LogLine(at, level, text))
    return [_with_kept(one, spent, lines) if ends_with_kept_log(one) else one for one in endings]


def _with_kept(
    one: TaskCompletion, spent: Mapping[AttemptRef, object], lines: Mapping[AttemptRef, Sequence[LogLine]]
) -> TaskCompletion:
    held = one.task_id, one.fence
    usage = one.usage if one.usage is not None else spent.get(held)
    return replace(one, usage=usage, logs=(*lines.get(held, ()), *one.logs), log_kept=True)


def forget_kept_logs(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Remove the kept logs of these attempts: their ends have written them, or others."""
    names: list[str] = [one.task_id for one in endings if may_have_kept_log(one)]
    if names:
        bulk.execute_statement(conn, _FORGET_LINES, names)
