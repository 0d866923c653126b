"""The store in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.backfills import MemoryBackfills
from gnomon.adapters.memory.maintenance import MemoryInvariantChecks
from gnomon.core import audit as trail
from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry
from gnomon.core.ids import SHARDS, run_id
from gnomon.core.ledger.edits import SYSTEM_ACTOR, paused_schedule, verdict_before_edit
from gnomon.core.ledger.plan import run_record, schedule_after, tick_record, unchanged
from gnomon.core.model import ENGINE, Run, RunId, RunStatus, Schedule, ScheduleUid, Task, Tick, Verdict
from gnomon.core.runs.backfill import Backfill
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest, first_tasks
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import StaleTerm
from gnomon.ports.audit import AuditQuery
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.schedules import DeletedSchedule, JobChangeset, Pause, Revision


class UnauditedMemoryStore(MemoryBackfills, MemoryInvariantChecks):
    """Every port of a store but the audit trail, on dictionaries."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self._names: dict[tuple[str, str], ScheduleUid] = {}
        self._revisions: dict[ScheduleUid, list[Revision]] = {}
        self._pauses: dict[ScheduleUid, list[Pause]] = {}
        self._terms = dict.fromkeys(range(SHARDS), 0)
        #: Shard to who holds it, and until when.
        self._leases: dict[int, tuple[str, int]] = {}
        self._nodes: dict[str, int] = {}

    # ---- ledger ------------------------------------------------------------------------------

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        found = [(at, uid) for at, uid in self._waiting(shards) if at <= now]
        return [self._schedules[uid] for _, uid in sorted(found)[:limit]]

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return min((at for at, _ in self._waiting(shards)), default=None)

    def _waiting(self, shards: frozenset[int]) -> list[tuple[int, ScheduleUid]]:
        schedules = self._schedules.values()
        return [(s.next_fire_at, s.uid) for s in schedules if s.next_fire_at is not None and s.shard in shards]

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        shards = {verdict.schedule.shard for verdict in verdicts}
        stale = tuple(sorted(shard for shard in shards if self._terms[shard] != terms.get(shard)))
        if stale:
            raise StaleTerm(stale)
        return frozenset(verdict.schedule.uid for verdict in verdicts if self._carry_out(verdict, now=now))

    def _carry_out(self, verdict: Verdict, *, now: int) -> bool:
        before = verdict.schedule
        current = self._schedules.get(before.uid)
        if current is None or not unchanged(before, current):
            return False
        self._schedules[before.uid] = schedule_after(verdict)
        for decision in verdict.decisions:
            row = tick_record(before, decision, now=now, term=self._terms[before.shard])
            self._ticks[row.uid, decision.planned_at] = row
            if decision.starts_run:
                made = run_record(before, decision, now=now)
                self._runs[made.run_id] = made
                self._tasks.add(first_tasks(made, before.spec.first_steps, now=now))
        if verdict.replaces:
            # The newest is the one that replaces; those it replaces may make room for it at once.
            self._supersede(before.uid, now, by=run_id(before.uid, verdict.newest_run_at))
        return True

    # ---- schedules ---------------------------------------------------------------------------

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        uid = self._names.get((tenant, schedule_id))
        return None if uid is None else self._schedules[uid]

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        names = sorted(name for owner, name in self._names if owner == tenant and name > after)
        return [self._schedules[self._names[tenant, name]] for name in names[:limit]]

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        taken = set()
        for schedule in schedules:
            name = schedule.tenant, schedule.schedule_id
            if name in self._names:
                taken.add(schedule.schedule_id)
                continue
            self._names[name] = schedule.uid
            self._schedules[schedule.uid] = schedule
            self._keep_revision(schedule, actor, tzdata)
            if schedule.paused_at is not None:
                self._pauses[schedule.uid] = [Pause(paused_at=schedule.paused_at, paused_by=actor)]
        return frozenset(taken)

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        before = verdict.schedule
        if not self._carry_out(verdict, now=now):
            return False
        changed = self._schedules[changed.uid] = self._counted(changed)
        if changed.revision != before.revision:
            self._keep_revision(changed, actor, tzdata)
        self._keep_pause(before, changed, now, actor)
        return True

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        if not self._carry_out(verdict, now=now):
            return False
        self._delete(verdict.schedule.uid, now, actor)
        return True

    def _delete(self, uid: ScheduleUid, now: int, actor: str) -> None:
        schedule = self._schedules.pop(uid)
        self._cancel_queued(schedule.uid, now)
        del self._names[schedule.tenant, schedule.schedule_id]
        self._keep_revision(replace(schedule, revision=schedule.revision + 1, updated_at=now), actor, "")

    def _retire(self, schedule: Schedule, status: RunStatus, now: int) -> None:
        verdict = verdict_before_edit(schedule, now=now)
        self._carry_out(verdict, now=now)
        if status is RunStatus.COMPLETED:
            self._delete(schedule.uid, now, SYSTEM_ACTOR)
        else:
            self._schedules[schedule.uid] = stopped = self._counted(paused_schedule(verdict, now=now))
            self._keep_pause(schedule, stopped, now, SYSTEM_ACTOR)

    def _counted(self, after: Schedule) -> Schedule:
        """The schedule with its runs as they are counted now: those that were replaced may have made room at once."""
        current = self._schedules[after.uid]
        return replace(after, active_runs=current.active_runs, queued_runs=current.queued_runs)

    def _keep_revision(self, schedule: Schedule, actor: str, tzdata: str) -> None:
        kept = Revision(
            revision=schedule.revision, schedule=schedule, from_at=schedule.updated_at, actor=actor, tzdata=tzdata
        )
        self._revisions.setdefault(schedule.uid, []).append(kept)

    def _keep_pause(self, before: Schedule, changed: Schedule, now: int, actor: str) -> None:
        pauses = self._pauses.setdefault(changed.uid, [])
        if before.paused_at is None and changed.paused_at is not None:
            pauses.append(Pause(paused_at=changed.paused_at, paused_by=actor))
        if before.paused_at is not None and changed.paused_at is None:
            pauses[-1] = replace(pauses[-1], resumed_at=now, resumed_by=actor)

    # ---- jobs --------------------------------------------------------------------------------

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        versions = self._workflows.get((tenant, workflow_id), [])
        wanted = [one for one in versions if version in (None, one.version)]
        return max(wanted, key=lambda one: one.version, default=None)

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.page_of_workflows."""
        names = sorted(name for owner, name in self._workflows if owner == tenant and name > after)
        return await self.newest_workflows(tenant, names[:limit])

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        found = [await self.workflow(tenant, name) for name in sorted(set(workflow_ids))]
        return [one for one in found if one is not None]

    async def apply(self, wish: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""
        taken = any((one.tenant, one.schedule_id) in self._names for one in wish.added)
        known = any([await self.workflow(one.tenant, one.workflow_id, one.version) for one in wish.workflows])
        read = [verdict.schedule for verdict in (*(edit.verdict for edit in wish.edits), *wish.removed)]
        as_read = all((current := self._schedules.get(s.uid)) is not None and unchanged(s, current) for s in read)
        if taken or known or not as_read:
            return False
        for workflow in wish.workflows:
            self._workflows.setdefault((workflow.tenant, workflow.workflow_id), []).append(workflow)
        await self.add(wish.added, actor=actor, tzdata=tzdata)
        for edit in wish.edits:
            await self.change(edit.verdict, edit.changed, now=now, actor=actor, tzdata=tzdata)
        for verdict in wish.removed:
            await self.delete(verdict, now=now, actor=actor)
        return True

    # ---- history -----------------------------------------------------------------------------

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See History.ticks."""
        planned = sorted((at for owner, at in self._ticks if owner == uid and at < before), reverse=True)
        return [self._ticks[uid, at] for at in planned[:limit]]

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See History.runs."""
        found = [made for made in self._runs.values() if made.schedule_uid == uid and made.planned_at < before]
        return sorted(found, key=lambda made: (made.planned_at, made.run_id), reverse=True)[:limit]

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See History.tasks."""
        wanted = {made.run_id for made in runs}
        return sorted((t for t in self._tasks.values() if t.run_id in wanted), key=lambda t: (t.run_id, t.step))

    async def revisions(self, uid: ScheduleUid) -> Sequence[Revision]:
        """See History.revisions."""
        return tuple(self._revisions.get(uid, ()))

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See History.pauses."""
        return tuple(self._pauses.get(uid, ()))

    async def gone(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """See History.gone."""
        last = [kept[-1] for uid, kept in self._revisions.items() if uid not in self._schedules]
        found = [
            DeletedSchedule(schedule=one.schedule, deleted_at=one.from_at, deleted_by=one.actor)
            for one in last
            if (one.schedule.tenant, one.schedule.schedule_id) == (tenant, schedule_id)
        ]
        return sorted(found, key=lambda one: (one.deleted_at, one.schedule.uid), reverse=True)[:limit]

    # ---- shards ------------------------------------------------------------------------------

    async def renew_shards(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.attend."""
        now = self._now()
        self._nodes = {name: until for name, until in self._nodes.items() if until > now} | {holder: now + ttl_ms}
        held = {shard: self._terms[shard] for shard, (owner, _) in self._leases.items() if owner == holder}
        self._leases |= dict.fromkeys(held, (holder, now + ttl_ms))
        others = [until for owner, until in self._leases.values() if owner != holder and until > now]
        return ShardRenewal(held, len(self._nodes), now, min(others, default=None))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        now = self._now()
        if by_force:
            self._nodes = {holder: now + ttl_ms}
        free = [shard for shard in range(SHARDS) if by_force or self._leases.get(shard, ("", now))[1] <= now]
        for shard in free[:limit]:
            self._terms[shard] += 1
            self._leases[shard] = holder, now + ttl_ms
        return {shard: self._terms[shard] for shard in free[:limit]}

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        self._nodes.pop(holder, None)
        await self.release(holder, range(SHARDS))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        for shard in shards:
            if self._leases.get(shard, ("", 0))[0] == holder:
                del self._leases[shard]


