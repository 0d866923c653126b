"""The progress of running agents, kept in the store of their worker."""

import asyncio

from msgspec.structs import replace

from gnomon.core.agents.progress import AgentProgress
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore


class StoreProgress:
    """Implements ProgressWriter. Calls come from the loop of processes, and are worked on in the loop of the store."""

    def __init__(self, store: ExecutionStore, clock: Clock, output_policy: OutputPolicy | None = None) -> None:
        """`output_policy` cleans the lines before they are stored."""
        self._store, self._clock = store, clock
        self._output_policy = output_policy
        self._loop = asyncio.get_running_loop()

    async def keep(self, progress: AgentProgress) -> None:
        """See ProgressWriter.keep."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._keep(progress), self._loop))

    async def _keep(self, progress: AgentProgress) -> None:
        if self._output_policy is not None:
            progress = replace(progress, lines=self._output_policy.clean_lines(progress.lines))
        await self._store.agent_usages.keep(progress, worker=None, now=self._clock.now())
