"""Schedules, their ledger, shards, history and jobs in memory. No method awaits, so each one is a transaction."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import changed_entry, deleted_entry, deployed_entry, mark_set_back_entry, registered_entry
from gnomon.core.ids import SHARDS
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.marks import corrected_mark, is_mark_ahead, reaching_range
from gnomon.core.ledger.plan import refuse_clock_ahead, unchanged
from gnomon.core.model import Run, RunStatus, Schedule, ScheduleUid, Task, Tick, TickKind, TickVerdict
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import StaleTerm
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.schedules import (
    DeletedSchedule,
    JobChangeset,
    Pause,
    RecentHistory,
    Revision,
    ScheduleOrder,
    SchedulePosition,
    Schedules,
    TenantTickQuery,
    TickMark,
    TickPosition,
    schedule_position,
)


class MemoryLedger:
    """Implements Ledger."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        found = [(at, uid) for at, uid in self._planned(shards) if at <= now]
        return [self._state.schedules[uid] for _, uid in sorted(found)[:limit]]

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return min((at for at, _ in self._planned(shards)), default=None)

    def _planned(self, shards: frozenset[int]) -> list[tuple[int, ScheduleUid]]:
        schedules = self._state.schedules.values()
        return [(s.next_fire_at, s.uid) for s in schedules if s.next_fire_at is not None and s.shard in shards]

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        self._check_terms({verdict.schedule.shard for verdict in verdicts}, terms)
        refuse_clock_ahead(now, self._state.now())
        return frozenset(verdict.schedule.uid for verdict in verdicts if self._rules.apply_verdict(verdict, now=now))

    def _check_terms(self, shards: Collection[int], terms: Terms) -> None:
        stale = tuple(sorted(shard for shard in shards if self._state.terms[shard] != terms.get(shard)))
        if stale:
            raise StaleTerm(stale)

    async def set_back_marks(self, *, terms: Terms, limit: int) -> Sequence[Schedule]:
        """See Ledger.set_back_marks."""
        state = self._state
        self._check_terms(set(terms), terms)
        now = state.now()
        removed = state.ticks_removed_until
        found = [one for one in state.schedules.values() if one.shard in terms and is_mark_ahead(one, now=now)]
        ahead = [one for one in found if one.mark_at > removed.get(one.uid, 0)]
        corrected = [self._set_back(one, now) for one in sorted(ahead, key=lambda one: one.uid)[:limit]]
        state.write_audit(mark_set_back_entry(one) for one in corrected)
        return corrected

    def _set_back(self, schedule: Schedule, now: int) -> Schedule:
        state, uid = self._state, schedule.uid
        to_at = max(now, state.ticks_removed_until.get(uid, 0))
        rows = [tick for (owner, _), tick in state.ticks.items() if owner == uid and tick.decision.last_at > to_at]
        ahead = sorted(rows, key=lambda one: one.decision.planned_at)
        reaching, specs = (
            reaching_range(ahead, to_at=to_at),
            {one.revision: one.schedule.spec for one in state.revisions[uid]},
        )
        spec = None if reaching is None else specs.get(reaching.revision)
        corrected = corrected_mark(schedule, ahead, now=now, to_at=to_at, range_spec=spec)
        for planned_at in corrected.withdrawn:
            del state.ticks[uid, planned_at]
        if corrected.shortened is not None:
            place = uid, corrected.shortened.planned_at
            state.ticks[place] = replace(state.ticks[place], decision=corrected.shortened)
        state.schedules[uid] = corrected.schedule
        return corrected.schedule


