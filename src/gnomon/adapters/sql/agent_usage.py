"""The usage of agents in its table: one row for each attempt, written with its end."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.usage import AgentUsageDay
from gnomon.core.model import DAY_MS
from gnomon.core.runs.outcomes import TaskCompletion

#: Usage is kept for so long, whatever the retention of its run: it is an account.
KEPT_MS = 400 * DAY_MS
_COLUMNS = (
    "task_id", "number", "run_id", "tenant", "job", "at", "model", "requests", "input_tokens", "output_tokens",
    "cost_micros", "tool_calls", "actions",
)  # fmt: skip
#: A second report of the same attempt adds nothing.
_INSERT = bulk.insert_statement(schema.agent_usage, _COLUMNS, "ON CONFLICT (task_id, number) DO NOTHING")
_FORGET = bulk.statement("DELETE FROM agent_usage WHERE tenant IN KEYS AND at < ?")
_COST = bulk.statement("SELECT sum(cost_micros) FROM agent_usage WHERE tenant = ? AND at >= ?")
_OF_RUNS = bulk.statement(
    "SELECT run_id, sum(cost_micros) FROM agent_usage WHERE run_id IN KEYS AND tenant = ? GROUP BY run_id"
)
_SUMS = ("requests", "input_tokens", "output_tokens", "cost_micros", "tool_calls", "actions")
_BY_DAY = bulk.statement(
    f"SELECT at / {DAY_MS}, model, count(*), {', '.join(f'sum({name})' for name in _SUMS)}"  # noqa: S608 - our own names
    f" FROM agent_usage WHERE tenant = ? AND at >= ? GROUP BY at / {DAY_MS}, model ORDER BY 1 DESC, 2"
)


def write_usage(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """Write the usage of the attempts that had an agent."""
    spent = [(one, one.usage) for one in endings if one.usage is not None]
    if not spent:
        return
    bulk.execute_many(conn, _INSERT, [_row(one, usage) for one, usage in spent])
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

    async def cost_of_runs(self, tenant: str, run_ids: Sequence[str]) -> dict[str, int]:
        """See AgentUsages.cost_of_runs."""
        if not run_ids:
            return {}

        def read(conn: sa.Connection) -> dict[str, int]:
            return {run: int(cost) for run, cost in bulk.fetch_rows(conn, _OF_RUNS, list(run_ids), tenant)}

        return await self._transactions.read(read)
