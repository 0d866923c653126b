"""Who decides what may run, and what may come out of it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Result
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, OutputRelease
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.ports.tasks import AttemptRef


class Gate(Protocol):
    """Stands before every task and behind it."""

    async def admit(self, requests: Sequence[AdmissionRequest]) -> Sequence[GateDecision]:
        """A ruling on each request, in their order."""
        ...

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """What is let out of what a task has returned."""
        ...


class Finished(Struct, frozen=True, gc=False):
    """An assignment and what came of it."""

    assignment: Assignment
    outcome: AttemptOutcome


class Runner(Protocol):
    """Runs the bodies of assignments and ends those that take too long."""

    @property
    def functions(self) -> Collection[str]:
        """What it can run."""
        ...

    @property
    def occupied(self) -> int:
        """How many slots are in use, also by what was given up on but cannot be made to stop."""
        ...

    @property
    def overrunning(self) -> int:
        """How many of them are in use by what was given up on and has not ended yet."""
        ...

    def start(self, assignments: Sequence[Assignment]) -> None:
        """Begin with all of them."""
        ...

    def finished(self) -> Sequence[Finished]:
        """What has ended since the last time of asking."""
        ...

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """Make these end soon; their outcome is then `why`, unless they were quicker."""
        ...

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """Everything has ended: by itself within the drain, then by being told to, then by being killed.

        What had to be told, and did not end with a result all the same, is INTERRUPTED. All of it is still to be
        collected with `finished`.
        """
        ...
