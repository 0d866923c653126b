"""The progress of running attempts on its way to a server: it waits until the worker sends its next report."""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress

from gnomon.core.runs.progress import AttemptProgress
from gnomon.ports.tasks import AttemptRef


class ProgressOutbox:
    """Implements ProgressWriter for a worker without a database. Calls come from the loop of processes.

    A caller waits until its progress is taken, so that no more is written while no server can be reached.
    """

    def __init__(self, wake: asyncio.Event) -> None:
        """`wake` is set when there is something to send."""
        self._loop, self._wake = asyncio.get_running_loop(), wake
        self._waiting: dict[AttemptRef, AttemptProgress] = {}
        self._callers: list[Future[None]] = []

    async def keep(self, progress: Sequence[AttemptProgress]) -> None:
        """See ProgressWriter.keep. It is kept once a server has written the report with it."""
        taken = Future[None]()
        with suppress(RuntimeError):  # the worker has ended
            self._loop.call_soon_threadsafe(self._add, progress, taken)
        await asyncio.wrap_future(taken)

    def take(self, *, besides: Iterable[AttemptRef], limit: int) -> tuple[AttemptProgress, ...]:
        """That of some attempts; that of the attempts `besides`, whose ends are reported, is forgotten."""
        for held in besides:
            self._waiting.pop(held, None)
        taken = tuple(self._waiting.pop(held) for held in list(self._waiting)[:limit])
        if not self._waiting:
            callers, self._callers = self._callers, []
            for caller in callers:
                if not caller.done():
                    caller.set_result(None)
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def _add(self, progress: Sequence[AttemptProgress], taken: Future[None]) -> None:
        self._waiting |= {(one.task_id, one.fence): one for one in progress}
        self._callers.append(taken)
        self._wake.set()
