"""Runs and dead letters in memory. No method awaits, so each one is a transaction."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import cancelled_entry, launched_entry, resolved_entry, rolled_back_entry
from gnomon.core.model import ENGINE, Attempt, DeadLetter, LogLine, Overlap, Run, RunId, Task, TaskId
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.rollback import RollbackOutcome, RollbackStatus
from gnomon.core.runs.states import ASSIGNED, TaskState, WaitReason
from gnomon.ports.runs import (
    ItemQuery,
    LetterGroup,
    LetterGroups,
    LetterPage,
    LetterPosition,
    LetterQuery,
    LogQuery,
    RunQuery,
    StepLogLine,
)


class MemoryRuns:
    """Implements Runs."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        outcomes = [self._rules.launch(one, now) for one in launches]
        self._state.write_audit(launched_entry(*pair, now) for pair in zip(launches, outcomes, strict=True))
        return outcomes

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        state = self._state
        run = state.runs.get(run_id)
        if run is None:
            return CancelOutcome.UNKNOWN
        if run.over or run.rollback is RollbackStatus.RUNNING:
            return CancelOutcome.OVER
        self._rules.cancel(run, reason, now)
        after = state.runs[run_id]
        if actor != ENGINE:
            state.write_audit([cancelled_entry(run, after, actor, now)])
        return CancelOutcome.CANCELLED if after.over else CancelOutcome.ASKED

    async def roll_back(self, run_id: RunId, *, reason: str, now: int, actor: str) -> RollbackOutcome:
        """See Runs.roll_back."""
        state = self._state
        run = state.runs.get(run_id)
        if run is None:
            return RollbackOutcome.UNKNOWN
        if not run.over:
            return RollbackOutcome.UNDER_WAY
        if not self._rules.roll_back(run, reason, now):
            return RollbackOutcome.NOTHING
        state.write_audit([rolled_back_entry(run, state.runs[run_id], actor, now)])
        return RollbackOutcome.STARTED


class MemoryExecutions:
    """Implements Executions."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def find_run(self, run_id: RunId) -> Run | None:
        """See Executions.find_run."""
        return self._state.runs.get(run_id)

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """See Executions.list_runs."""
        found = [
            run
            for run in self._listed(query)
            if query.status in (None, run.status)
            and query.source in (None, run.source)
            and not (query.unfinished and run.over)
            and (query.wait_reason is None or self._waits_for(run, query.wait_reason))
            and (query.down_to is None or (run.created_at, run.run_id) >= query.down_to)
        ]
        return found[: query.limit]

    def _waits_for(self, run: Run, reason: WaitReason) -> bool:
        if reason is WaitReason.QUEUE:
            return run.queued
        return any(
            task.run_id == run.run_id and task.state is TaskState.PENDING and task.wait_reason is reason
            for task in self._state.tasks.live.values()
        )

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Run]:
        """See Executions.find_by_prefix."""
        found = (run for name, run in sorted(self._state.runs.items()) if name.startswith(prefix))
        return [run for run in found if run.tenant == tenant][:limit]

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.run_position."""
        found = self._listed(query)[number - 1 : number]
        return (found[0].created_at, found[0].run_id) if found else None

    async def excluding_runs(self, *, limit: int) -> Sequence[Run]:
        """See Executions.excluding_runs."""
        schedules = self._state.schedules
        found = [
            run
            for run in self._state.runs.values()
            if not run.over
            and not run.queued
            and run.schedule_uid in schedules
            and schedules[run.schedule_uid].spec.overlap is Overlap.SKIP
        ]
        return sorted(found, key=lambda run: (run.schedule_uid or "", run.created_at, run.run_id))[:limit]

    def _listed(self, query: RunQuery) -> list[Run]:
        found = [
            run
            for run in self._state.runs.values()
            if run.tenant == query.tenant
            and query.schedule_id in (None, run.schedule_id)
            and (query.since is None or run.created_at >= query.since)
            and (query.until is None or run.created_at < query.until)
            and (query.after is None or (run.created_at, run.run_id) < query.after)
        ]
        return sorted(found, key=lambda run: (run.created_at, run.run_id), reverse=True)

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        wanted = set(tasks)
        return [attempt for held, attempt in sorted(self._state.attempts.items()) if held[0] in wanted]

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return self._state.payloads.get((owner_id, kind))

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See PayloadReader.payloads."""
        return {name: self._state.payloads[name, kind] for name in owner_ids if (name, kind) in self._state.payloads}

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return self._state.logs.get(task_id, [])[after : after + limit]


class MemoryRunTasks:
    """Implements RunTasks."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def steps(self, runs: Sequence[RunId], *, items: int = 0) -> Sequence[Task]:
        """See RunTasks.steps."""
        found = [task for task in self._of(runs) if task.parent is None or (task.item or 0) < items]
        return sorted(found, key=lambda task: (task.run_id, task.step, task.task_id))

    async def items(self, query: ItemQuery) -> Sequence[Task]:
        """See RunTasks.items."""
        found = [
            task
            for task in self._of([query.run_id])
            if task.item is not None
            and task.item > query.after
            and query.step in (None, task.step)
            and (query.states is None or task.state in query.states)
        ]
        return sorted(found, key=lambda task: (task.item, task.task_id))[: query.limit]

    async def item_counts(self, run_id: RunId) -> Mapping[str, Mapping[TaskState, int]]:
        """See RunTasks.item_counts."""
        found: dict[str, Counter[TaskState]] = {}
        for task in self._of([run_id]):
            if task.item is not None:
                found.setdefault(task.step, Counter())[task.state] += 1
        return found

    async def attempt_numbers(self, runs: Sequence[RunId]) -> Mapping[RunId, int]:
        """See RunTasks.attempt_numbers."""
        found: dict[RunId, int] = {}
        for task in self._of(runs):
            if task.parent is None:
                found[task.run_id] = max(task.fence, found.get(task.run_id, 0))
        return found

    async def log(self, query: LogQuery) -> Sequence[StepLogLine]:
        """See RunTasks.log."""
        found = [
            StepLogLine(task.step, line, number, task.task_id, task.item)
            for task in self._of([query.run_id])
            for number, line in self._lines_of(task)
            if query.step in (None, task.step) and _is_wanted(query, number, line)
        ]
        after, down = query.after, query.newest_first
        return sorted(
            (one for one in found if after is None or (one.place < after if down else one.place > after)),
            key=lambda one: one.place,
            reverse=down,
        )[: query.limit]

    def _lines_of(self, task: Task) -> Iterator[tuple[int, LogLine]]:
        """The numbered lines of a task, and of its attempt that goes on."""
        stored = self._state.logs.get(task.task_id, [])
        yield from enumerate(stored, 1)
        if task.state in ASSIGNED:
            for place, line in self._state.agent_logs.get((task.task_id, task.fence), {}).items():
                yield len(stored) + place + 1, line

    def _of(self, runs: Sequence[RunId]) -> Iterator[Task]:
        return (task for task in self._state.tasks.values() if task.run_id in runs)


