"""The usage of agents in its table: one row for each attempt, kept while it runs and written with its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob, AgentUsageTotal
from gnomon.core.model import DAY_MS, TaskId
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.ports.tasks import AttemptRef

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


_BY_JOB = bulk.statement(
    f"SELECT job, count(*), {', '.join(f'sum({name})' for name in _SUMS)}"  # noqa: S608 - our own names
    " FROM agent_usage WHERE tenant = ? AND at >= ? GROUP BY job ORDER BY sum(cost_micros) DESC, job LIMIT ?"
)
_SPENT = bulk.statement(
    f"SELECT task_id, number, model, {', '.join(_SUMS)} FROM agent_usage WHERE task_id IN KEYS"  # noqa: S608 - our own names
)


def grow_usage(conn: sa.Connection, row: tuple[object, ...], spent: AgentSpending) -> None:
    """Keep the usage of a running attempt so far. The row begins with the attempt, its run and the time."""
    bulk.execute_many(conn, _GROW, [(*row, spent.model, *(getattr(spent, name) for name in _SUMS))])


def kept_usage(conn: sa.Connection, tasks: Sequence[str]) -> Mapping[AttemptRef, AgentSpending]:
    """The usage that was kept of the attempts of these tasks."""
    return {
        (TaskId(task), number): AgentSpending(**dict(zip(_SUMS, map(int, sums), strict=True)), model=model)
        for task, number, model, *sums in bulk.fetch_rows(conn, _SPENT, list(tasks))
    }


def write_usage(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Write the usage of the attempts that had an agent."""
    spent = [(one, one.usage) for one in endings if one.usage is not None]
    if not spent:
        return
    bulk.execute_many(conn, _WRITE, [_row(one, usage) for one, usage in spent])
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

    async def by_job(self, tenant: str, *, since: int, limit: int) -> Sequence[AgentUsageJob]:
        """See AgentUsages.by_job."""

        def read(conn: sa.Connection) -> list[AgentUsageJob]:
            rows = bulk.fetch_rows(conn, _BY_JOB, tenant, since, limit)
            return [
                AgentUsageJob(job=job, attempts=total.attempts, spent=total.spent)
                for job, total in ((job, _total(totals)) for job, *totals in rows)
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
