"""Backfills in memory. No method awaits, so each one is a transaction."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import backfill_cancelled_entry, backfilled_entry
from gnomon.core.model import ENGINE, RunStatus, ScheduleUid
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTickKind,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
    backfill_after_batch,
    batch_ticks_after_launch,
    in_turns,
)

_UNDER_WAY = (RunStatus.PENDING, RunStatus.RUNNING)


class MemoryBackfills:
    """Implements Backfills."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def add(self, backfill: Backfill) -> bool:
        """See Backfills.add."""
        state = self._state
        if backfill.backfill_id in state.backfills:
            return False
        state.backfills[backfill.backfill_id] = backfill
        state.write_audit([backfilled_entry(backfill)])
        return True

    async def list_open(self, *, limit: int) -> Sequence[OpenBackfill]:
        """See Backfills.list_open."""
        found = [one for _, one in sorted(self._state.backfills.items()) if one.ended_at is None]
        names = in_turns([(one.backfill_id, one.tenant) for one in found], limit)
        turns = (self._state.backfills[name] for name in names)
        return [OpenBackfill(one, self._progress(one).under_way) for one in turns]

    async def times_already_run(
        self, uid: ScheduleUid, *, first_at: int, last_at: int
    ) -> Mapping[int, BackfillTickReason]:
        """See Backfills.times_already_run."""
        entries = self._state.backfill_ticks.values()
        before = [e.planned_at for e in entries if e.schedule_uid == uid and e.kind is BackfillTickKind.FIRED]
        own = [at for (owner, at), tick in self._state.ticks.items() if owner == uid and tick.run_id is not None]
        found = dict.fromkeys(before, BackfillTickReason.BACKFILLED_BEFORE) | dict.fromkeys(
            own, BackfillTickReason.HAD_A_RUN
        )
        return {at: why for at, why in found.items() if first_at <= at <= last_at}

    async def apply_batch(self, batch: BackfillBatch, *, now: int) -> BatchOutcome:
        """See Backfills.apply_batch."""
        state = self._state
        name = batch.backfill.backfill_id
        if batch.backfill.schedule_uid not in state.schedules:
            return BatchOutcome.GONE
        if state.backfills.get(name) != batch.backfill:
            return BatchOutcome.VOID
        outcomes = [self._rules.launch(launch, now) for launch in batch.launches]
        written = batch_ticks_after_launch(batch, outcomes)
        state.backfill_ticks.update({(name, entry.planned_at): entry for entry in written})
        state.backfills[name] = backfill_after_batch(batch, now=now)
        return BatchOutcome.DONE

    async def cancel(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """See Backfills.cancel."""
        state = self._state
        found = state.backfills.get(backfill_id)
        if found is None or found.tenant != tenant or found.ended_at is not None:
            return False
        cancelled = state.backfills[backfill_id] = replace(found, ended_at=now, cancelled=True)
        if actor != ENGINE:
            state.write_audit([backfill_cancelled_entry(cancelled, actor, now)])
        return True

    async def find(self, tenant: str, backfill_id: str) -> BackfillProgress | None:
        """See Backfills.find."""
        found = self._state.backfills.get(backfill_id)
        return self._progress(found) if found is not None and found.tenant == tenant else None

    async def page(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[BackfillProgress]:
        """See Backfills.page."""
        found = [o for o in self._state.backfills.values() if o.tenant == tenant and job in (None, o.schedule_id)]
        newest = [one for one in sorted(found, key=_position, reverse=True) if after is None or _position(one) < after]
        return [self._progress(one) for one in newest[:limit]]

    def _progress(self, backfill: Backfill) -> BackfillProgress:
        entries = [e for (owner, _), e in self._state.backfill_ticks.items() if owner == backfill.backfill_id]
        runs = [self._state.runs[entry.run_id] for entry in entries if entry.run_id is not None]
        return BackfillProgress(
            backfill=backfill,
            fired=len(runs),
            skipped=len(entries) - len(runs),
            under_way=sum(run.status in _UNDER_WAY for run in runs),
            failed=sum(run.status in (RunStatus.FAILED, RunStatus.CANCELLED) for run in runs),
        )


def _position(backfill: Backfill) -> tuple[int, str]:
    return backfill.created_at, backfill.backfill_id
