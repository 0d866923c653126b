"""Observers of what a store has committed."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from gnomon.core.approvals.model import Approval
from gnomon.core.model import Run, RunId, RunStatus, TickVerdict
from gnomon.core.named_breakers import BreakerChange
from gnomon.core.output_policy.late import LateResult
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion

#: A run as it was before its end, its final status, the error, and the time.
FinishedRun = tuple[Run, RunStatus, str | None, int]


class DeniedTask(NamedTuple):
    """A task that was denied: by a rule of the policy of commands, or by the policy of tasks."""

    command_rule: str | None
    #: Its topic, if the policy of tasks has denied it.
    topic: str | None


class TaskRuling(NamedTuple):
    """A ruling about a task."""

    tenant: str
    #: The job, or the workflow if it was run without one.
    job: str
    ruling: StoredRuling


class LoggedLines(NamedTuple):
    """Lines that were kept of the log of a running attempt."""

    tenant: str
    #: The job, or the workflow if it was run without one.
    job: str
    run_id: RunId
    step: str
    attempt: int
    lines: int


@runtime_checkable
class RunObserver(Protocol):
    """Called once after each commit that changed runs, approvals or rulings. A method never fails and never waits."""

    def launched(self, runs: Sequence[Run]) -> None:
        """These runs were created, and no tick asked for them."""
        ...

    def started(self, runs: Sequence[Run], now: int) -> None:
        """These runs have started."""
        ...

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """These runs have ended."""
        ...

    def rolled_back(self, runs: int, unreadable: int, ended_ms: Sequence[int]) -> None:
        """So many runs are rolled back from now on, so many compensations are not the recorded ones.

        `ended_ms` is how long each of the rollbacks has taken that have ended.
        """

    def approvals_changed(self, approvals: Sequence[Approval]) -> None:
        """These approvals were asked for, voted on or ended."""
        ...

    def ruled(self, rulings: Sequence[TaskRuling]) -> None:
        """These rulings were written down: all but plain permissions, and those that repeat the last one."""
        ...

    def checked_late(self, results: Sequence[LateResult]) -> None:
        """These outputs were checked after they were stored."""
        ...


@runtime_checkable
class ActivityObserver(Protocol):
    """Called once after each commit that decided ticks or moved tasks. A method never fails and never waits."""

    def decided(self, verdicts: Sequence[TickVerdict], now: int) -> None:
        """These verdicts were carried out."""
        ...

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """These tasks, as they were before, were given to a worker."""
        ...

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """These attempts have ended."""
        ...

    def attempts_cancelled(self, count: int) -> None:
        """This number of attempts that no worker had was cancelled."""
        ...

    def denied(self, denials: Sequence[DeniedTask]) -> None:
        """These tasks were denied."""
        ...

    def breakers_changed(self, changes: Sequence[BreakerChange], now: int) -> None:
        """These breakers have got another state."""
        ...

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """A task of each of these jobs left a dead letter."""
        ...

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """Of the runs that ended, these may have had several steps."""
        ...


@runtime_checkable
class LogObserver(Protocol):
    """Called once after each commit that kept lines of running attempts. It never fails and never waits."""

    def logged(self, lines: Sequence[LoggedLines]) -> None:
        """So many lines more of these logs can be read."""
        ...


@runtime_checkable
class AnnouncementObserver(Protocol):
    """Called after each commit that left announcements to send. It never fails and never waits."""

    def announcements_written(self) -> None:
        """There are announcements to send."""
        ...


@runtime_checkable
class WriteObserver(Protocol):
    """Called once after each commit that moved tasks. A method never fails and never waits."""

    def write_waited(self, ms: int) -> None:
        """The write waited for so long, for other writers and for a connection, before its transaction began."""
        ...


#: An observer may implement any of these protocols.
CommitObserver = RunObserver | ActivityObserver | LogObserver | AnnouncementObserver | WriteObserver


class CommitJournal(RunObserver, ActivityObserver, Protocol):
    """Collects the changes of one transaction before its commit, to be stored with it."""

    def encoded(self) -> bytes | None:
        """The changes as bytes; None if there is nothing to store."""
        ...


class MetricsOutbox(Protocol):
    """The journals of processes that serve no counters, until a server has counted them."""

    async def take(self, *, limit: int) -> Sequence[bytes]:
        """Remove the oldest entries and return them: no other process gets them. Each commit left one at most."""
        ...

    async def discard(self, *, older_than_ms: int) -> None:
        """Remove old entries that no server has counted."""
        ...
