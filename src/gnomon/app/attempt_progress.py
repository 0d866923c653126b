"""The progress of running attempts, kept in the store of their worker."""

import asyncio
from collections.abc import Sequence

from gnomon.core.runs.progress import AttemptProgress
from gnomon.errors import Unavailable
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore
from gnomon.services.execution.kept_progress import keep_progress


class StoreProgress:
    """Implements ProgressWriter. Calls come from the loop of processes, and are worked on in the loop of the store."""

    def __init__(self, store: ExecutionStore, clock: Clock, output_policy: OutputPolicy | None = None) -> None:
        """`output_policy` cleans the lines before they are stored."""
        self._store, self._clock = store, clock
        self._output_policy = output_policy
        self._loop = asyncio.get_running_loop()

    async def keep(self, progress: Sequence[AttemptProgress]) -> None:
        """See ProgressWriter.keep."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._keep(progress), self._loop))

    async def _keep(self, progress: Sequence[AttemptProgress]) -> None:
        if not await keep_progress(self._store.attempts, progress, self._output_policy, now=self._clock.now()):
            raise Unavailable("the policy of outputs is not known")
