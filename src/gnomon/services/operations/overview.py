"""The overview: what is due, late or failed, what did not run, and what waits for people.

A part that cannot be read is told with the reason, and does not keep the others from being shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gnomon.core.health import NodeHealth
from gnomon.core.ledger.ticks import ticks_of
from gnomon.core.model import Reason, RunStatus, Schedule
from gnomon.core.runs.states import WaitReason
from gnomon.errors import GnomonError
from gnomon.ports.overview import BoundedTotal, OverviewCounts, TenantTotals, TickTotal
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import WorkerInfo, Workers

#: Numbers are exact up to this one.
MOST_COUNTED = 1_000
#: How many jobs are shown that are due next, and that are overdue.
_NEXT, _MOST_OVERDUE = 10, 100
#: A fire that is due for so long should have been decided.
OVERDUE_MS = 1_000


class DueJob(Struct, frozen=True):
    """A job, the planned time of its next fire, and when that fire is due."""

    schedule: Schedule
    planned_at: int
    due_at: int


class OverdueJobs(Struct, frozen=True):
    """The jobs whose next fire is overdue, the latest first; with `more`, there are others."""

    jobs: Sequence[DueJob]
    more: bool


class OverviewView(Struct, frozen=True, kw_only=True):
    """The parts of the overview. A part that is not known is None, and its name is in `unknown` with the reason."""

    now: int
    since: int
    until: int
    unknown: Mapping[str, str]
    totals: TenantTotals | None
    due_next: Sequence[DueJob] | None
    overdue: OverdueJobs | None
    ticks: Mapping[Reason, TickTotal] | None
    failed: int | None
    under_way: Mapping[RunStatus, int] | None
    waiting: Mapping[WaitReason, BoundedTotal] | None
    workers: Sequence[WorkerInfo] | None
    health: NodeHealth | None


class OverviewService:
    """Reads the parts of the overview."""

    def __init__(
        self, counts: OverviewCounts, workers: Workers, health: Callable[[], Awaitable[NodeHealth]], clock: Clock
    ) -> None:
        self._counts, self._workers = counts, workers
        self._health, self._clock = health, clock

    async def read(self, window_ms: int, *, tenant: str) -> OverviewView:
        """The overview of a tenant, with the counts of the last `window_ms` milliseconds."""
        now = self._clock.now()
        # The end of a window is not in it, and the present is.
        since, until, counts, most = now - window_ms, now + 1, self._counts, MOST_COUNTED + 1
        parts: dict[str, Awaitable[Any]] = {
            "totals": counts.totals(tenant, most=most),
            "due_next": self._due_next(tenant, now),
            "overdue": self._overdue(tenant, now),
            "ticks": counts.ticks(tenant, since=since, until=until, most=most),
            "failed": counts.failed_runs(tenant, since=since, until=until, most=most),
            "under_way": counts.open_runs(tenant, most=most),
            "waiting": counts.waiting_runs(tenant, most=MOST_COUNTED),
            "workers": self._workers.alive(),
            "health": self._health(),
        }
        unknown: dict[str, str] = {}

        async def part(name: str, read: Awaitable[Any]) -> Any:  # noqa: ANN401 - as varied as the parts are
            try:
                return await read
            except GnomonError as error:
                unknown[name] = str(error)
                return None

        found = await asyncio.gather(*(part(name, read) for name, read in parts.items()))
        return OverviewView(now=now, since=since, until=until, unknown=unknown, **dict(zip(parts, found, strict=True)))

    async def _due_next(self, tenant: str, now: int) -> Sequence[DueJob]:
        return [_due(one) for one in await self._counts.coming(tenant, after=now, limit=_NEXT)]

    async def _overdue(self, tenant: str, now: int) -> OverdueJobs:
        found = await self._counts.overdue(tenant, before=now - OVERDUE_MS, limit=_MOST_OVERDUE + 1)
        return OverdueJobs([_due(one) for one in found[:_MOST_OVERDUE]], more=len(found) > _MOST_OVERDUE)


def _due(schedule: Schedule) -> DueJob:
    due_at = schedule.next_fire_at or schedule.mark_at
    planned_at = ticks_of(schedule).unskipped.after(schedule.mark_at)
    return DueJob(schedule, due_at if planned_at is None else planned_at, due_at)
