"""The gate that decides about tasks and their output, and the runner that executes them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Result
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, OutputRelease
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.progress import AttemptProgress
from gnomon.ports.tasks import AttemptRef


class Gate(Protocol):
    """Decides whether a task may run (the input side) and whether its output may be stored (the output side).

    Each side has two methods. The `_now` method answers from memory: it does no I/O and returns None if it cannot
    answer. Only its answers may share a commit with the tick that creates a task, because the ticker, the API and the
    worker must not wait for a gate. If it returns None, the dispatcher (or the worker) calls the other method, which
    may take its time and must not block the event loop.

    The input side fails closed: while `admit` raises, hangs or returns an invalid answer, the task stays PENDING with
    the wait reason `policy` and a note, and is asked about again with backoff. The output side fails open: the output
    is stored unchanged, and the attempt's log and the event `output_unchecked` say that it was not checked.

    A gate may be asked about the same task several times, also by several processes at once. It must not count a
    request twice.
    """

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        """The decision about a task, if it can be made at once."""
        del request
        return None

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """The decision about a task."""
        ...

    def asks_about_items(self, request: AdmissionRequest) -> bool:
        """Whether to call `admit` about a step before it has its items. Each item is asked about by itself, too."""
        del request
        return False

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease | None:
        """The decision about a task's output, if it can be made at once."""
        del finished, output
        return None

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """The decision about a task's output."""
        ...


class Finished(Struct, frozen=True, gc=False):
    """An assignment and its outcome."""

    assignment: Assignment
    outcome: AttemptOutcome


class Runner(Protocol):
    """Runs assignments and stops those that exceed their timeout."""

    @property
    def functions(self) -> Collection[str]:
        """The functions that it can run."""
        ...

    @property
    def occupied(self) -> int:
        """The number of slots in use, including those of attempts that were given up but cannot be stopped."""
        ...

    @property
    def overrunning(self) -> int:
        """The number of slots in use by attempts that were given up and have not ended yet."""
        ...

    def start(self, assignments: Sequence[Assignment]) -> None:
        """Start all of them."""
        ...

    def finished(self) -> Sequence[Finished]:
        """The assignments that ended since the last call."""
        ...

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """Stop these attempts; their result is `why`, unless they end before."""
        ...

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """Wait `drain_ms` for running attempts, then stop them, then kill those that are left after `grace_ms`.

        An attempt that was stopped and returned no result is INTERRUPTED. All of them are collected with `finished`.
        """
        ...


class ProgressWriter(Protocol):
    """Keeps the progress of running attempts outside of their process."""

    async def keep(self, progress: Sequence[AttemptProgress]) -> None:
        """Keep the logs and the usage of these attempts so far. It may be called on any event loop."""
        ...
