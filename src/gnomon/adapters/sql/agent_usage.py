"""The usage of agents in its table: one row for each attempt, kept while it runs and written with its end.

A running attempt also has its log in a table. It is needed only if the worker is lost: other ends have their own.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.agents.progress import UNREPORTED_ENDS, AgentProgress
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageTotal
from gnomon.core.model import DAY_MS, LogLine
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.worker_ids import may_hold

#: Usage is kept for so long, whatever the retention of its run: it is an account.
KEPT_MS = 400 * DAY_MS
_COLUMNS = (
    "task_id", "number", "run_id", "tenant", "job", "at", "model", "requests", "input_tokens", "output_tokens",
    "cost_micros", "tool_calls", "actions",
)  # fmt: skip
_COUNTED = ("requests", "input_tokens", "output_tokens", "tool_calls")
_REPLACE = "ON CONFLICT (task_id, number) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _COLUMNS[_COLUMNS.index("at") :]
)
#: The end of an attempt is written once, and its usage is final.
_WRITE = bulk.insert_statement(schema.agent_usage, _COLUMNS, _REPLACE)
#: Reports of a running attempt may come late: usage only grows.
_GROW = bulk.insert_statement(
    schema.agent_usage,
    _COLUMNS,
    f"{_REPLACE} WHERE {' + '.join(f'excluded.{name}' for name in _COUNTED)}"
    f" >= {' + '.join(f'agent_usage.{name}' for name in _COUNTED)}",
)
_OPEN = (
    "SELECT attempt.worker, attempt.started_at, task.pool, run.run_id, run.tenant, run.schedule_id, run.workflow_id"
    " FROM attempt JOIN task ON task.task_id = attempt.task_id JOIN run ON run.run_id = task.run_id"
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
_KEPT_LINES = bulk.statement(
    "SELECT task_id, number, at, level, text FROM agent_log WHERE task_id IN KEYS ORDER BY task_id, number, place"
)
_FORGET_LINES = bulk.statement("DELETE FROM agent_log WHERE task_id IN KEYS")
_FORGET = bulk.statement("DELETE FROM agent_usage WHERE tenant IN KEYS AND at < ?")
_COST = bulk.statement("SELECT sum(cost_micros) FROM agent_usage WHERE tenant = ? AND at >= ?")
_SUMS = ("requests", "input_tokens", "output_tokens", "cost_micros", "tool_calls", "actions")
_TOTAL = f"count(*), {', '.join(f'sum({name})' for name in _SUMS)}"
_OF_RUNS = bulk.statement(
    f"SELECT run_id, {_TOTAL} FROM agent_usage WHERE run_id IN KEYS AND tenant = ? GROUP BY run_id"  # noqa: S608 - our own names
)
_OF_JOB = bulk.statement(
    f"SELECT {_TOTAL} FROM agent_usage WHERE tenant = ? AND job = ? AND at >= ?"  # noqa: S608 - our own names
)
_BY_DAY = bulk.statement(
    f"SELECT at / {DAY_MS}, model, count(*), {', '.join(f'sum({name})' for name in _SUMS)}"  # noqa: S608 - our own names
    f" FROM agent_usage WHERE tenant = ? AND at >= ? GROUP BY at / {DAY_MS}, model ORDER BY 1 DESC, 2"
)


_SPENT = bulk.statement(
    f"SELECT task_id, number, model, {', '.join(_SUMS)} FROM agent_usage WHERE task_id IN KEYS"  # noqa: S608 - our own names
)


def keep_progress(conn: sa.Connection, progress: AgentProgress, worker: str | None, now: int) -> bool:
    """See AgentUsages.keep."""
    rows = bulk.fetch_rows(conn, _OPEN_ATTEMPT, progress.task_id, progress.fence)
    if not rows:
        return False
    [(holder, started_at, pool, run_id, tenant, schedule_id, workflow_id)] = rows
    if worker is not None and not may_hold(worker, holder=holder, started=started_at is not None, pool=pool):
        return False
    held, spent = (progress.task_id, progress.fence), progress.spent
    counts = (getattr(spent, name) for name in _SUMS)
    row = (*held, run_id, tenant, schedule_id or workflow_id, now, spent.model, *counts)
    bulk.execute_many(conn, _GROW, [row])
    lines = [(*held, place, one.at, one.level, one.text) for place, one in enumerate(progress.lines, progress.first)]
    bulk.execute_many(conn, _KEEP_LINE, lines)
    return True


def with_kept_progress(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> Sequence[TaskCompletion]:
    """The ends of attempts, those that no worker has reported with the usage and the log that were kept of them."""
    lost = [one.task_id for one in endings if one.usage is None and one.result in UNREPORTED_ENDS]
    if not lost:
        return endings
    spent = {
        (task, number): AgentSpending(**dict(zip(_SUMS, map(int, sums), strict=True)), model=model)
        for task, number, model, *sums in bulk.fetch_rows(conn, _SPENT, list(lost))
    }
    if not spent:
        return endings
    lines: dict[tuple[str, int], list[LogLine]] = {}
    for task, number, at, level, text in bulk.fetch_rows(conn, _KEPT_LINES, list(lost)):
        lines.setdefault((task, number), []).append(LogLine(at, level, text))
    return [
        replace(one, usage=spent[held], logs=(*lines.get(held, ()), *one.logs))
        if one.usage is None and one.result in UNREPORTED_ENDS and (held := (one.task_id, one.fence)) in spent
        else one
        for one in endings
    ]


def write_usage(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Write the usage of the attempts that had an agent, and forget the logs that were kept while they ran."""
    spent = [(one, one.usage) for one in endings if one.usage is not None]
    if not spent:
        return
    bulk.execute_many(conn, _WRITE, [_row(one, usage) for one, usage in spent])
    bulk.execute_statement(conn, _FORGET_LINES, [one.task_id for one, _ in spent])
    oldest = max(one.ended_at for one, _ in spent) - KEPT_MS
    bulk.execute_statement(conn, _FORGET, sorted({one.run.tenant for one, _ in spent}), oldest)


