"""The progress of agents on its way to a server: the newest of each attempt, until the worker sends its next report."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from gnomon.core.agents.progress import AgentProgress, merged_progress
from gnomon.ports.tasks import AttemptRef


class ProgressOutbox:
    """Implements ProgressWriter for a worker without a database. Calls come from the loop of processes."""

    def __init__(self, wake: asyncio.Event) -> None:
        """`wake` is set when there is something to send."""
        self._loop, self._wake = asyncio.get_running_loop(), wake
        self._waiting: dict[AttemptRef, AgentProgress] = {}

    async def keep(self, progress: AgentProgress) -> None:
        """See ProgressWriter.keep. It is kept once a server has written the report with it."""
        with suppress(RuntimeError):  # the worker has ended
            self._loop.call_soon_threadsafe(self._add, progress)

    def take(self, *, besides: Iterable[AttemptRef], limit: int) -> tuple[AgentProgress, ...]:
        """That of some attempts; that of the attempts `besides`, whose ends are reported, is forgotten."""
        for held in besides:
            self._waiting.pop(held, None)
        return tuple(self._waiting.pop(held) for held in list(self._waiting)[:limit])

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def _add(self, progress: AgentProgress) -> None:
        held = progress.task_id, progress.fence
        earlier = self._waiting.get(held)
        self._waiting[held] = progress if earlier is None else merged_progress(earlier, progress)
        self._wake.set()