class MemoryStore(UnauditedMemoryStore):
    """Every port of a store, on dictionaries."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self._audit: list[StoredAuditEntry] = []

    def _write(self, entries: Iterable[AuditEntry | None]) -> None:
        for entry in entries:
            if entry is not None:
                self._audit.append(StoredAuditEntry(number=len(self._audit) + 1, entry=entry))

    # ---- changes -----------------------------------------------------------------------------

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        taken = await super().add(schedules, actor=actor, tzdata=tzdata)
        self._write(trail.registered_entry(one, actor) for one in schedules if one.schedule_id not in taken)
        return taken

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        done = await super().change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done:
            self._write([trail.changed_entry(verdict.schedule, changed, actor, now)])
        return done

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        done = await super().delete(verdict, now=now, actor=actor)
        if done:
            self._write([trail.deleted_entry(verdict.schedule, actor, now)])
        return done

    async def apply(self, wish: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply. Its schedules are added and changed by the methods above, which write of them."""
        before = len(self._audit)
        done = await super().apply(wish, now=now, actor=actor, tzdata=tzdata)
        if done:
            of_schedules = [one.entry for one in self._audit[before:]]
            del self._audit[before:]
            self._write([*(trail.deployed_entry(one, actor, now) for one in wish.workflows), *of_schedules])
        return done

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        became = await super().launch(launches, now=now)
        self._write(trail.launched_entry(wish, one, now) for wish, one in zip(launches, became, strict=True))
        return became

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        before = self._runs.get(run_id)
        became = await super().cancel(run_id, reason=reason, now=now)
        if before is not None and actor != ENGINE and became in (CancelOutcome.ASKED, CancelOutcome.CANCELLED):
            self._write([trail.cancelled_entry(before, self._runs[run_id], actor, now)])
        return became

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        letters = [self._dead_letters[name] for name in sorted(set(dead_letter_ids)) if name in self._dead_letters]
        open_ones = [one for one in letters if one.tenant == tenant and one.resolved_at is None]
        self._write(trail.resolved_entry(one.dead_letter_id, tenant, by, now) for one in open_ones)
        return await super().resolve(tenant, dead_letter_ids, by=by, now=now)

    async def emit_event(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """See EventLog.emit_event."""
        if event.event_id not in self._events:
            self._write([trail.emitted_entry(event)])
        return await super().emit_event(event, now=now)

    async def add_backfill(self, backfill: Backfill) -> bool:
        """See Backfills.add_backfill."""
        added = await super().add_backfill(backfill)
        if added:
            self._write([trail.backfilled_entry(backfill)])
        return added

    async def cancel_backfill(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """See Backfills.cancel_backfill."""
        done = await super().cancel_backfill(tenant, backfill_id, now=now)
        if done and actor != ENGINE:
            self._write([trail.backfill_cancelled_entry(self._backfills[backfill_id], actor, now)])
        return done

    async def add_audit(self, entry: AuditEntry) -> None:
        """See AuditTrail.add_audit."""
        self._write([entry])

    # ---- looking -----------------------------------------------------------------------------

    async def list_audit(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.list_audit."""
        found = [kept for kept in reversed(self._audit) if _wanted(query, kept)]
        return found[: query.limit]

    async def sealed_audit(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.sealed_audit."""
        found = [kept for kept in self._audit if kept.seq is not None and kept.seq > after]
        return sorted(found, key=lambda kept: kept.seq or 0)[:limit]

    async def audit_head(self) -> tuple[ChainHead, int]:
        """See AuditTrail.audit_head."""
        sealed = [kept for kept in self._audit if kept.seq is not None]
        last = sealed[-1] if sealed else None
        head = ChainHead() if last is None else ChainHead(last.seq or 0, last.hash or "")
        return head, len(self._audit) - len(sealed)

    async def seal_audit(self, *, limit: int) -> int:
        """See AuditTrail.seal_audit."""
        head, _ = await self.audit_head()
        done = trail.seal_entries(head, [kept for kept in self._audit if kept.seq is None][:limit])
        for kept in done:
            self._audit[kept.number - 1] = kept
        return len(done)


def _wanted(query: AuditQuery, kept: StoredAuditEntry) -> bool:
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