def _row(one: TaskCompletion, usage: AgentSpending) -> tuple[object, ...]:
    run = one.run
    counts = (getattr(usage, name) for name in _SUMS)
    job = run.schedule_id or run.workflow_id
    return (one.task_id, one.fence, run.run_id, run.tenant, job, one.ended_at, usage.model, *counts)


class SqlAgentUsages:
    """Implements AgentUsages."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def keep(self, progress: AgentProgress, *, worker: str | None, now: int) -> bool:
        """See AgentUsages.keep."""
        return await self._transactions.write(lambda conn: keep_progress(conn, progress, worker, now))

    async def cost_since(self, tenant: str, since: int) -> int:
        """See AgentUsages.cost_since."""

        def read(conn: sa.Connection) -> int:
            [(cost,)] = bulk.fetch_rows(conn, _COST, tenant, since)
            return int(cost or 0)

        return await self._transactions.read(read)

    async def by_day(self, tenant: str, *, since: int) -> Sequence[AgentUsageDay]:
        """See AgentUsages.by_day."""

        def read(conn: sa.Connection) -> list[AgentUsageDay]:
            return [
                AgentUsageDay(
                    day=int(day) * DAY_MS,
                    model=model,
                    attempts=attempts,
                    spent=AgentSpending(**dict(zip(_SUMS, map(int, sums), strict=True)), model=model),
                )
                for day, model, attempts, *sums in bulk.fetch_rows(conn, _BY_DAY, tenant, since)
            ]

        return await self._transactions.read(read)

    async def of_runs(self, tenant: str, run_ids: Sequence[str]) -> dict[str, AgentUsageTotal]:
        """See AgentUsages.of_runs."""
        if not run_ids:
            return {}

        def read(conn: sa.Connection) -> dict[str, AgentUsageTotal]:
            return {run: _total(totals) for run, *totals in bulk.fetch_rows(conn, _OF_RUNS, list(run_ids), tenant)}

        return await self._transactions.read(read)

    async def of_job(self, tenant: str, job: str, *, since: int) -> AgentUsageTotal:
        """See AgentUsages.of_job."""

        def read(conn: sa.Connection) -> AgentUsageTotal:
            [totals] = bulk.fetch_rows(conn, _OF_JOB, tenant, job, since)
            return _total(totals)

        return await self._transactions.read(read)


def _total(row: Sequence[Any]) -> AgentUsageTotal:
    attempts, *sums = row
    counts = (int(value or 0) for value in sums)
    return AgentUsageTotal(attempts=attempts, spent=AgentSpending(**dict(zip(_SUMS, counts, strict=True)), model=""))
