"""Who decides what may run, and what may come out of it."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.runs.admission import Released, Request, Ruled
from gnomon.core.runs.outcomes import Assignment


class Gate(Protocol):
    """Stands before every task and behind it."""

    async def admit(self, requests: Sequence[Request]) -> Sequence[Ruled]:
        """A ruling on each request, in their order."""
        ...

    async def release(self, finished: Assignment, output: bytes | None) -> Released:
        """What is let out of what a task has returned."""
        ...