class MemoryShards:
    """Implements Shards."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        state = self._state
        now = state.now()
        for name in [name for name, until in state.nodes.items() if until <= now]:
            del state.nodes[name]
        state.nodes[holder] = now + ttl_ms
        held = {shard: state.terms[shard] for shard, (owner, _) in state.shard_leases.items() if owner == holder}
        state.shard_leases.update(dict.fromkeys(held, (holder, now + ttl_ms)))
        others = [until for owner, until in state.shard_leases.values() if owner != holder and until > now]
        return ShardRenewal(held, len(state.nodes), now, min(others, default=None))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        state = self._state
        now = state.now()
        if by_force:
            state.nodes.clear()
            state.nodes[holder] = now + ttl_ms
        free = [shard for shard in range(SHARDS) if by_force or state.shard_leases.get(shard, ("", now))[1] <= now]
        for shard in free[:limit]:
            state.terms[shard] += 1
            state.shard_leases[shard] = holder, now + ttl_ms
        return {shard: state.terms[shard] for shard in free[:limit]}

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        self._state.nodes.pop(holder, None)
        await self.release(holder, range(SHARDS))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        for shard in shards:
            if self._state.shard_leases.get(shard, ("", 0))[0] == holder:
                del self._state.shard_leases[shard]


class MemorySchedules:
    """Implements Schedules."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        uid = self._state.names.get((tenant, schedule_id))
        return None if uid is None else self._state.schedules[uid]

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        state = self._state
        names = sorted(name for owner, name in state.names if owner == tenant and name > after)
        return [state.schedules[state.names[tenant, name]] for name in names[:limit]]

    async def in_order(
        self, tenant: str, order: ScheduleOrder, *, after: SchedulePosition | None, limit: int
    ) -> Sequence[Schedule]:
        """See Schedules.in_order."""
        state = self._state
        places = {
            _sort_key(schedule_position(state.schedules[uid], order), order): state.schedules[uid]
            for (owner, _), uid in state.names.items()
            if owner == tenant
        }
        begin = None if after is None else _sort_key(after, order)
        return [places[key] for key in sorted(places) if begin is None or key > begin][:limit]

    async def names_from(self, tenant: str, origins: Collection[str]) -> frozenset[str]:
        """See Schedules.names_from."""
        state = self._state
        names = [(name, uid) for (owner, name), uid in state.names.items() if owner == tenant]
        return frozenset(name for name, uid in names if state.schedules[uid].spec.origin in origins)

    async def orphans(self, tenant: str, *, limit: int) -> Sequence[Schedule]:
        """See Schedules.orphans."""
        found = await self.page(tenant, after="", limit=len(self._state.names))
        return [one for one in found if one.spec.orphaned][:limit]

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        state = self._state
        taken = set()
        for schedule in schedules:
            name = schedule.tenant, schedule.schedule_id
            if name in state.names:
                taken.add(schedule.schedule_id)
                continue
            state.names[name] = schedule.uid
            state.schedules[schedule.uid] = schedule
            self._rules.add_revision(schedule, actor, tzdata)
            if schedule.paused_at is not None:
                state.pauses[schedule.uid] = [Pause(paused_at=schedule.paused_at, paused_by=actor)]
            state.write_audit([registered_entry(schedule, actor)])
        return frozenset(taken)

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        before = verdict.schedule
        if not self._rules.apply_verdict(verdict, now=now):
            return False
        after = self._state.schedules[changed.uid] = self._rules.with_current_counts(changed)
        if after.revision != before.revision:
            self._rules.add_revision(after, actor, tzdata)
        self._rules.record_pause(before, after, now, actor)
        self._state.write_audit([changed_entry(before, changed, actor, now)])
        return True

    async def delete(self, verdict: TickVerdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        if not self._rules.apply_verdict(verdict, now=now):
            return False
        self._rules.delete_schedule(verdict.schedule.uid, now, actor)
        self._state.write_audit([deleted_entry(verdict.schedule, actor, now)])
        return True


def _sort_key(position: SchedulePosition, order: ScheduleOrder) -> tuple[bool, int, str]:
    """The key that sorts positions: without a time at the end; by the last tick, the latest one at the beginning."""
    at, name = position
    if at is None:
        return True, 0, name
    return False, -at if order is ScheduleOrder.LAST else at, name


class MemoryTickHistory:
    """Implements TickHistory."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def page(self, query: TenantTickQuery) -> Sequence[Tick]:
        """See TickHistory.page."""
        found = [tick for tick in self._between(query) if _is_wanted(tick, query)]
        return [_with_run_change(self._state, tick) for tick in found[: query.limit]]

    async def position(self, query: TenantTickQuery, number: int) -> TickPosition | None:
        """See TickHistory.position."""
        found = self._between(query)
        return _tick_position(found[number - 1]) if len(found) >= number else None

    def _between(self, query: TenantTickQuery) -> list[Tick]:
        found = [
            tick
            for tick in self._state.ticks.values()
            if tick.tenant == query.tenant
            and query.down_to <= _tick_position(tick) < query.before
            and (query.reaching is None or tick.decision.count > 1)
        ]
        return sorted(found, key=_tick_position, reverse=True)

    async def recent(self, schedules: Sequence[Schedule], *, each: int) -> Mapping[ScheduleUid, RecentHistory]:
        """See TickHistory.recent."""
        history = MemoryScheduleHistory(self._state)
        return {
            one.uid: RecentHistory(
                ticks=await history.ticks(one.uid, before=FOREVER, limit=each),
                runs=await history.runs(one.uid, before=FOREVER, limit=each),
                revisions=await history.revisions(one.uid),
                pauses=await history.pauses(one.uid),
            )
            for one in schedules
        }

    async def newest(self, uids: Sequence[ScheduleUid], *, each: int) -> Mapping[ScheduleUid, Sequence[TickMark]]:
        """See TickHistory.newest."""
        wanted, found = set(uids), dict[ScheduleUid, list[TickMark]]()
        for (uid, _), tick in sorted(self._state.ticks.items(), reverse=True):
            if uid in wanted and len(marks := found.setdefault(uid, [])) < each:
                made = tick.decision
                marks.append(TickMark(made.planned_at, made.count, made.kind, made.reason, tick.status, tick.run_id))
        return found


def _tick_position(tick: Tick) -> TickPosition:
    return tick.decision.planned_at, tick.uid


def _is_wanted(tick: Tick, query: TenantTickQuery) -> bool:
    made = tick.decision
    return (
        query.kind in (None, made.kind)
        and query.reason in (None, made.reason)
        and query.status in (None, tick.status)
        and (query.reaching is None or made.last_at >= query.reaching)
    )


def _with_run_change(state: MemoryTables, tick: Tick) -> Tick:
    """The tick with the time of the last change of its run."""
    run = None if tick.run_id is None else state.runs.get(tick.run_id)
    changed_at = None if run is None else run.started_at if run.completed_at is None else run.completed_at
    return replace(tick, run_changed_at=changed_at)


class MemoryScheduleHistory:
    """Implements ScheduleHistory."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See ScheduleHistory.ticks."""
        planned = sorted((at for owner, at in self._state.ticks if owner == uid and at < before), reverse=True)
        return [_with_run_change(self._state, self._state.ticks[uid, at]) for at in planned[:limit]]

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See ScheduleHistory.runs."""
        found = [made for made in self._state.runs.values() if made.schedule_uid == uid and made.planned_at < before]
        return sorted(found, key=lambda made: (made.planned_at, made.run_id), reverse=True)[:limit]

    async def running(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """See ScheduleHistory.running."""
        wanted = set(uids)
        runs = [run.schedule_uid for run in self._state.runs.values() if run.status is RunStatus.RUNNING]
        return dict(Counter(uid for uid in runs if uid is not None and uid in wanted))

    async def last_tick_kinds(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, TickKind]:
        """See ScheduleHistory.last_tick_kinds."""
        ticks = self._state.ticks
        newest = {uid: at for uid, at in sorted(ticks) if uid in set(uids)}
        return {uid: ticks[uid, at].decision.kind for uid, at in newest.items()}

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See ScheduleHistory.tasks."""
        wanted = {made.run_id for made in runs}
        return sorted((t for t in self._state.tasks.values() if t.run_id in wanted), key=lambda t: (t.run_id, t.step))

    async def revisions(
        self, uid: ScheduleUid, *, before: int | None = None, newest: int | None = None
    ) -> Sequence[Revision]:
        """See ScheduleHistory.revisions."""
        found = [one for one in self._state.revisions.get(uid, ()) if before is None or one.revision < before]
        return tuple(found if newest is None else found[max(0, len(found) - newest) :])

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See ScheduleHistory.pauses."""
        return tuple(self._state.pauses.get(uid, ()))

    async def deleted(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """See ScheduleHistory.deleted."""
        last = [kept[-1] for uid, kept in self._state.revisions.items() if uid not in self._state.schedules]
        found = [
            DeletedSchedule(schedule=one.schedule, deleted_at=one.from_at, deleted_by=one.actor)
            for one in last
            if (one.schedule.tenant, one.schedule.schedule_id) == (tenant, schedule_id)
        ]
        return sorted(found, key=lambda one: (one.deleted_at, one.schedule.uid), reverse=True)[:limit]


class MemoryJobs:
    """Implements Jobs."""

    def __init__(self, state: MemoryTables, schedules: Schedules) -> None:
        self._state = state
        self._schedules = schedules

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        versions = self._state.workflows.get((tenant, workflow_id), [])
        wanted = [one for one in versions if version in (None, one.version)]
        return max(wanted, key=lambda one: one.version, default=None)

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.list_workflows."""
        names = sorted(name for owner, name in self._state.workflows if owner == tenant and name > after)
        return await self.newest_workflows(tenant, names[:limit])

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        found = [await self.workflow(tenant, name) for name in sorted(set(workflow_ids))]
        return [one for one in found if one is not None]

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply. Changes of schedules are audited by the part Schedules."""
        state = self._state
        taken = any((one.tenant, one.schedule_id) in state.names for one in changes.added)
        known = any([await self.workflow(one.tenant, one.workflow_id, one.version) for one in changes.workflows])
        read = [verdict.schedule for verdict in (*(edit.verdict for edit in changes.edits), *changes.removed)]
        if taken or known or not all(map(self._is_current, read)):
            return False
        for workflow in changes.workflows:
            state.workflows.setdefault((workflow.tenant, workflow.workflow_id), []).append(workflow)
            state.workflow_created_at[workflow.tenant, workflow.workflow_id, workflow.version] = now
            state.workflow_authors[workflow.tenant, workflow.workflow_id, workflow.version] = actor
        state.write_audit(deployed_entry(one, actor, now) for one in changes.workflows)
        await self._schedules.add(changes.added, actor=actor, tzdata=tzdata)
        for edit in changes.edits:
            await self._schedules.change(edit.verdict, edit.changed, now=now, actor=actor, tzdata=tzdata)
        for verdict in changes.removed:
            await self._schedules.delete(verdict, now=now, actor=actor)
        return True

    def _is_current(self, read: Schedule) -> bool:
        current = self._state.schedules.get(read.uid)
        return current is not None and unchanged(read, current)
