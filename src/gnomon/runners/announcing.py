"""A runner that says what it starts, to whoever wants to hear it."""

from collections.abc import Callable, Collection, Sequence

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.execution import Finished, Runner
from gnomon.ports.tasks import Held


class AnnouncingRunner:
    """Another runner, and its announcements."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        #: Called with what has been started.
        self.on_start: Callable[[Sequence[Assignment]], None] = lambda _: None

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._runner.functions

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return self._runner.occupied

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning."""
        return self._runner.overrunning

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start."""
        self._runner.start(assignments)
        self.on_start(assignments)

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._runner.finished()

    def stop(self, held: Collection[Held], *, why: Result) -> None:
        """See Runner.stop."""
        self._runner.stop(held, why=why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        await self._runner.close(drain_ms=drain_ms, grace_ms=grace_ms)