def _is_wanted(query: LogQuery, number: int, line: LogLine) -> bool:
    find, text = query.find, line.text
    if find is not None and find.isascii():
        find, text = find.lower(), "".join(one.lower() if one.isascii() else one for one in text)
    return (
        (query.since is None or line.at >= query.since) and number > query.after_line and (find is None or find in text)
    )


def _place(letter: DeadLetter) -> LetterPosition:
    return letter.created_at, letter.dead_letter_id


class MemoryDeadLetters:
    """Implements DeadLetters."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def find(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters.find."""
        found = self._state.dead_letters.get(dead_letter_id)
        return found if found is not None and found.tenant == tenant else None

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
        """See DeadLetters.page."""
        query = LetterQuery(
            tenant=tenant, job=job, unresolved=unresolved, oldest_first=oldest_first, after=after, limit=limit
        )
        return (await self.search(query)).letters

    async def search(self, query: LetterQuery) -> LetterPage:
        """See DeadLetters.search."""
        listed = self._listed(query)
        looked, end = self._scanned(listed, query) if query.searches else (listed, None)
        found = [letter for letter in looked if query.matches(letter)][: query.limit]
        return LetterPage(found, _place(found[-1]) if len(found) == query.limit else end)

    async def groups(self, query: LetterQuery) -> LetterGroups:
        """See DeadLetters.groups."""
        looked, end = self._scanned(self._listed(query), query)
        times: dict[tuple[str, str, str], list[int]] = {}
        for letter in looked:
            if query.matches(letter):
                times.setdefault((letter.job, letter.step, letter.error_line), []).append(letter.created_at)
        found = [
            LetterGroup(
                job=job, step=step, error_line=line, count=len(created), oldest_at=min(created), newest_at=max(created)
            )
            for (job, step, line), created in sorted(times.items())
        ]
        return LetterGroups(sorted(found, key=lambda one: one.newest_at, reverse=True), end)

    def _listed(self, query: LetterQuery) -> list[DeadLetter]:
        places = {(letter.created_at, name): letter for name, letter in self._state.dead_letters.items()}
        after = query.after
        return [
            letter
            for place, letter in sorted(places.items(), reverse=not query.oldest_first)
            if letter.tenant == query.tenant
            and query.job in (None, letter.job)
            and not (query.unresolved and letter.resolved_at is not None)
            and (query.since is None or letter.created_at >= query.since)
            and (query.until is None or letter.created_at < query.until)
            and (after is None or (place > after if query.oldest_first else place < after))
        ]

    def _scanned(self, listed: list[DeadLetter], query: LetterQuery) -> tuple[list[DeadLetter], LetterPosition | None]:
        """The letters that one search looks at, and the position of the last of them if it may not be the last one."""
        looked = listed[: query.scan]
        return looked, _place(looked[-1]) if len(looked) == query.scan else None

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[DeadLetter]:
        """See DeadLetters.find_by_prefix."""
        found = (letter for name, letter in sorted(self._state.dead_letters.items()) if name.startswith(prefix))
        return [letter for letter in found if letter.tenant == tenant][:limit]

    async def of_execution(self, tenant: str, dead_letter_id: str) -> Sequence[str]:
        """See DeadLetters.of_execution."""
        return self._rules.letters_of_execution(tenant, dead_letter_id)

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, actor: str, now: int) -> int:
        """See DeadLetters.resolve."""
        letters = [self._state.dead_letters.get(name) for name in sorted(set(dead_letter_ids))]
        mine = [one.dead_letter_id for one in letters if one is not None and one.tenant == tenant]
        resolved = [name for name in mine if self._rules.resolve(name, by, now)]
        self._state.write_audit(resolved_entry(name, tenant, by, actor, now) for name in resolved)
        return len(resolved)
