"""The usage of agents in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Iterator, Sequence

from gnomon.adapters.memory.state import MemoryTables, UsageRow
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob, AgentUsageTotal, day_of

_SUMS = ("requests", "input_tokens", "output_tokens", "cost_micros", "tool_calls", "actions")


class MemoryAgentUsages:
    """Implements AgentUsages."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def cost_since(self, tenant: str, since: int) -> int:
        """See AgentUsages.cost_since."""
        return sum(one.spent.cost_micros for one in self._since(tenant, since))

    async def by_day(self, tenant: str, *, since: int) -> Sequence[AgentUsageDay]:
        """See AgentUsages.by_day."""
        found: dict[tuple[int, str], list[AgentSpending]] = {}
        for one in self._since(tenant, since):
            found.setdefault((-day_of(one.at), one.spent.model), []).append(one.spent)
        return [
            AgentUsageDay(
                day=-day,
                model=model,
                attempts=len(spent),
                spent=AgentSpending(**{name: sum(getattr(one, name) for one in spent) for name in _SUMS}, model=model),
            )
            for (day, model), spent in sorted(found.items(), key=lambda item: item[0])
        ]

    async def by_job(self, tenant: str, *, since: int, limit: int) -> Sequence[AgentUsageJob]:
        """See AgentUsages.by_job."""
        found: dict[str, list[AgentSpending]] = {}
        for one in self._since(tenant, since):
            found.setdefault(one.job, []).append(one.spent)
        totals = [(job, _total(spent)) for job, spent in found.items()]
        dearest = sorted(totals, key=lambda one: (-one[1].spent.cost_micros, one[0]))[:limit]
        return [AgentUsageJob(job=job, attempts=total.attempts, spent=total.spent) for job, total in dearest]

    async def of_runs(self, tenant: str, run_ids: Sequence[str]) -> dict[str, AgentUsageTotal]:
        """See AgentUsages.of_runs."""
        found: dict[str, list[AgentSpending]] = {}
        for one in self._since(tenant, 0):
            if one.run_id in run_ids:
                found.setdefault(one.run_id, []).append(one.spent)
        return {run: _total(spent) for run, spent in found.items()}

    async def of_job(self, tenant: str, job: str, *, since: int) -> AgentUsageTotal:
        """See AgentUsages.of_job."""
        return _total([one.spent for one in self._since(tenant, since) if one.job == job])

    def _since(self, tenant: str, since: int) -> Iterator[UsageRow]:
        return (one for one in self._state.agent_usage.values() if one.tenant == tenant and one.at >= since)


def _total(spent: Sequence[AgentSpending]) -> AgentUsageTotal:
    sums = {name: sum(getattr(one, name) for one in spent) for name in _SUMS}
    return AgentUsageTotal(attempts=len(spent), spent=AgentSpending(**sums))
