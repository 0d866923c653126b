"""The usage of agents for operators."""

from collections.abc import Mapping, Sequence

from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob, AgentUsageTotal, day_of
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.model import DAY_MS, Run
from gnomon.ports.agents import AgentUsages
from gnomon.ports.runtime import Clock


class AgentUsageService:
    """Reads the usage of agents."""

    def __init__(self, usages: AgentUsages, clock: Clock, *, daily_limit: int | None = None) -> None:
        """`daily_limit` is the cost that the agents of a tenant may have in a day, in millionths; None for any."""
        self._usages = usages
        self._clock = clock
        self.daily_limit = daily_limit

    async def of_runs(self, runs: Sequence[Run], *, tenant: str = "default") -> Mapping[str, AgentUsageTotal]:
        """The usage of those of these runs that had agents, by id."""
        return await self._usages.of_runs(tenant, [run.run_id for run in runs])

    async def of_job(self, job: str, days: int, *, tenant: str = "default") -> AgentUsageTotal:
        """The usage of the job today and on the days before."""
        return await self._usages.of_job(tenant, job, since=self._since(days))

    async def days(self, days: int, *, tenant: str = "default") -> Sequence[AgentUsageDay]:
        """The usage by day and model, today and on the days before, newest day first."""
        schedule_name("tenant", tenant)
        return await self._usages.by_day(tenant, since=self._since(days))

    async def jobs(self, days: int, *, limit: int, tenant: str = "default") -> Sequence[AgentUsageJob]:
        """The usage of the jobs that have cost most, today and on the days before, the dearest first."""
        return await self._usages.by_job(tenant, since=self._since(days), limit=limit)

    def _since(self, days: int) -> int:
        return day_of(self._clock.now()) - (days - 1) * DAY_MS
