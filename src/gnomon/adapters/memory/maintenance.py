"""Maintenance in memory: singleton leases, retention, invariants. No method awaits, so each one is a transaction."""

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.invariants import (
    OrphanedAttempt,
    OverdueSchedule,
    RunCountCheck,
    StuckReason,
    StuckRun,
    diagnose_run,
    waits_for_run,
)
from gnomon.core.ledger.plan import unchanged
from gnomon.core.model import ENGINE, Run, RunId, RunStatus, Schedule, ScheduleUid, Task, Tick
from gnomon.core.retention import (
    RetainedSchedule,
    RetentionHorizons,
    dead_letter_expired,
    event_expired,
    needed_by_dead_letter,
    run_expired,
    select_expired_ticks,
)
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.core.runs.workflow import Workflow
from gnomon.core.triggers import OnDemand, OnEvent
from gnomon.ports.maintenance import (
    ArchiveRecord,
    OpenRunPosition,
    RetentionBatch,
    RetentionKind,
    RetentionPosition,
    StuckRunsPage,
)


class MemorySingletonLeases:
    """Implements SingletonLeases."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See SingletonLeases.acquire_singleton."""
        state = self._state
        owner, until = state.singleton_leases.get(name, (holder, 0))
        if owner != holder and until > state.now():
            return False
        state.singleton_leases[name] = holder, state.now() + ttl_ms
        return True

    async def release_singletons(self, holder: str) -> None:
        """See SingletonLeases.release_singletons."""
        self._state.singleton_leases = {
            name: lease for name, lease in self._state.singleton_leases.items() if lease[0] != holder
        }


