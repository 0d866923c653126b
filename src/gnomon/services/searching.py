"""Finding what is rare among much.

A page costs what it costs, however long the history is: it may come back short, or empty, and say where to go on.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import Run, Tick
from gnomon.errors import NotFound
from gnomon.ports.runs import Executions, RunQuery
from gnomon.ports.schedules import Jobs
from gnomon.services.job_views import JobView, TicksAsked
from gnomon.services.jobs import JobBook
from gnomon.services.shelf import Shelf

T = TypeVar("T")
Place = TypeVar("Place")
#: How many are looked at for one page of those that are wanted: by the store, and here, where it takes longer.
_LOOK, _LOOK_HERE = 10_000, 1000
#: Where a listing of ledgers goes on: before which planned time of which job.
Ledgers = tuple[str, int]
#: How many ledgers are looked at for one page, and before when there is nothing more in any.
_LEDGERS, _NOTHING_MORE = 25, -(2**62)
#: How many are looked at without a break.
_LOT = 100


class Found(Struct, Generic[T, Place], frozen=True):
    """Some of those that are wanted, and after which place to look for more; None if there are none."""

    items: Sequence[T]
    after: Place | None


class Search:
    """Executions and jobs by what no index knows."""

    def __init__(self, executions: Executions, jobs: Jobs, book: JobBook, *, look: int = _LOOK) -> None:
        self._executions = executions
        self._shelf = Shelf(jobs)
        self._book = book
        self._look, self._look_here = look, min(look, _LOOK_HERE)
        self._lot = min(look, _LOT)

    async def executions(self, query: RunQuery, *, tag: str | None = None) -> Found[Run, tuple[int, str]]:
        """Runs, the newest first."""
        if query.status is not None or query.source is not None or tag is not None:
            look = self._look if tag is None else self._look_here
            query = replace(query, down_to=await self._executions.place_of_run(query, look))
        found = await self._tagged(query, tag) if tag else await self._executions.list_runs(query)
        if len(found) >= query.limit:
            return Found(found, (found[-1].created_at, found[-1].run_id))
        return Found(found, query.down_to)

    async def _tagged(self, query: RunQuery, tag: str) -> list[Run]:
        found: list[Run] = []
        lot = replace(query, limit=self._lot)
        while len(found) < query.limit and (runs := await self._executions.list_runs(lot)):
            await self._shelf.fetch(runs)
            for run in runs:
                workflow = await self._shelf.of(run)
                if workflow is not None and tag in workflow.tags:
                    found.append(run)
            lot = replace(lot, after=(runs[-1].created_at, runs[-1].run_id))
        return found[: query.limit]

    async def ticks(self, asked: TicksAsked, *, after: tuple[str, int] | None, tenant: str) -> Found[Tick, Ledgers]:
        """What became of the planned times of all jobs: one job after the other, of each the newest first."""
        found: list[Tick] = []
        looked = 0
        name, before = after or ("", None)
        ahead = [] if before is None else [(name, before)]
        jobs = await self._book.page(tenant=tenant, after=name, limit=_LEDGERS)
        ahead += [(view.schedule.schedule_id, asked.before) for view in jobs]
        for name, before in ahead:
            with suppress(NotFound):  # it was deleted in the meantime
                wanted = replace(asked, before=before, limit=asked.limit - len(found))
                page = await self._book.ledger(name, wanted, tenant=tenant)
                found += page.ticks
                looked += page.looked
                if page.before is not None:
                    return Found(found, (name, page.before))
            if len(found) == asked.limit or looked >= self._look:
                return Found(found, (name, _NOTHING_MORE))
        return Found(found, (name, _NOTHING_MORE) if len(jobs) == _LEDGERS else None)

    async def jobs(self, *, tag: str | None, after: str, limit: int, tenant: str) -> Found[JobView, str]:
        """Jobs in the order of their names."""
        found: list[JobView] = []
        for _ in range(self._look_here // self._lot):
            size = limit if tag is None else self._lot
            page = await self._book.page(tenant=tenant, after=after, limit=size)
            for view in page:
                after = view.schedule.schedule_id
                if tag is None or (view.workflow is not None and tag in view.workflow.tags):
                    found.append(view)
                if len(found) == limit:
                    return Found(found, after)
            if len(page) < size:
                return Found(found, None)
        return Found(found, after)
