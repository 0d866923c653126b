"""Starting, ending and looking at runs. Every method is one transaction."""

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
    """Which runs to look at: all of a tenant, unless something narrows it down."""

    tenant: str = "default"
    schedule_id: str | None = None
    status: RunStatus | None = None
    source: Source | None = None
    #: Made at or after the one, and before the other.
    since: int | None = None
    until: int | None = None
    #: Only those that come after this one in the order of the listing.
    after: tuple[int, str] | None = None
    #: Only those that do not come after this one.
    down_to: tuple[int, str] | None = None
    limit: int = 100


class Runs(Protocol):
    """What operators need."""

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """Start, or queue, each run that its schedule's overlap policy admits; what became of each comes back.

        A run whose id is taken was launched before: it is left as it is.
        """
        ...

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """End what waits of the run at once, and ask for the end of what is running.

        Whoever asks is written to the audit trail, unless it is the engine itself.
        """
        ...


class Payloads(Protocol):
    """What runs and tasks were given and have returned."""

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """The `input` of each run or task, or the `output` of each task, that has one."""
        ...


class Executions(Payloads, Protocol):
    """Looking at runs and what they are made of."""

    async def find_run(self, run_id: RunId) -> Run | None:
        """The run of that id."""
        ...

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """Runs, the newest first: by when they were made, then by id."""
        ...

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """Where the listing has its run of that number, counted from 1, whatever status and source are asked for.

        So a search for what is rare can stop there, however long the history is. None if there are not so many.
        """
        ...

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """All attempts of these tasks, by task and number."""
        ...

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """The `input` of a run or a task, or the `output` of a task."""
        ...

    async def log_lengths(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """How many lines each of these tasks has said, of those that have said any."""
        ...

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """What the attempts of a task have said, oldest first, without the first `after` lines."""
        ...


class Backfills(Protocol):
    """Asking for backfills, carrying them out and looking at them."""

    async def add_backfill(self, backfill: Backfill) -> bool:
        """Keep a new backfill. False if there is one of that id."""
        ...

    async def open_backfills(self, *, limit: int) -> Sequence[OpenBackfill]:
        """Those that have not ended, in the order of their ids: those that nobody gave a key the oldest first."""
        ...

    async def times_already_run(
        self, uid: ScheduleUid, *, first_at: int, last_at: int
    ) -> Mapping[int, BackfillTickReason]:
        """The planned times of a schedule, from the first up to the last, that had a run, and by what."""
        ...

    async def apply_backfill_batch(self, lot: BackfillBatch, *, now: int) -> BatchOutcome:
        """Write the entries down, start their runs beside others and move the mark, if it still is where it was."""
        ...

    async def cancel_backfill(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """Start nothing more of it. False if there is no such backfill that has not ended."""
        ...

    async def find_backfill(self, tenant: str, backfill_id: str) -> BackfillProgress | None:
        """The backfill of that id."""
        ...

    async def list_backfills(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[BackfillProgress]:
        """Backfills, the newest first; of the same instant by id, backwards. `after` is that of the last one seen."""
        ...


class DeadLetters(Protocol):
    """They are written by those who report endings; a replay is a launch with `replay_of`."""

    async def find_dead_letter(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """The dead letter of that id."""
        ...

    async def list_dead_letters(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """Dead letters by id, which is the order in which they can be paged through."""
        ...

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """Mark those as dealt with that are not; how many there were comes back."""
        ...
