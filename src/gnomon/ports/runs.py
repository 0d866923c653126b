"""Runs: launching, cancelling and reading them; backfills and dead letters. Every method is one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import ENGINE, Attempt, DeadLetter, LogLine, Run, RunId, RunStatus, ScheduleUid, Source, TaskId
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
)
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest


class RunQuery(Struct, frozen=True, kw_only=True):
    """A selection of runs: all of a tenant, narrowed by the fields that are set."""

    tenant: str = "default"
    schedule_id: str | None = None
    status: RunStatus | None = None
    source: Source | None = None
    #: Created at or after `since`, and before `until`.
    since: int | None = None
    until: int | None = None
    #: Only runs that come after this position in the listing.
    after: tuple[int, str] | None = None
    #: Only runs up to and including this position.
    down_to: tuple[int, str] | None = None
    limit: int = 100


class Runs(Protocol):
    """Launching and cancelling runs."""

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """Start, or queue, each run that its schedule's overlap policy admits; return the outcome of each.

        A run whose id exists was launched before and is left unchanged.
        """
        ...

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """Cancel the waiting tasks of the run at once, and request the end of the running ones.

        The audit trail records the actor, unless it is the engine itself.
        """
        ...


class Payloads(Protocol):
    """The inputs and outputs of runs and tasks."""

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """The `input` of each run or task, or the `output` of each task, that has one."""
        ...


class Executions(Payloads, Protocol):
    """Reading runs, their attempts, payloads and logs."""

    async def find_run(self, run_id: RunId) -> Run | None:
        """The run with that id, or None."""
        ...

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """Runs, newest first: by creation time, then by id."""
        ...

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """The position of the run with that number, from 1, in the listing without its status and source filters.

        A search for rare runs can stop there, however long the history is. None if the listing is shorter.
        """
        ...

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """All attempts of these tasks, by task and number."""
        ...

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """The `input` of a run or a task, or the `output` of a task."""
        ...

    async def log_lengths(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """The number of log lines of each of these tasks that has any."""
        ...

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """The log lines of all attempts of a task, oldest first, without the first `after` lines."""
        ...


class Backfills(Protocol):
    """Creating, carrying out and reading backfills."""

    async def add(self, backfill: Backfill) -> bool:
        """Add a backfill. False if its id exists."""
        ...

    async def list_open(self, *, limit: int) -> Sequence[OpenBackfill]:
        """Backfills that have not ended, by id. Ids without a client key sort by age, oldest first."""
        ...

    async def times_already_run(
        self, uid: ScheduleUid, *, first_at: int, last_at: int
    ) -> Mapping[int, BackfillTickReason]:
        """The planned times of a schedule between the first and the last, inclusive, that had a run, and why."""
        ...

    async def apply_batch(self, batch: BackfillBatch, *, now: int) -> BatchOutcome:
        """Write the ticks of the batch, start its runs and move the mark, if the mark is still where it was read."""
        ...

    async def cancel(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """Start no more of its runs. False if there is no such open backfill."""
        ...

    async def find(self, tenant: str, backfill_id: str) -> BackfillProgress | None:
        """The backfill with that id, or None."""
        ...

    async def page(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[BackfillProgress]:
        """Backfills, newest first, then by id descending. `after` is the position of the last one seen."""
        ...


class DeadLetters(Protocol):
    """Reading and resolving dead letters. Completions write them; a replay is a launch with `replay_of`."""

    async def find(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """The dead letter with that id, or None."""
        ...

    async def page(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """Dead letters after `after`, by id."""
        ...

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """Mark the unresolved ones as resolved; return how many there were."""
        ...
