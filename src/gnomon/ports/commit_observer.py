"""Who counts what a store has committed."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.model import Run, RunStatus, Verdict
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion

#: A run as it was before its end, how it ended, why, and when.
FinishedRun = tuple[Run, RunStatus, str | None, int]


class CommitObserver(Protocol):
    """Told after each commit, of all that it made true, once. Counting never fails and never waits."""

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """These verdicts were carried out."""
        ...

    def launched(self, runs: Sequence[Run]) -> None:
        """These runs were made, and no tick has asked for them."""
        ...

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """These tasks, as they were before, were given to a worker."""
        ...

    def started(self, runs: Sequence[Run], now: int) -> None:
        """These runs have begun."""
        ...

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """These attempts have ended."""
        ...

    def attempts_cancelled(self, count: int) -> None:
        """So many attempts that no worker had in hand were cancelled."""
        ...

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """A task of each of these jobs left a dead letter."""
        ...

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """These runs are over."""
        ...

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """Of those, these may have had several steps."""
        ...
