"""Counts for a first page, of the store in memory."""

from collections.abc import Callable, Mapping, Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.model import Reason, RunStatus, Schedule
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.overview import BoundedTotal, TenantTotals, TickTotal


class MemoryOverviewCounts:
    """Implements OverviewCounts."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def coming(self, tenant: str, *, after: int, limit: int) -> Sequence[Schedule]:
        """See OverviewCounts.coming."""
        return self._by_next_fire(tenant, lambda at: at > after)[:limit]

    async def overdue(self, tenant: str, *, before: int, limit: int) -> Sequence[Schedule]:
        """See OverviewCounts.overdue."""
        return self._by_next_fire(tenant, lambda at: at < before)[:limit]

    def _by_next_fire(self, tenant: str, fits: Callable[[int], bool]) -> list[Schedule]:
        found = [
            (one.next_fire_at, one.uid, one)
            for one in self._state.schedules.values()
            if one.tenant == tenant and one.next_fire_at is not None and fits(one.next_fire_at)
        ]
        return [one for _, _, one in sorted(found, key=lambda row: row[:2])]

    async def ticks(self, tenant: str, *, since: int, until: int, most: int) -> Mapping[Reason, TickTotal]:
        """See OverviewCounts.ticks."""
        rows: dict[Reason, list[tuple[int, int]]] = {}
        for tick in self._state.ticks.values():
            made = tick.decision
            late = made.reason is not Reason.ON_TIME and tick.tenant == tenant
            if late and made.last_at >= since and made.planned_at < until:
                rows.setdefault(made.reason, []).append((made.last_at, made.count))
        newest = {reason: sorted(some, reverse=True)[:most] for reason, some in rows.items()}
        return {
            reason: TickTotal(len(some), sum(count for _, count in some), some[0][0]) for reason, some in newest.items()
        }

    async def failed_runs(self, tenant: str, *, since: int, until: int, most: int) -> int:
        """See OverviewCounts.failed_runs."""
        failed = sum(
            run.tenant == tenant and run.status is RunStatus.FAILED and since <= run.created_at < until
            for run in self._state.runs.values()
        )
        return min(failed, most)

    async def open_runs(self, tenant: str, *, most: int) -> Mapping[RunStatus, int]:
        """See OverviewCounts.open_runs."""
        runs = [run.status for run in self._state.runs.values() if run.tenant == tenant and not run.over]
        return {status: min(most, runs.count(status)) for status in (RunStatus.RUNNING, RunStatus.PENDING)}

    async def waiting_runs(self, tenant: str, *, most: int) -> Mapping[WaitReason, BoundedTotal]:
        """See OverviewCounts.waiting_runs."""
        waits: dict[WaitReason, set[str]] = {}
        for task in self._state.tasks.live.values():
            if task.tenant == tenant and task.state is TaskState.PENDING:
                waits.setdefault(task.wait_reason, set()).add(task.run_id)
        waits.pop(WaitReason.DEPS, None)
        waits[WaitReason.QUEUE] = {
            run.run_id for run in self._state.runs.values() if run.tenant == tenant and run.queued
        }
        return {
            reason: BoundedTotal(min(len(runs), most), more=len(runs) > most) for reason, runs in waits.items() if runs
        }

    async def totals(self, tenant: str, *, most: int) -> TenantTotals:
        """See OverviewCounts.totals."""
        state = self._state
        letters = [one for one in state.dead_letters.values() if one.tenant == tenant and one.resolved_at is None]
        waiting = [
            one for one in state.approvals.values() if one.tenant == tenant and one.status is ApprovalStatus.WAITING
        ]
        return TenantTotals(
            jobs=min(most, sum(owner == tenant for owner, _ in state.names)),
            dead_letters=min(most, len(letters)),
            approvals=min(most, len(waiting)),
        )
