"""Starting, ending and looking at runs. Every method is one transaction."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import ENGINE, Attempt, LogLine, Run, RunId, RunStatus, Source, TaskId
from gnomon.core.runs.launch import Cancelling, Launch, Launching


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

    async def launch(self, launches: Sequence[Launch], *, now: int) -> Sequence[Launching]:
        """Start, or queue, each run that its schedule's overlap policy admits; what became of each comes back.

        A run whose id is taken was launched before: it is left as it is.
        """
        ...

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> Cancelling:
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

    async def place_of_run(self, query: RunQuery, number: int) -> tuple[int, str] | None:
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
