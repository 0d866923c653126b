"""The audit trail in memory, beside everything else that is kept there."""

from collections.abc import Callable, Collection, Iterable, Sequence

from gnomon.adapters.memory.store import MemoryBooks
from gnomon.core import audit as trail
from gnomon.core.audit import AuditEntry, Head, Kept
from gnomon.core.model import ENGINE, RunId, Schedule, Verdict
from gnomon.core.runs.backfill import Backfill
from gnomon.core.runs.external_events import Entry, Event
from gnomon.core.runs.launch import Cancelling, Launch, Launching
from gnomon.ports.audit import AuditQuery
from gnomon.ports.schedules import Application


class MemoryStore(MemoryBooks):
    """Every port of a store, on dictionaries."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self._audit: list[Kept] = []

    def _write(self, entries: Iterable[AuditEntry | None]) -> None:
        for entry in entries:
            if entry is not None:
                self._audit.append(Kept(number=len(self._audit) + 1, entry=entry))

    # ---- changes -----------------------------------------------------------------------------

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        taken = await super().add(schedules, actor=actor, tzdata=tzdata)
        self._write(trail.registered(one, actor) for one in schedules if one.schedule_id not in taken)
        return taken

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        done = await super().change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done:
            self._write([trail.changed(verdict.schedule, changed, actor, now)])
        return done

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        done = await super().delete(verdict, now=now, actor=actor)
        if done:
            self._write([trail.deleted(verdict.schedule, actor, now)])
        return done

    async def apply(self, wish: Application, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply. Its schedules are added and changed by the methods above, which write of them."""
        before = len(self._audit)
        done = await super().apply(wish, now=now, actor=actor, tzdata=tzdata)
        if done:
            of_schedules = [one.entry for one in self._audit[before:]]
            del self._audit[before:]
            self._write([*(trail.deployed(one, actor, now) for one in wish.workflows), *of_schedules])
        return done

    async def launch(self, launches: Sequence[Launch], *, now: int) -> Sequence[Launching]:
        """See Runs.launch."""
        became = await super().launch(launches, now=now)
        self._write(trail.launched(wish, one, now) for wish, one in zip(launches, became, strict=True))
        return became

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> Cancelling:
        """See Runs.cancel."""
        before = self._runs.get(run_id)
        became = await super().cancel(run_id, reason=reason, now=now)
        if before is not None and actor != ENGINE and became in (Cancelling.ASKED, Cancelling.CANCELLED):
            self._write([trail.cancelled(before, self._runs[run_id], actor, now)])
        return became

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        letters = [self._dead_letters[name] for name in sorted(set(dead_letter_ids)) if name in self._dead_letters]
        open_ones = [one for one in letters if one.tenant == tenant and one.resolved_at is None]
        self._write(trail.resolved(one.dead_letter_id, tenant, by, now) for one in open_ones)
        return await super().resolve(tenant, dead_letter_ids, by=by, now=now)

    async def emit_event(self, event: Event, *, now: int) -> Sequence[Entry]:
        """See EventLog.emit_event."""
        if event.event_id not in self._events:
            self._write([trail.emitted(event)])
        return await super().emit_event(event, now=now)

    async def add_backfill(self, backfill: Backfill) -> bool:
        """See Backfills.add_backfill."""
        added = await super().add_backfill(backfill)
        if added:
            self._write([trail.backfilled(backfill)])
        return added

    async def cancel_backfill(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """See Backfills.cancel_backfill."""
        done = await super().cancel_backfill(tenant, backfill_id, now=now)
        if done and actor != ENGINE:
            self._write([trail.backfill_cancelled(self._backfills[backfill_id], actor, now)])
        return done

    async def add_audit(self, entry: AuditEntry) -> None:
        """See AuditTrail.add_audit."""
        self._write([entry])

    # ---- looking -----------------------------------------------------------------------------

    async def list_audit(self, query: AuditQuery) -> Sequence[Kept]:
        """See AuditTrail.list_audit."""
        found = [kept for kept in reversed(self._audit) if _wanted(query, kept)]
        return found[: query.limit]

    async def sealed_audit(self, *, after: int, limit: int) -> Sequence[Kept]:
        """See AuditTrail.sealed_audit."""
        found = [kept for kept in self._audit if kept.seq is not None and kept.seq > after]
        return sorted(found, key=lambda kept: kept.seq or 0)[:limit]

    async def audit_head(self) -> tuple[Head, int]:
        """See AuditTrail.audit_head."""
        sealed = [kept for kept in self._audit if kept.seq is not None]
        last = sealed[-1] if sealed else None
        head = Head() if last is None else Head(last.seq or 0, last.hash or "")
        return head, len(self._audit) - len(sealed)

    async def seal_audit(self, *, limit: int) -> int:
        """See AuditTrail.seal_audit."""
        head, _ = await self.audit_head()
        done = trail.sealed(head, [kept for kept in self._audit if kept.seq is None][:limit])
        for kept in done:
            self._audit[kept.number - 1] = kept
        return len(done)


def _wanted(query: AuditQuery, kept: Kept) -> bool:
    entry = kept.entry
    asked = (
        (query.actor, entry.actor),
        (query.action, entry.action),
        (query.kind, entry.kind),
        (query.name, entry.name),
    )
    return (
        entry.tenant == query.tenant
        and all(wanted in (None, said) for wanted, said in asked)
        and (query.since_at is None or entry.at >= query.since_at)
        and (query.until_at is None or entry.at < query.until_at)
        and (query.before is None or kept.number < query.before)
    )
