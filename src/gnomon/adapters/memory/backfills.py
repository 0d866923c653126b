"""Backfills in memory."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.external_events import MemoryExternalEvents
from gnomon.core.model import ENGINE, RunStatus, ScheduleUid
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTick,
    BackfillTickKind,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
    backfill_after_batch,
    batch_ticks_after_launch,
)

_UNDER_WAY = (RunStatus.PENDING, RunStatus.RUNNING)


class MemoryBackfills(MemoryExternalEvents):
    """The port Backfills."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self._backfills: dict[str, Backfill] = {}
        self._backfill_ticks: dict[tuple[str, int], BackfillTick] = {}

    async def add_backfill(self, backfill: Backfill) -> bool:
        """See Backfills.add_backfill."""
        return self._backfills.setdefault(backfill.backfill_id, backfill) is backfill

    async def open_backfills(self, *, limit: int) -> Sequence[OpenBackfill]:
        """See Backfills.open_backfills."""
        found = [one for _, one in sorted(self._backfills.items()) if one.ended_at is None]
        return [OpenBackfill(one, self._progress(one).under_way) for one in found[:limit]]

    async def times_already_run(
        self, uid: ScheduleUid, *, first_at: int, last_at: int
    ) -> Mapping[int, BackfillTickReason]:
        """See Backfills.have_run."""
        entries = self._backfill_ticks.values()
        before = [e.planned_at for e in entries if e.schedule_uid == uid and e.kind is BackfillTickKind.FIRED]
        own = [at for (owner, at), tick in self._ticks.items() if owner == uid and tick.run_id is not None]
        found = dict.fromkeys(before, BackfillTickReason.BACKFILLED_BEFORE) | dict.fromkeys(
            own, BackfillTickReason.HAD_A_RUN
        )
        return {at: why for at, why in found.items() if first_at <= at <= last_at}

    async def apply_backfill_batch(self, lot: BackfillBatch, *, now: int) -> BatchOutcome:
        """See Backfills.carry_out_lot."""
        name = lot.backfill.backfill_id
        if lot.backfill.schedule_uid not in self._schedules:
            return BatchOutcome.GONE
        if self._backfills.get(name) != lot.backfill:
            return BatchOutcome.VOID
        became = [self._launch(launch, now) for launch in lot.launches]
        self._backfill_ticks |= {(name, entry.planned_at): entry for entry in batch_ticks_after_launch(lot, became)}
        self._backfills[name] = backfill_after_batch(lot, now=now)
        return BatchOutcome.DONE

    async def cancel_backfill(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """See Backfills.cancel_backfill."""
        del actor
        found = self._backfills.get(backfill_id)
        if found is None or found.tenant != tenant or found.ended_at is not None:
            return False
        self._backfills[backfill_id] = replace(found, ended_at=now, cancelled=True)
        return True

    async def find_backfill(self, tenant: str, backfill_id: str) -> BackfillProgress | None:
        """See Backfills.find_backfill."""
        found = self._backfills.get(backfill_id)
        return self._progress(found) if found is not None and found.tenant == tenant else None

    async def list_backfills(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[BackfillProgress]:
        """See Backfills.list_backfills."""
        found = [o for o in self._backfills.values() if o.tenant == tenant and job in (None, o.schedule_id)]
        newest = [one for one in sorted(found, key=_place, reverse=True) if after is None or _place(one) < after]
        return [self._progress(one) for one in newest[:limit]]

    def _progress(self, backfill: Backfill) -> BackfillProgress:
        entries = [e for (owner, _), e in self._backfill_ticks.items() if owner == backfill.backfill_id]
        runs = [self._runs[entry.run_id] for entry in entries if entry.run_id is not None]
        return BackfillProgress(
            backfill=backfill,
            fired=len(runs),
            skipped=len(entries) - len(runs),
            under_way=sum(run.status in _UNDER_WAY for run in runs),
            failed=sum(run.status in (RunStatus.FAILED, RunStatus.CANCELLED) for run in runs),
        )


def _place(backfill: Backfill) -> tuple[int, str]:
    return backfill.created_at, backfill.backfill_id
