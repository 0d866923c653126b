"""Runs and dead letters in memory. No method awaits, so each one is a transaction."""

from collections.abc import Collection, Mapping, Sequence

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import cancelled_entry, launched_entry, resolved_entry
from gnomon.core.model import ENGINE, Attempt, DeadLetter, LogLine, Run, RunId, TaskId
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.ports.runs import RunQuery


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
        if run.over:
            return CancelOutcome.OVER
        self._rules.cancel(run, reason, now)
        after = state.runs[run_id]
        if actor != ENGINE:
            state.write_audit([cancelled_entry(run, after, actor, now)])
        return CancelOutcome.CANCELLED if after.over else CancelOutcome.ASKED


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
            and (query.down_to is None or (run.created_at, run.run_id) >= query.down_to)
        ]
        return found[: query.limit]

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.run_position."""
        found = self._listed(query)[number - 1 : number]
        return (found[0].created_at, found[0].run_id) if found else None

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
        """See Payloads.payloads."""
        return {name: self._state.payloads[name, kind] for name in owner_ids if (name, kind) in self._state.payloads}

    async def log_lengths(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """See Executions.log_lengths."""
        return {name: len(lines) for name in tasks if (lines := self._state.logs.get(name))}

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return self._state.logs.get(task_id, [])[after : after + limit]


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
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.page."""
        found = [
            letter
            for name, letter in sorted(self._state.dead_letters.items())
            if letter.tenant == tenant
            and job in (None, letter.job)
            and not (unresolved and letter.resolved_at is not None)
            and name > after
        ]
        return found[:limit]

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        letters = [self._state.dead_letters.get(name) for name in sorted(set(dead_letter_ids))]
        mine = [one.dead_letter_id for one in letters if one is not None and one.tenant == tenant]
        resolved = [name for name in mine if self._rules.resolve(name, by, now)]
        self._state.write_audit(resolved_entry(name, tenant, by, now) for name in resolved)
        return len(resolved)
