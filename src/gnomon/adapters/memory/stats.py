"""Statistics of the store in memory."""

from collections.abc import Mapping, Sequence

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.model import Overlap, RunId, Schedule
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.ports.maintenance import JobStats, StoreStats


class MemoryStoreStats:
    """Implements StoreStatsReader."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def read(self, now: int, *, overdue_before: int, cards: int) -> StoreStats:
        """See StoreStatsReader.read. There is no schema, so its number is 0."""
        state, store_at = self._state, self._state.now()
        fires = [one.next_fire_at for one in state.schedules.values() if one.next_fire_at is not None]
        due = [at for at in fires if at <= now]
        tasks = state.tasks.live.values()
        holders = [holder for holder, until in state.shard_leases.values() if until > store_at]
        names = sorted(state.names)[:cards]
        return StoreStats(
            store_at=store_at,
            schema=0,
            jobs=len(state.schedules),
            due=len(due),
            oldest_due_at=min(due, default=None),
            overdue=sum(at <= overdue_before for at in due),
            ready_since_at=min((t.available_at for t in tasks if t.state is TaskState.SCHEDULED), default=None),
            workers=sum(until > store_at for _, until in state.workers.values()),
            shards=len(holders),
            holders=len(set(holders)),
            unresolved=sum(one.resolved_at is None for one in state.dead_letters.values()),
            cards=tuple(self._job_stats(state.schedules[state.names[name]]) for name in names),
        )

    def _job_stats(self, schedule: Schedule) -> JobStats:
        workflow = self._rules.workflow_of_schedule(schedule)
        locks = schedule.active_runs > 0 and schedule.spec.overlap is Overlap.SKIP
        return JobStats(
            job=schedule.schedule_id,
            next_fire_at=schedule.next_fire_at,
            locked=locks and workflow is not None and workflow.lock,
        )

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """See StoreStatsReader.steps."""
        found = {run: [(t.step, t.state.value) for t in self._rules.tasks_of(run) if t.parent is None] for run in runs}
        return {run: steps for run, steps in found.items() if steps and [name for name, _ in steps] != [ONLY_STEP]}
