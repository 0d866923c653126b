"""The progress of running agents, kept in the store of their worker."""

import asyncio

from gnomon.core.agents.progress import AgentProgress
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore


class StoreProgress:
    """Implements ProgressWriter. Calls come from the loop of processes, and are worked on in the loop of the store."""

    def __init__(self, store: ExecutionStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._loop = asyncio.get_running_loop()

    async def keep(self, progress: AgentProgress) -> None:
        """See ProgressWriter.keep."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._keep(progress), self._loop))

    async def _keep(self, progress: AgentProgress) -> None:
        await self._store.agent_usages.keep(progress, worker=None, now=self._clock.now())