class MemoryRetention:
    """Implements RetentionStore."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    # ---- finding -----------------------------------------------------------------------------

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """See RetentionStore.retained_schedules."""
        return [self._retained(uid) for uid in sorted(uid for uid in self._state.revisions if uid > after)[:limit]]

    def _retained(self, uid: ScheduleUid) -> RetainedSchedule:
        state = self._state
        last = state.revisions[uid][-1]
        schedule = state.schedules.get(uid, last.schedule)
        ticks = [at for owner, at in state.ticks if owner == uid]
        return RetainedSchedule(
            uid=uid,
            tenant=schedule.tenant,
            schedule_id=schedule.schedule_id,
            workflow_id=schedule.spec.workflow_id,
            mark_at=schedule.mark_at,
            catchup_window_ms=schedule.spec.catchup_window_ms,
            deleted_at=None if uid in state.schedules else last.from_at,
            oldest_run_at=min((run.planned_at for run in state.runs.values() if run.schedule_uid == uid), default=None),
            oldest_tick_at=min(ticks, default=None),
            newest_tick_at=max(ticks, default=None),
        )

    async def tenants(self) -> Sequence[str]:
        """See RetentionStore.tenants."""
        letters = {letter.tenant for letter in self._state.dead_letters.values()}
        return sorted(letters | {event.tenant for event in self._state.events.values()})

    async def expired_runs(
        self, schedule: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_runs."""
        uid = None if schedule is None else schedule.uid
        of_schedule = [
            run for run in self._state.runs.values() if run.schedule_uid == uid and run.planned_at < kept.runs_at
        ]
        found = sorted(run for run in ((one.planned_at, one.run_id) for one in of_schedule) if run > after)
        names: list[str] = []
        records: list[ArchiveRecord] = []
        position: RetentionPosition | None = None
        for at, name in found:
            if len(records) >= limit:
                break
            position = at, name
            family = self._family(self._state.runs[RunId(name)], kept)
            names += [run.run_id for run in family]
            records += [record for run in family for record in self._run_records(run, family[0])]
        else:
            position = None
        return RetentionBatch(kind=RetentionKind.RUNS, names=tuple(names), records=records, after=position)

    def _family(self, run: Run, kept: RetentionHorizons) -> list[Run]:
        """The run and the runs that its steps waited for, if all of them have expired; else nothing."""
        state = self._state
        if run.parent_task is not None and run.parent_task in state.tasks:
            return []
        family = [run]
        for one in family:
            family += [state.runs[name] for name in self._below(one)]
        under_way = {one.run_id for one in state.runs.values() if not one.over}
        letters = [
            state.dead_letters[name]
            for task in self._rules.tasks_of(run.run_id)
            if (name := dead_letter_id(task.task_id)) in state.dead_letters
        ]
        over = run_expired(run, kept) and all(one.over for one in family)
        return family if over and not needed_by_dead_letter(run, letters, under_way) else []

    def _below(self, run: Run) -> list[RunId]:
        steps = {task.task_id: task for task in self._rules.tasks_of(run.run_id)}
        attempts = [one for one in self._state.attempts.values() if one.task_id in steps and one.worker == ENGINE]
        names = [sub_run_id(replace(steps[one.task_id], fence=one.number)) for one in attempts]
        return [name for name in names if name in self._state.runs]

    def _run_records(self, run: Run, first: Run) -> list[ArchiveRecord]:
        state = self._state
        at = first.completed_at or 0
        tasks = self._rules.tasks_of(run.run_id)
        found = [ArchiveRecord("run", to_json_fields(run), at)]
        found += [ArchiveRecord("task", to_json_fields(task), at) for task in tasks]
        found += [
            ArchiveRecord("attempt", to_json_fields(o), at)
            for (t, _), o in state.attempts.items()
            if t in {x.task_id for x in tasks}
        ]
        found += [
            ArchiveRecord("task_log", {"task_id": task.task_id, "seq": number, **to_json_fields(line)}, at)
            for task in tasks
            for number, line in enumerate(state.logs.get(task.task_id, ()), 1)
        ]
        owners = {run.run_id, *(task.task_id for task in tasks)}
        found += [
            ArchiveRecord("payload", {"owner_id": owner, "kind": kind, "body": body.decode()}, at)
            for (owner, kind), body in state.payloads.items()
            if owner in owners
        ]
        return found

    async def expired_ticks(
        self, schedule: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_ticks."""
        state = self._state
        planned = sorted(at for owner, at in state.ticks if owner == schedule.uid and after[0] < at < kept.keys_at)
        page = [state.ticks[schedule.uid, at] for at in planned[:limit]]
        going = select_expired_ticks(schedule, page, kept, {str(name) for name in state.runs})
        return RetentionBatch(
            kind=RetentionKind.TICKS,
            uid=schedule.uid,
            names=tuple(tick.decision.planned_at for tick in going),
            records=[ArchiveRecord("tick", _tick_row(tick), tick.decided_at) for tick in going],
            after=(planned[limit - 1], "") if len(planned) > limit else None,
        )

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_events."""
        state = self._state
        events = [one for one in state.events.values() if one.tenant == tenant and one.emitted_at < before_at]
        positions = sorted(position for one in events if (position := (one.emitted_at, one.event_id)) > after)
        records, names = [], []
        for _, name in positions[:limit]:
            event = state.events[name]
            entries = [entry for (of, _), entry in state.effects.items() if of == name]
            if event_expired(entries):
                names.append(name)
                records += [ArchiveRecord("event", to_json_fields(event), event.emitted_at)]
                records += [ArchiveRecord("event_entry", to_json_fields(entry), event.emitted_at) for entry in entries]
        further = positions[limit - 1] if len(positions) > limit else None
        return RetentionBatch(kind=RetentionKind.EVENTS, names=tuple(names), records=records, after=further)

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_dead_letters."""
        state = self._state
        letters = sorted(name for name, one in state.dead_letters.items() if one.tenant == tenant and name > after[1])
        under_way = {str(run.run_id) for run in state.runs.values() if not run.over}
        page = [state.dead_letters[name] for name in letters[:limit]]
        going = [one for one in page if dead_letter_expired(one, before_at, under_way)]
        return RetentionBatch(
            kind=RetentionKind.DEAD_LETTERS,
            names=tuple(one.dead_letter_id for one in going),
            records=[ArchiveRecord("dead_letter", to_json_fields(one), one.created_at) for one in going],
            after=(0, letters[limit - 1]) if len(letters) > limit else None,
        )

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """See RetentionStore.expired_schedule."""
        kept = self._state.revisions[uid]
        at = kept[-1].from_at
        records = [ArchiveRecord("schedule", {"uid": uid, "schedule_id": kept[-1].schedule.schedule_id}, at)]
        records += [
            ArchiveRecord("schedule_revision", {"uid": uid, "revision": r.revision, "actor": r.actor}, at) for r in kept
        ]
        records += [
            ArchiveRecord("pause", {"uid": uid, **to_json_fields(one)}, at) for one in self._state.pauses.get(uid, ())
        ]
        return RetentionBatch(kind=RetentionKind.SCHEDULES, names=(uid,), records=records)

    # ---- removing ----------------------------------------------------------------------------

    async def remove(self, batch: RetentionBatch, *, limit: int) -> bool:
        """See RetentionStore.remove."""
        state = self._state
        match batch.kind:
            case RetentionKind.RUNS:
                return self._remove_runs(batch.names, limit)
            case RetentionKind.TICKS:
                _drop(state.ticks, ((batch.uid, at) for at in batch.names))
            case RetentionKind.EVENTS:
                _drop(state.effects, [key for key in state.effects if key[0] in batch.names])
                _drop(state.events, batch.names)
            case RetentionKind.DEAD_LETTERS:
                _drop(state.dead_letters, batch.names)
            case RetentionKind.SCHEDULES:
                _drop(state.revisions, batch.names)
                _drop(state.pauses, batch.names)
        return True

    def _remove_runs(self, names: Sequence[Any], limit: int) -> bool:
        state = self._state
        over = {name for name in names if name in state.runs and state.runs[name].over}
        tasks = [task.task_id for task in state.tasks.values() if task.run_id in over]
        going = set(tasks[:limit])
        _drop(state.attempts, [held for held in state.attempts if held[0] in going])
        _drop(state.logs, going)
        _drop(state.payloads, [key for key in state.payloads if key[0] in going])
        _drop(state.tasks, going)
        if len(tasks) > limit:
            return False
        _drop(state.payloads, [(name, "input") for name in over])
        _drop(state.runs, over)
        return True


def _drop(kept: MutableMapping[Any, Any], names: Iterable[Any]) -> None:
    for name in list(names):
        kept.pop(name, None)


def to_json_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any record
    """The fields of a value as JSON can hold them. Its bytes are JSON already."""
    return {name: field.decode() if isinstance(field, bytes) else field for name, field in asdict(value).items()}


def _tick_row(tick: Tick) -> dict[str, Any]:
    row = {name: field for name, field in asdict(tick).items() if name not in ("decision", "key")}
    return {**row, **asdict(tick.decision), "key": tick.key.hex()}


class MemoryInvariants:
    """Implements InvariantChecks and StuckRuns."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """See StuckRuns.stuck_runs."""
        runs = [run for run in self._state.runs.values() if not run.over and run.created_at < before_at]
        found = sorted((run for run in runs if _position(run) > after), key=_position)
        last = _position(found[limit - 1]) if len(found) > limit else None
        page = found if last is None else [run for run in found if _position(run) <= last]
        diagnosed = {run.run_id: self._diagnosed(run) for run in page}
        return StuckRunsPage({name: one.reason for name, one in diagnosed.items() if one is not None}, last)

    def _diagnosed(self, run: Run) -> StuckRun | None:
        steps = [task for task in self._rules.tasks_of(run.run_id) if task.parent is None]
        over = {name for name, one in self._state.runs.items() if one.over}
        return diagnose_run(run, self._rules.workflow_of(run), steps, over)

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See StuckRuns.repair_runs."""
        return [
            name for name in sorted(run_ids) if name in self._state.runs and self._repair(self._state.runs[name], now)
        ]

    def _repair(self, run: Run, now: int) -> bool:
        found = self._diagnosed(run)
        if found is None:
            return False
        graph = self._rules.workflow_of(run)
        if graph is None:
            self._rules.end_run(run, RunStatus.FAILED, "its workflow is gone", now)
        elif found.reason is StuckReason.STEP_NOT_ENDED:
            for task in found.steps:
                self._end_step(task, graph, now)
        else:
            self._rules.advance(run, graph, now)
        return True

    def _end_step(self, task: Task, graph: Workflow, now: int) -> None:
        if waits_for_run(task, graph):
            self._rules.end_awaiting_step(self._state.runs[sub_run_id(task)], now)
        else:
            self._rules.end_items(task, self._rules.items_of(task.task_id), graph, now)

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See InvariantChecks.schedules_without_next_fire."""
        found = sorted(uid for uid, one in self._state.schedules.items() if uid > after and _idle(one))
        return [self._state.schedules[uid] for uid in found[:limit]]

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See InvariantChecks.set_next_fire."""
        current = self._state.schedules.get(schedule.uid)
        if current is None or not unchanged(schedule, current) or not _idle(current):
            return False
        self._state.schedules[schedule.uid] = replace(current, next_fire_at=next_fire_at)
        return True

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """See InvariantChecks.orphaned_attempts."""
        before = self._state.now() - grace_ms
        found = [
            one for _, one in sorted(self._state.attempts.items()) if one.ended_at is None and one.lease_until < before
        ]
        return [OrphanedAttempt(task_id=o.task_id, worker=o.worker, lease_until=o.lease_until) for o in found[:limit]]

    async def oldest_due(self) -> OverdueSchedule | None:
        """See InvariantChecks.oldest_due."""
        state = self._state
        due = [(one.next_fire_at, one.uid) for one in state.schedules.values() if one.next_fire_at is not None]
        if not due:
            return None
        at, uid = min(due)
        schedule = state.schedules[uid]
        led = state.shard_leases.get(schedule.shard, ("", 0))[1] > state.now()
        return OverdueSchedule(uid=uid, schedule_id=schedule.schedule_id, next_fire_at=at, led=led)

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """See InvariantChecks.counted."""
        return [self._count(uid) for uid in sorted(uid for uid in self._state.schedules if uid > after)[:limit]]

    def _count(self, uid: ScheduleUid) -> RunCountCheck:
        schedule, runs = self._state.schedules[uid], self._rules.open_runs(uid)
        return RunCountCheck(
            uid=uid,
            schedule_id=schedule.schedule_id,
            active_runs=schedule.active_runs,
            queued_runs=schedule.queued_runs,
            active=sum(not run.queued for run in runs),
            queued=sum(run.queued for run in runs),
        )

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See InvariantChecks.recount_runs."""
        wrong = [one for uid in sorted(uids) if uid in self._state.schedules and (one := self._count(uid)).mismatched]
        for one in wrong:
            self._rules.release_slot(self._state.schedules[one.uid], active=one.active, now=now)
        return [one.uid for one in wrong]


def _idle(schedule: Schedule) -> bool:
    timed = not isinstance(schedule.spec.trigger, OnDemand | OnEvent)
    return timed and schedule.next_fire_at is None and schedule.paused_at is None


def _position(run: Run) -> OpenRunPosition:
    return run.schedule_uid or "", run.planned_at
