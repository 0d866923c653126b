"""A database for the dashboard: many jobs, some that fire every second, and a week of what they did."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import time

from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DAY_MS

HISTORY_MS = 7 * DAY_MS
#: Jobs that have fired every second for a day: their ticks are counted by quarters of an hour.
_DENSE_JOBS, _DENSE_TICKS = 5, 86_400
#: One of so many executions has failed, and one of so many ticks was late or skipped.
_FAILED, _LATE, _SKIPPED = 50, 100, 100
_NUMBERS = "WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < :count - 1)"
#: The planned time of an execution, and the status of those that have failed.
_AT = ":until - n * :step"
_STATUS = f"CASE WHEN n % {_FAILED} = 0 THEN 'failed' ELSE 'completed' END"
_RUN_ID, _TASK_ID = "'run_' || printf('%012x', n)", "'task_' || printf('%012x', n)"
_ERROR = f"CASE WHEN n % {_FAILED} = 0 THEN 'ConnectionError: the database refused connection ' || (n % 7) END"
_CHANGED = {
    "run": {
        "run_id": _RUN_ID,
        "schedule_uid": "job.uid",
        "schedule_id": "job.schedule_id",
        "workflow_id": "job.schedule_id",
        "source": "'cron'",
        "status": _STATUS,
        "planned_at": _AT,
        "fire_at": _AT,
        "created_at": _AT,
        "started_at": f"{_AT} + 5",
        "completed_at": f"{_AT} + 1000",
        "cancel_requested_at": "NULL",
        "error": _ERROR,
    },
    "task": {
        "task_id": _TASK_ID,
        "run_id": _RUN_ID,
        "state": f"CASE WHEN n % {_FAILED} = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END",
        "available_at": _AT,
        "created_at": _AT,
        "attempts": "1",
        "fence": "1",
    },
}
_TICKS = f"""
{_NUMBERS}
INSERT INTO tick (uid, planned_at, tenant, schedule_id, last_at, count, kind, reason, key, status, run_id, fire_at,
                  decided_at, term, revision)
SELECT job.uid, {_AT}, 'default', job.schedule_id, {_AT}, 1,
       CASE WHEN n % {_SKIPPED} = 1 THEN 'skipped' ELSE 'fired' END,
       CASE WHEN n % {_SKIPPED} = 1 THEN 'overlap' WHEN n % {_LATE} = 2 THEN 'late' ELSE 'on_time' END,
       randomblob(16),
       CASE WHEN n % {_SKIPPED} = 1 THEN 'SKIPPED' WHEN n % {_FAILED} = 0 THEN 'FAILED' ELSE 'SUCCESS' END,
       CASE WHEN n % {_SKIPPED} <> 1 THEN {_RUN_ID} END, {_AT}, {_AT}, 1, 1
FROM number JOIN job ON job.place = number.n % :jobs
"""  # noqa: S608 - our own names, here and below
_DENSE = f"""
{_NUMBERS}
INSERT INTO tick (uid, planned_at, tenant, schedule_id, last_at, count, kind, reason, key, status, run_id, fire_at,
                  decided_at, term, revision)
SELECT uid, at, tenant, schedule_id, at, 1, 'fired', 'on_time', randomblob(16), 'SUCCESS', NULL, at, at, 1, 1
FROM (SELECT uid, tenant, schedule_id, (mark_at / 1000 - 1 - n) * 1000 AS at FROM number CROSS JOIN
      (SELECT * FROM schedule WHERE schedule_id LIKE 'beat-%' ORDER BY schedule_id LIMIT {_DENSE_JOBS}))
"""  # noqa: S608
_LETTERS = """
INSERT INTO dead_letter (dead_letter_id, tenant, job, run_id, task_id, step, reason, attempts, last_error,
                         first_attempt_at, last_attempt_at, created_at)
SELECT 'dl_' || substr(run_id, 5), tenant, schedule_id, run_id, 'task_' || substr(run_id, 5), 'main', 'attempts', 1,
       error, created_at, completed_at, completed_at
FROM run WHERE status = 'failed' AND created_at >= :since
"""


async def fill(settings: Settings, path: Path, *, jobs: int, fires: int, executions: int) -> None:
    """Create a database with so many jobs, some that fire every second, and a week with so many executions."""
    async with Operations.open(settings) as operations:
        now = int(time() * 1000)
        said = [read_job(one, Defaults(), now=now) for one in _definitions(jobs, fires)]
        await operations.jobs.apply(said, actor="bench")
        template = (await operations.launcher.trigger("job-00000", actor="bench")).run_id
        await operations.executions.cancel(template, actor="bench")
    with closing(sqlite3.connect(path)) as file, file:
        _write_history(file, template, jobs=jobs, executions=executions, until=now)
    await _sum_up(path)


def _definitions(jobs: int, fires: int) -> Iterator[dict[str, object]]:
    for n in range(jobs):
        yield {
            "name": f"job-{n:05}",
            "function": "beat",
            "schedule": f"{n % 60} {n // 60 % 24} 29 2 *",
            "description": f"The monthly report of department {n % 97}",
            "tags": [f"team-{n % 20}"],
        }
    for n in range(fires):
        yield {"name": f"beat-{n:05}", "function": "beat", "schedule": "* * * * * *", "overlap": "allow"}


def _write_history(file: sqlite3.Connection, template: str, *, jobs: int, executions: int, until: int) -> None:
    given = {"count": executions, "jobs": jobs, "until": until - 1, "step": max(1, HISTORY_MS // executions)}
    file.execute("PRAGMA synchronous = off")
    file.execute(
        "CREATE TEMP TABLE job AS SELECT row_number() OVER (ORDER BY schedule_id) - 1 AS place, uid, schedule_id"
        " FROM schedule WHERE schedule_id LIKE 'job-%'"
    )
    file.execute("CREATE UNIQUE INDEX temp.job_number ON job (place)")
    for table, changed in _CHANGED.items():
        columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(changed.get(name, f"{table}.{name}") for name in columns)
        file.execute(
            f"{_NUMBERS} INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM number"  # noqa: S608
            f" JOIN job ON job.place = number.n % :jobs JOIN {table} ON {table}.run_id = :template",
            {**given, "template": template},
        )
    file.execute(_TICKS, given)
    file.execute(_DENSE, {"count": min(_DENSE_TICKS, executions)})
    file.execute(_LETTERS, {"since": until - DAY_MS})
    # The jobs are older than their history.
    begin = until - 2 * HISTORY_MS
    file.execute("UPDATE schedule SET created_at = ?, updated_at = ?", (begin, begin))
    file.execute("UPDATE schedule_revision SET from_at = ?", (begin,))


async def _sum_up(path: Path) -> None:
    """Sum up the ticks by quarters of an hour, as a scheduler does with time."""
    store = await open_sqlite(str(path))
    try:
        while await _sum_up_all(store):
            pass
    finally:
        await store.close()


async def _sum_up_all(store: SqlStore) -> int:
    """Sum up some ticks of each schedule; return how many."""
    counted, after = 0, ""
    while True:
        progress = await store.calendar.sum_up(after=after)
        counted += progress.counted
        if progress.after is None:
            return counted
        after = progress.after
