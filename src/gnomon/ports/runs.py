"""Runs: launching, cancelling and reading them; backfills and dead letters. Every method is one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    LogLine,
    Run,
    RunId,
    RunSource,
    RunStatus,
    ScheduleUid,
    Task,
    TaskId,
)
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
)
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.rollback import RollbackOutcome
from gnomon.core.runs.states import TaskState, WaitReason


class RunQuery(Struct, frozen=True, kw_only=True):
    """A selection of runs: all of a tenant, narrowed by the fields that are set."""

    tenant: str = "default"
    schedule_id: str | None = None
    status: RunStatus | None = None
    source: RunSource | None = None
    #: Only runs that are queued, or of which a task waits for this reason.
    wait_reason: WaitReason | None = None
    #: Only runs that have not ended.
    unfinished: bool = False
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

    async def roll_back(self, run_id: RunId, *, reason: str, now: int, actor: str) -> RollbackOutcome:
        """Undo the steps of a run that has ended: those that no rollback has undone before.

        The run is under way again until they are undone. The audit trail records the actor.
        """
        ...


class PayloadReader(Protocol):
    """The inputs and outputs of runs and tasks."""

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """The `input` of each run or task, or the `output` of each task, that has one."""
        ...


class Executions(PayloadReader, Protocol):
    """Reading runs, their attempts, payloads and logs."""

    async def find_run(self, run_id: RunId) -> Run | None:
        """The run with that id, or None."""
        ...

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """Runs, newest first: by creation time, then by id."""
        ...

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Run]:
        """The runs of the tenant whose ids begin with these characters, by id."""
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

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """The log lines of all attempts of a task, oldest first, without the first `after` lines."""
        ...

    async def excluding_runs(self, *, limit: int) -> Sequence[Run]:
        """The active runs of schedules that skip ticks while a run is active, by schedule, then oldest first."""
        ...


class ItemQuery(Struct, frozen=True, kw_only=True):
    """A selection of the items of a run, narrowed by the fields that are set."""

    run_id: RunId
    step: str | None = None
    states: frozenset[TaskState] | None = None
    #: Only items with a larger number.
    after: int = -1
    limit: int = 100


#: The position of a log line among all lines of its run: its time, task and number.
LogCursor = tuple[int, str, int]


class LogQuery(Struct, frozen=True, kw_only=True):
    """A selection of the log lines of a run, narrowed by the fields that are set."""

    run_id: RunId
    #: Only lines of this time or later.
    since: int | None = None
    #: Only lines after this position in the order of the answer.
    after: LogCursor | None = None
    limit: int = 1000
    #: The last lines first.
    newest_first: bool = False
    #: Only lines of this step.
    step: str | None = None
    #: Only lines with a higher number in the log of their task.
    after_line: int = 0
    #: Only lines with this text; small and capital letters of ASCII are the same if it has no others.
    find: str | None = None


class StepLogLine(Struct, frozen=True):
    """A log line and its step."""

    step: str
    line: LogLine
    #: The number of the line in the log of its task, from 1.
    number: int
    task: str
    #: The item of a `foreach` step.
    item: int | None = None

    @property
    def place(self) -> LogCursor:
        """Its position among all lines of the run."""
        return self.line.at, self.task, self.number


class RunTasks(Protocol):
    """Reading the tasks of runs. A run may have a hundred thousand items: no method reads all of them."""

    async def steps(self, runs: Sequence[RunId], *, items: int = 0) -> Sequence[Task]:
        """The tasks of the steps of these runs, and of the first `items` items of each step; by run and step."""
        ...

    async def items(self, query: ItemQuery) -> Sequence[Task]:
        """Items by number, then by task."""
        ...

    async def item_counts(self, run_id: RunId) -> Mapping[str, Mapping[TaskState, int]]:
        """The number of items of each `foreach` step in each state."""
        ...

    async def attempt_numbers(self, runs: Sequence[RunId]) -> Mapping[RunId, int]:
        """The highest number of an attempt of a step, of each of these runs that has tasks; items do not count."""
        ...

    async def log(self, query: LogQuery) -> Sequence[StepLogLine]:
        """Log lines of all steps, also of attempts that go on, in the order of their time, task and number."""
        ...


class Backfills(Protocol):
    """Creating, carrying out and reading backfills."""

    async def add(self, backfill: Backfill) -> bool:
        """Add a backfill. False if its id exists."""
        ...

    async def list_open(self, *, limit: int) -> Sequence[OpenBackfill]:
        """Backfills that have not ended: the first of each tenant by id, then the second of each, and so on.

        Ids without a client key sort by age, oldest first.
        """
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


#: The position of a dead letter in a listing: its creation time and its id.
LetterPosition = tuple[int, str]


#: The dead letters among which one search looks for matches.
LETTER_SCAN = 5000


class LetterQuery(Struct, frozen=True, kw_only=True):
    """A selection of dead letters: all of a tenant, narrowed by the fields that are set."""

    tenant: str = "default"
    job: str | None = None
    unresolved: bool = False
    #: Created at or after `since`, and before `until`.
    since: int | None = None
    until: int | None = None
    reason: str | None = None
    step: str | None = None
    #: The beginning of the error; and its whole first line, as DeadLetter.error_line has it.
    error: str | None = None
    error_line: str | None = None
    oldest_first: bool = False
    after: LetterPosition | None = None
    limit: int = 100
    #: How many letters are looked at, those that do not match included.
    scan: int = LETTER_SCAN

    @property
    def searches(self) -> bool:
        """Whether letters have to be looked at that may not match: no index leads to those that do."""
        return any(one is not None for one in (self.reason, self.step, self.error, self.error_line))

    def matches(self, letter: DeadLetter) -> bool:
        """Whether the letter has the reason, the step and the error."""
        return (
            self.reason in (None, letter.reason)
            and self.step in (None, letter.step)
            and (self.error is None or (letter.last_error or "").startswith(self.error))
            and self.error_line in (None, letter.error_line)
        )


class LetterPage(Struct, frozen=True):
    """Dead letters, and the position of the next page; None after the last. It may have fewer than its limit."""

    letters: Sequence[DeadLetter]
    after: LetterPosition | None


class LetterGroup(Struct, frozen=True, kw_only=True):
    """The dead letters of a step with the same first line of their errors."""

    job: str
    step: str
    error_line: str
    count: int
    #: When the first and the last of them was created.
    oldest_at: int
    newest_at: int


class LetterGroups(Struct, frozen=True):
    """The groups among the dead letters that were looked at, and the position of the next ones; None after the last."""

    groups: Sequence[LetterGroup]
    after: LetterPosition | None


class DeadLetters(Protocol):
    """Reading and resolving dead letters. Completions write them; a replay is a launch with `replay_of`.

    The letters of one execution stand for the same work: a replay is noted in all of them, and resolves them if it
    succeeds.
    """

    async def find(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """The dead letter with that id, or None."""
        ...

    async def page(
        self,
        tenant: str,
        *,
        job: str | None = None,
        unresolved: bool = False,
        oldest_first: bool = False,
        after: LetterPosition | None = None,
        limit: int = 100,
    ) -> Sequence[DeadLetter]:
        """Dead letters after a position, newest first unless `oldest_first`: by creation time, then by id."""
        ...

    async def search(self, query: LetterQuery) -> LetterPage:
        """The dead letters that match, in the order of `page`."""
        ...

    async def groups(self, query: LetterQuery) -> LetterGroups:
        """The groups of the dead letters that match, that with the newest one first; `limit` has no effect."""
        ...

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[DeadLetter]:
        """The dead letters of the tenant whose ids begin with these characters, by id."""
        ...

    async def of_execution(self, tenant: str, dead_letter_id: str) -> Sequence[str]:
        """The ids of all letters of the execution that left this one."""
        ...

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, actor: str, now: int) -> int:
        """Mark the unresolved ones as resolved, with the text `by`; return how many there were."""
        ...
