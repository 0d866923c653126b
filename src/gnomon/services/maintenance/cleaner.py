"""The cleaner: archives and then removes history that is older than its retention, a little at a time."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.model import RunId
from gnomon.core.retention import RetainedSchedule, RetentionHorizons, retention_horizons, schedule_expired
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import (
    HISTORY_START,
    Archive,
    RetainedHistory,
    RetentionBatch,
    RetentionKind,
    RetentionPosition,
    WorkflowVersion,
)
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.schedules import Jobs
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: Batches that are archived together.
ArchiveBundle = Sequence[RetentionBatch]
_PAGE = 500


class CleanupResult(Struct, frozen=True):
    """The number of records that a pass has removed."""

    #: How many of each kind, including runs that other runs waited for.
    gone: Mapping[RetentionKind, int]
    #: How many rows of each table were archived.
    rows: Mapping[str, int]


class Cleaner:
    """Walks through all history, archives what has expired, and only then removes it.

    It may be killed at any instruction: rows that were archived and not removed are found again, and archiving them
    once more is idempotent.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        retention: RetainedHistory,
        jobs: Jobs,
        archive: Archive,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        lease: Singleton,
        store_now: Callable[[], Awaitable[int]],
    ) -> None:
        """`store_now` tells the time by the clock of the store, which decides what is old."""
        self._retention = retention
        self._jobs = jobs
        self._archive = archive
        self._clock = clock
        self._events = events
        self._days = settings.execution.history_retention_days
        self._settings = settings.cleaner
        self._lease = lease
        self._store_now = store_now
        self._now = 0
        self._bundles: AsyncIterator[ArchiveBundle] | None = None
        self._gone: Counter[RetentionKind] = Counter()
        self._rows: Counter[str] = Counter()
        self.backoff = Backoff(events, component_names.CLEANER)

    async def step(self) -> float:
        """Archive and remove a bundle. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step_or_restart)

    async def _step_or_restart(self) -> float:
        try:
            return await self._step()
        except Unavailable:
            # The next pass finds the same rows again.
            self._bundles = None
            raise

    async def _step(self) -> float:
        poll = self._settings.poll_ms / 1000
        if not await self._lease.ours():
            return poll
        self._bundles = self._bundles or self._pass()
        bundle = await anext(self._bundles, None)
        if bundle is None:
            self._bundles = None
            self._announce()
            return poll
        await self._archive_and_remove(bundle)
        return self._settings.pause_ms / 1000

    async def clean(self, *, dry: bool = False) -> CleanupResult:
        """Remove everything that has expired, and return what that was; with `dry`, remove nothing."""
        self._gone, self._rows = Counter(), Counter()
        async for bundle in self._pass():
            if dry:
                self._count(bundle)
            else:
                await self._archive_and_remove(bundle)
        return CleanupResult(dict(self._gone), dict(self._rows))

    # ---- removing ----------------------------------------------------------------------------

    async def _archive_and_remove(self, bundle: ArchiveBundle) -> None:
        await self._archive.keep([record for batch in bundle for record in batch.records])
        if not await self._lease.ours():
            # A slow archive outlasted the lease. The node that has it now finds the same rows.
            self._bundles = None
            return
        for part in (part for batch in bundle for part in self._parts(batch)):
            while not await self._retention.remove(part, limit=self._settings.portion):
                await self._clock.sleep(self._settings.pause_ms / 1000)
            await self._clock.sleep(self._settings.pause_ms / 1000)
        self._count(bundle)

    def _parts(self, batch: RetentionBatch) -> Sequence[RetentionBatch]:
        if batch.kind is RetentionKind.RUNS:
            return [batch]
        size = self._settings.portion
        return [replace(batch, names=batch.names[at : at + size]) for at in range(0, len(batch.names), size)]

    def _count(self, bundle: ArchiveBundle) -> None:
        for batch in bundle:
            self._gone[batch.kind] += len(batch.names)
            self._rows.update(record.table for record in batch.records)

    def _announce(self) -> None:
        if self._gone:
            self._events.emit("history_cleaned", **{kind.value: count for kind, count in self._gone.items()})
        self._gone, self._rows = Counter(), Counter()

    # ---- finding -----------------------------------------------------------------------------

    async def _pass(self) -> AsyncIterator[ArchiveBundle]:
        """All expired history, in bundles that are large enough for a file each.

        Runs come first: ticks, backfills and versions of workflows may be removed only after their runs.
        """
        self._now = await self._store_now()
        for part in (self._runs, self._ticks_events_and_letters, self._definitions):
            bundle: list[RetentionBatch] = []
            async for batch in part():
                bundle.append(batch)
                if sum(len(one.records) for one in bundle) >= self._settings.batch:
                    yield bundle
                    bundle = []
            if bundle:
                yield bundle

    async def _runs(self) -> AsyncIterator[RetentionBatch]:
        async for past, kept in self._retained():
            aged = past.oldest_run_at is not None and past.oldest_run_at < kept.runs_at
            if aged or (past.oldest_run_at is not None and kept.most_runs is not None):
                async for batch in self._all(partial(self._retention.expired_runs, past, kept)):
                    yield batch
        async for batch in self._all(partial(self._retention.expired_runs, None, self._horizons(self._days))):
            yield batch

    async def _ticks_events_and_letters(self) -> AsyncIterator[RetentionBatch]:
        async for past, kept in self._retained():
            if past.oldest_tick_at is not None and past.oldest_tick_at < kept.keys_at:
                async for batch in self._all(partial(self._retention.expired_ticks, past, kept)):
                    yield batch
            if schedule_expired(past, kept):
                yield await self._retention.expired_schedule(past.uid)
        kept = self._horizons(self._days)
        for tenant in await self._retention.tenants():
            async for batch in self._all(partial(self._retention.expired_events, tenant, kept.keys_at)):
                yield batch
            async for batch in self._all(partial(self._retention.expired_dead_letters, tenant, kept.runs_at)):
                yield batch

    async def _definitions(self) -> AsyncIterator[RetentionBatch]:
        before_at = self._horizons(self._days).keys_at
        async for batch in self._all(partial(self._retention.expired_backfills, before_at)):
            yield batch
        superseded = [batch async for batch in self._all(partial(self._retention.superseded_workflows, before_at))]
        used = await self._versions_of_runs() if superseded else set()
        for batch in superseded:
            unused = [at for at, name in enumerate(batch.names) if name not in used]
            if unused:
                names, records = tuple(batch.names[at] for at in unused), [batch.records[at] for at in unused]
                yield replace(batch, names=names, records=records)

    async def _versions_of_runs(self) -> set[WorkflowVersion]:
        """The versions of workflows that any run has. An index would find them, but slow down every start of a run."""
        used: set[WorkflowVersion] = set()
        after: RunId | None = RunId("")
        while after is not None:
            page = await self._retention.versions_of_runs(after=after, limit=self._settings.batch)
            used |= page.versions
            after = page.after
            await self._clock.sleep(self._settings.pause_ms / 1000)
        return used

    async def _retained(self) -> AsyncIterator[tuple[RetainedSchedule, RetentionHorizons]]:
        after = ""
        while retained_schedules := await self._retention.retained_schedules(after=after, limit=_PAGE):
            after = retained_schedules[-1].uid
            defined = await self._workflows_of(retained_schedules)
            for past in retained_schedules:
                workflow = defined.get((past.tenant, past.workflow_id))
                days = self._days if workflow is None else workflow.retention_days or self._days
                kept = self._horizons(days, past)
                yield past, kept if workflow is None else replace(kept, most_runs=workflow.retention_runs)

    async def _all(self, ask: Callable[..., Awaitable[RetentionBatch]]) -> AsyncIterator[RetentionBatch]:
        """The batches of a query, without empty ones."""
        place: RetentionPosition | None = HISTORY_START
        while place is not None:
            batch = await ask(after=place, limit=self._settings.batch)
            if batch.names:
                yield batch
            place = batch.after

    def _horizons(self, days: int, past: RetainedSchedule | None = None) -> RetentionHorizons:
        window = 0 if past is None else past.catchup_window_ms
        return retention_horizons(days, dedupe_ms=self._settings.dedupe_ms, catchup_window_ms=window, now=self._now)

    async def _workflows_of(self, retained_schedules: Sequence[RetainedSchedule]) -> Mapping[tuple[str, str], Workflow]:
        """The newest version of each workflow of these schedules, by tenant and id: it defines the retention."""
        found: dict[tuple[str, str], Workflow] = {}
        for tenant in {past.tenant for past in retained_schedules}:
            names = sorted({past.workflow_id for past in retained_schedules if past.tenant == tenant})
            for workflow in await self._jobs.newest_workflows(tenant, names):
                found[tenant, workflow.workflow_id] = workflow
        return found
