"""Statistics of the store in memory."""

from collections.abc import Mapping, Sequence

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.ledger.marks import is_mark_ahead
from gnomon.core.model import Overlap, RunId, RunStatus, Schedule, ScheduleUid, Task
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.core.runs.states import ASSIGNED, TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.ports.maintenance import (
    MAX_NAMED_BREAKERS,
    NEWEST_RUNS,
    HeldTasks,
    JobStats,
    MarksAhead,
    StoreStats,
    shown_breaker,
)


class MemoryStoreStats:
    """Implements StoreStatsReader."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def read(self, now: int, *, overdue_before: int, max_jobs: int, stale_before: int = 0) -> StoreStats:
        """See StoreStatsReader.read. There is no schema, so its number is 0."""
        state, store_at = self._state, self._state.now()
        fires = [one.next_fire_at for one in state.schedules.values() if one.next_fire_at is not None]
        due = [at for at in fires if at <= now]
        tasks = state.tasks.live.values()
        holders = [holder for holder, until in state.shard_leases.values() if until > store_at]
        names = sorted(state.names)[:max_jobs]
        scheduled = [task.available_at for task in tasks if task.state is TaskState.SCHEDULED]
        unroutable = sorted(
            (since, task.task_id, task.note or "")
            for task in tasks
            if task.state is TaskState.PENDING
            and task.wait_reason is WaitReason.ROUTE
            and (since := state.unroutable_since.get(task.task_id)) is not None
        )
        late = [max(task.available_at, task.created_at) for task in tasks if _is_due(task, now)]
        return StoreStats(
            store_at=store_at,
            schema=0,
            jobs=len(state.schedules),
            due=len(due),
            oldest_due_at=min(due, default=None),
            overdue=sum(at <= overdue_before for at in due),
            ready_since_at=min([*scheduled, *late, *(since for since, *_ in unroutable)], default=None),
            scheduled=len(scheduled),
            unroutable=len(unroutable),
            unroutable_since_at=unroutable[0][0] if unroutable else None,
            unroutable_reason=unroutable[0][2] if unroutable else "",
            stale=self._stale_tasks(store_at, stale_before),
            workers=sum(until > store_at for _, until in state.workers.values()),
            shards=len(holders),
            holders=len(set(holders)),
            unannounced=sum(not one.over for one in state.announcements.values()),
            rolling_back=sum(one.rollback is RollbackStatus.RUNNING for one in state.runs.values()),
            approvals_waiting=sum(one.status is ApprovalStatus.WAITING for one in state.approvals.values()),
            unresolved=sum(one.resolved_at is None for one in state.dead_letters.values()),
            job_stats=tuple(self._job_stats(state.schedules[state.names[name]]) for name in names),
        )

    async def held_tasks(self) -> HeldTasks:
        """See StoreStatsReader.held_tasks."""
        tasks = self._state.tasks.live.values()
        pending = [task for task in tasks if task.state is TaskState.PENDING]
        put_off = sorted(
            (task.available_at, task.task_id, task.note or "")
            for task in pending
            if task.wait_reason is WaitReason.POLICY
        )
        open_breakers = sorted(key for key, one in self._state.breakers.items() if one.breaker.open_until is not None)
        return HeldTasks(
            to_approve=sum(task.state is TaskState.APPROVAL_REQUIRED for task in tasks),
            put_off=len(put_off),
            by_breakers=sum(task.wait_reason is WaitReason.BREAKER for task in pending),
            reason=put_off[0][2] if put_off else "",
            breakers=tuple(shown_breaker(key) for key in open_breakers[:MAX_NAMED_BREAKERS]),
        )

    def _stale_tasks(self, store_at: int, stale_before: int) -> Mapping[TaskState, int]:
        found = dict.fromkeys((TaskState.PENDING, TaskState.SCHEDULED, *sorted(ASSIGNED)), 0)
        for task in self._state.tasks.live.values():
            if task.state in ASSIGNED:
                found[task.state] += self._state.attempts[task.task_id, task.fence].lease_until <= store_at
            elif task.state is TaskState.SCHEDULED or _is_ready(task):
                found[task.state] += task.available_at <= stale_before
        return found

    async def marks_ahead(self) -> MarksAhead:
        """See StoreStatsReader.marks_ahead."""
        now = self._state.now()
        ahead = [one.mark_at for one in self._state.schedules.values() if is_mark_ahead(one, now=now)]
        return MarksAhead(len(ahead), max(ahead, default=None))

    def _job_stats(self, schedule: Schedule) -> JobStats:
        workflow = self._rules.workflow_of_schedule(schedule)
        locks = schedule.active_runs > 0 and schedule.spec.overlap is Overlap.SKIP
        return JobStats(
            uid=schedule.uid,
            job=schedule.schedule_id,
            next_fire_at=schedule.next_fire_at,
            locked=locks and workflow is not None and workflow.lock,
        )

    async def last_successes(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """See StoreStatsReader.last_successes."""
        found = {}
        for uid in uids:
            runs = [run for run in self._state.runs.values() if run.schedule_uid == uid]
            newest = sorted(runs, key=lambda run: (run.planned_at, run.run_id))[-NEWEST_RUNS:]
            ends = [run.completed_at for run in newest if run.status is RunStatus.COMPLETED and run.completed_at]
            if ends:
                found[uid] = max(ends)
        return found

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """See StoreStatsReader.steps."""
        found = {run: [(t.step, t.state.value) for t in self._rules.tasks_of(run) if t.parent is None] for run in runs}
        return {run: steps for run, steps in found.items() if steps and [name for name, _ in steps] != [ONLY_STEP]}


def _is_ready(task: Task) -> bool:
    return task.state is TaskState.PENDING and task.wait_reason is WaitReason.READY


def _is_due(task: Task, now: int) -> bool:
    """Whether the task should be admitted by now."""
    held = task.wait_reason in (WaitReason.DEPS, WaitReason.QUEUE)
    return task.state is TaskState.PENDING and not held and task.available_at <= now
