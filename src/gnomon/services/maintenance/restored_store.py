"""The first step of a restored store, before anything is scheduled on it: it decides about all that is in doubt."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from gnomon.core.audit import AuditEntry
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.restored import (
    RESTORE_ACTION,
    RESTORED_KIND,
    DoubtfulTicks,
    StoreRestore,
    doubtful_runs,
    doubtful_ticks,
    uncertain_verdict,
)
from gnomon.core.model import Run, RunId, Schedule, TickVerdict
from gnomon.core.runs.workflow import Delivery
from gnomon.ports.runtime import Events
from gnomon.ports.store import Store

#: The holder of the shards while it decides.
_HOLDER = "restore"
_TTL_MS = 60_000
_PAGE = 500
#: All due schedules are read at once: those of jobs that run at least once stay due.
_ALL = 10_000_000
REASON = "store_uncertain: a backup was restored, and this run may have gone on before"


class OpenRuns(Protocol):
    """Reading the open runs of all tenants."""

    async def open_runs(self, *, after: RunId, limit: int) -> Sequence[Run]:
        """Runs that are not over, by id."""
        ...


class RestoreReport(Struct, frozen=True, kw_only=True):
    """Everything that was in doubt after a restoration, and what was decided."""

    restore: StoreRestore
    #: Ticks of jobs that run at most once: missed.
    missed: tuple[DoubtfulTicks, ...]
    #: Ticks of jobs that run at least once: left to their catch-up.
    left: tuple[DoubtfulTicks, ...]
    #: Runs of jobs that run at most once: cancelled.
    cancelled: tuple[Run, ...]
    #: Backfills of such jobs: cancelled.
    backfills: tuple[str, ...]


class RestoredStore:
    """Decides about the ticks and runs of a restored store that may have run before."""

    def __init__(self, store: Store, open_runs: OpenRuns, *, actor: str) -> None:
        self._store = store
        self._open_runs = open_runs
        self._actor = actor
        self._deliveries: dict[tuple[str, str, int], bool] = {}

    async def decide(self, restore: StoreRestore) -> RestoreReport:
        """Decide, and record it in the audit trail."""
        now = restore.restored_at
        cancelled = await self._cancel_runs(now)
        backfills = await self._cancel_backfills(now)
        missed, left = await self._decide_ticks(now)
        report = RestoreReport(restore=restore, missed=missed, left=left, cancelled=cancelled, backfills=backfills)
        await self._store.audit.add(_audit_entry(report, self._actor))
        return report

    async def _decide_ticks(self, now: int) -> tuple[tuple[DoubtfulTicks, ...], tuple[DoubtfulTicks, ...]]:
        terms = await self._store.shards.claim(_HOLDER, ttl_ms=_TTL_MS, limit=SHARDS, by_force=True)
        missed: list[tuple[TickVerdict, DoubtfulTicks]] = []
        left: list[DoubtfulTicks] = []
        for schedule in await self._store.ledger.due(now, shards=frozenset(range(SHARDS)), limit=_ALL):
            doubtful = doubtful_ticks(schedule, now=now)
            if doubtful is None:
                continue
            if await self._runs_once(schedule.tenant, *_version(schedule)):
                missed.append((uncertain_verdict(schedule, doubtful, now=now), doubtful))
            else:
                left.append(doubtful)
        for start in range(0, len(missed), _PAGE):
            await self._store.ledger.decide([one for one, _ in missed[start : start + _PAGE]], now=now, terms=terms)
        await self._store.shards.leave(_HOLDER)
        return tuple(doubtful for _, doubtful in missed), tuple(left)

    async def _cancel_runs(self, now: int) -> tuple[Run, ...]:
        cancelled: list[Run] = []
        after = RunId("")
        while page := await self._open_runs.open_runs(after=after, limit=_PAGE):
            after = page[-1].run_id
            for run in doubtful_runs(page, now=now):
                if await self._runs_once(run.tenant, run.workflow_id, run.workflow_version):
                    await self._store.runs.cancel(run.run_id, reason=REASON, now=now)
                    cancelled.append(run)
        return tuple(cancelled)

    async def _cancel_backfills(self, now: int) -> tuple[str, ...]:
        cancelled: list[str] = []
        for found in await self._store.backfills.list_open(limit=_ALL):
            one = found.backfill
            schedule = await self._store.schedules.find(one.tenant, one.schedule_id)
            if schedule is not None and await self._runs_once(one.tenant, *_version(schedule)):
                await self._store.backfills.cancel(one.tenant, one.backfill_id, now=now)
                cancelled.append(one.backfill_id)
        return tuple(cancelled)

    async def _runs_once(self, tenant: str, workflow_id: str, version: int) -> bool:
        """Whether the runs of that version may not run twice; also if it is not known."""
        key = (tenant, workflow_id, version)
        if key not in self._deliveries:
            workflow = await self._store.jobs.workflow(tenant, workflow_id, version)
            self._deliveries[key] = workflow is None or workflow.delivery is Delivery.AT_MOST_ONCE
        return self._deliveries[key]


def announce_restore(report: RestoreReport, events: Events) -> None:
    """Announce everything that was in doubt, and the restoration."""
    for decided, ticks in (("missed", report.missed), ("left_to_catchup", report.left)):
        for one in ticks:
            facts = {"tenant": one.tenant, "job": one.job, "count": one.count}
            events.emit("ticks_in_doubt", **facts, first=one.first_at, last=one.last_at, decided=decided)
    for run in report.cancelled:
        job = run.schedule_id or run.workflow_id
        events.emit("run_in_doubt", tenant=run.tenant, job=job, run=run.run_id, decided="cancelled")
    counts = {"missed": sum(one.count for one in report.missed), "cancelled": len(report.cancelled)}
    events.emit("database_restored", backup_at=report.restore.backup_at, **counts)


def _version(schedule: Schedule) -> tuple[str, int]:
    return schedule.spec.workflow_id, schedule.spec.workflow_version


def _audit_entry(report: RestoreReport, actor: str) -> AuditEntry:
    details = {
        "backup_at": report.restore.backup_at,
        "restored_at": report.restore.restored_at,
        "missed": sum(one.count for one in report.missed),
        "left": sum(one.count for one in report.left),
        "cancelled": len(report.cancelled),
    }
    at = report.restore.restored_at
    return AuditEntry(
        at=at,
        actor=actor,
        tenant="default",
        action=RESTORE_ACTION,
        kind=RESTORED_KIND,
        name=str(at),
        details=msgspec.json.encode(details).decode(),
    )
