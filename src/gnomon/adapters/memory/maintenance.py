"""What may go, in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gnomon.adapters.memory.external_events import MemoryExternalEvents
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
from gnomon.ports.schedules import Pause, Revision


class MemoryRetention(MemoryExternalEvents):
    """The ports Keeping and Turns."""

    _revisions: dict[ScheduleUid, list[Revision]]
    _pauses: dict[ScheduleUid, list[Pause]]

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        #: By name, who has the turn and until when.
        self._singleton_leases: dict[str, tuple[str, int]] = {}

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        owner, until = self._singleton_leases.get(name, (holder, 0))
        if owner != holder and until > self._now():
            return False
        self._singleton_leases[name] = holder, self._now() + ttl_ms
        return True

    async def release_singletons(self, holder: str) -> None:
        """See Turns.give_turns_up."""
        self._singleton_leases = {name: turn for name, turn in self._singleton_leases.items() if turn[0] != holder}

    # ---- finding -----------------------------------------------------------------------------

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """See Keeping.pasts."""
        return [self._past(uid) for uid in sorted(uid for uid in self._revisions if uid > after)[:limit]]

    def _past(self, uid: ScheduleUid) -> RetainedSchedule:
        last = self._revisions[uid][-1]
        schedule = self._schedules.get(uid, last.schedule)
        ticks = [at for owner, at in self._ticks if owner == uid]
        return RetainedSchedule(
            uid=uid,
            tenant=schedule.tenant,
            schedule_id=schedule.schedule_id,
            workflow_id=schedule.spec.workflow_id,
            mark_at=schedule.mark_at,
            catchup_window_ms=schedule.spec.catchup_window_ms,
            deleted_at=None if uid in self._schedules else last.from_at,
            oldest_run_at=min((run.planned_at for run in self._runs.values() if run.schedule_uid == uid), default=None),
            oldest_tick_at=min(ticks, default=None),
            newest_tick_at=max(ticks, default=None),
        )

    async def tenants(self) -> Sequence[str]:
        """See Keeping.tenants."""
        letters = {letter.tenant for letter in self._dead_letters.values()}
        return sorted(letters | {event.tenant for event in self._events.values()})

    async def expired_runs(
        self, past: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_runs."""
        uid = None if past is None else past.uid
        of_schedule = [run for run in self._runs.values() if run.schedule_uid == uid and run.planned_at < kept.runs_at]
        found = sorted(run for run in ((one.planned_at, one.run_id) for one in of_schedule) if run > after)
        names: list[str] = []
        records: list[ArchiveRecord] = []
        place: RetentionPosition | None = None
        for at, name in found:
            if len(records) >= limit:
                break
            place = at, name
            family = self._family(self._runs[RunId(name)], kept)
            names += [run.run_id for run in family]
            records += [record for run in family for record in self._run_records(run, family[0])]
        else:
            place = None
        return RetentionBatch(kind=RetentionKind.RUNS, names=tuple(names), records=records, after=place)

    def _family(self, run: Run, kept: RetentionHorizons) -> list[Run]:
        """The run and all that its steps waited for, if they may go."""
        if run.parent_task is not None and run.parent_task in self._tasks:
            return []
        family = [run]
        for one in family:
            family += [self._runs[name] for name in self._below(one)]
        under_way = {one.run_id for one in self._runs.values() if not one.over}
        letters = [
            self._dead_letters[name]
            for task in self._of_run(run.run_id)
            if (name := dead_letter_id(task.task_id)) in self._dead_letters
        ]
        over = run_expired(run, kept) and all(one.over for one in family)
        return family if over and not needed_by_dead_letter(run, letters, under_way) else []

    def _below(self, run: Run) -> list[RunId]:
        steps = {task.task_id: task for task in self._of_run(run.run_id)}
        attempts = [one for one in self._attempts.values() if one.task_id in steps and one.worker == ENGINE]
        names = [sub_run_id(replace(steps[one.task_id], fence=one.number)) for one in attempts]
        return [name for name in names if name in self._runs]

    def _run_records(self, run: Run, first: Run) -> list[ArchiveRecord]:
        at = first.completed_at or 0
        tasks = self._of_run(run.run_id)
        found = [ArchiveRecord("run", to_json_fields(run), at)]
        found += [ArchiveRecord("task", to_json_fields(task), at) for task in tasks]
        found += [
            ArchiveRecord("attempt", to_json_fields(o), at)
            for (t, _), o in self._attempts.items()
            if t in {x.task_id for x in tasks}
        ]
        found += [
            ArchiveRecord("task_log", {"task_id": task.task_id, "seq": number, **to_json_fields(line)}, at)
            for task in tasks
            for number, line in enumerate(self._logs.get(task.task_id, ()), 1)
        ]
        owners = {run.run_id, *(task.task_id for task in tasks)}
        found += [
            ArchiveRecord("payload", {"owner_id": owner, "kind": kind, "body": body.decode()}, at)
            for (owner, kind), body in self._payloads.items()
            if owner in owners
        ]
        return found

    async def expired_ticks(
        self, past: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_ticks."""
        planned = sorted(at for owner, at in self._ticks if owner == past.uid and after[0] < at < kept.keys_at)
        page = [self._ticks[past.uid, at] for at in planned[:limit]]
        going = select_expired_ticks(past, page, kept, {str(name) for name in self._runs})
        return RetentionBatch(
            kind=RetentionKind.TICKS,
            uid=past.uid,
            names=tuple(tick.decision.planned_at for tick in going),
            records=[ArchiveRecord("tick", _tick_row(tick), tick.decided_at) for tick in going],
            after=(planned[limit - 1], "") if len(planned) > limit else None,
        )

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_events."""
        events = [one for one in self._events.values() if one.tenant == tenant and one.emitted_at < before_at]
        places = sorted(place for one in events if (place := (one.emitted_at, one.event_id)) > after)
        records, names = [], []
        for _, name in places[:limit]:
            event = self._events[name]
            entries = [entry for (of, _), entry in self._entries.items() if of == name]
            if event_expired(entries):
                names.append(name)
                records += [ArchiveRecord("event", to_json_fields(event), event.emitted_at)]
                records += [ArchiveRecord("event_entry", to_json_fields(entry), event.emitted_at) for entry in entries]
        further = places[limit - 1] if len(places) > limit else None
        return RetentionBatch(kind=RetentionKind.EVENTS, names=tuple(names), records=records, after=further)

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_letters."""
        letters = sorted(name for name, one in self._dead_letters.items() if one.tenant == tenant and name > after[1])
        under_way = {str(run.run_id) for run in self._runs.values() if not run.over}
        page = [self._dead_letters[name] for name in letters[:limit]]
        going = [one for one in page if dead_letter_expired(one, before_at, under_way)]
        return RetentionBatch(
            kind=RetentionKind.DEAD_LETTERS,
            names=tuple(one.dead_letter_id for one in going),
            records=[ArchiveRecord("dead_letter", to_json_fields(one), one.created_at) for one in going],
            after=(0, letters[limit - 1]) if len(letters) > limit else None,
        )

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """See Keeping.aged_schedule."""
        kept = self._revisions[uid]
        at = kept[-1].from_at
        records = [ArchiveRecord("schedule", {"uid": uid, "schedule_id": kept[-1].schedule.schedule_id}, at)]
        records += [
            ArchiveRecord("schedule_revision", {"uid": uid, "revision": r.revision, "actor": r.actor}, at) for r in kept
        ]
        records += [
            ArchiveRecord("pause", {"uid": uid, **to_json_fields(one)}, at) for one in self._pauses.get(uid, ())
        ]
        return RetentionBatch(kind=RetentionKind.SCHEDULES, names=(uid,), records=records)

    # ---- removing ----------------------------------------------------------------------------

    async def remove(self, lot: RetentionBatch, *, limit: int) -> bool:
        """See Keeping.remove."""
        match lot.kind:
            case RetentionKind.RUNS:
                return self._remove_runs(lot.names, limit)
            case RetentionKind.TICKS:
                _drop(self._ticks, ((lot.uid, at) for at in lot.names))
            case RetentionKind.EVENTS:
                _drop(self._entries, [key for key in self._entries if key[0] in lot.names])
                _drop(self._events, lot.names)
            case RetentionKind.DEAD_LETTERS:
                _drop(self._dead_letters, lot.names)
            case RetentionKind.SCHEDULES:
                _drop(self._revisions, lot.names)
                _drop(self._pauses, lot.names)
        return True

    def _remove_runs(self, names: Sequence[Any], limit: int) -> bool:
        over = {name for name in names if name in self._runs and self._runs[name].over}
        tasks = [task.task_id for task in self._tasks.values() if task.run_id in over]
        going = set(tasks[:limit])
        _drop(self._attempts, [held for held in self._attempts if held[0] in going])
        _drop(self._logs, going)
        _drop(self._payloads, [key for key in self._payloads if key[0] in going])
        _drop(self._tasks, going)
        if len(tasks) > limit:
            return False
        _drop(self._payloads, [(name, "input") for name in over])
        _drop(self._runs, over)
        return True


def _drop(kept: MutableMapping[Any, Any], names: Iterable[Any]) -> None:
    for name in list(names):
        kept.pop(name, None)


def to_json_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the nouns
    """The fields of a value as JSON can hold them. Its bytes are JSON already."""
    return {name: said.decode() if isinstance(said, bytes) else said for name, said in asdict(value).items()}


def _tick_row(tick: Tick) -> dict[str, Any]:
    row = {name: said for name, said in asdict(tick).items() if name not in ("decision", "key")}
    return {**row, **asdict(tick.decision), "key": tick.key.hex()}


class MemoryStuckRuns(MemoryRetention):
    """The port Mending."""

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """See Mending.ailing."""
        runs = [run for run in self._runs.values() if not run.over and run.created_at < before_at]
        found = sorted((run for run in runs if _place(run) > after), key=_place)
        last = _place(found[limit - 1]) if len(found) > limit else None
        page = found if last is None else [run for run in found if _place(run) <= last]
        told = {run.run_id: self._diagnosed(run) for run in page}
        return StuckRunsPage({name: one.ailment for name, one in told.items() if one is not None}, last)

    def _diagnosed(self, run: Run) -> StuckRun | None:
        steps = [task for task in self._of_run(run.run_id) if task.parent is None]
        over = {name for name, one in self._runs.items() if one.over}
        return diagnose_run(run, self._graph_of(run), steps, over)

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See Mending.mend."""
        return [name for name in sorted(run_ids) if name in self._runs and self._mend(self._runs[name], now)]

    def _mend(self, run: Run, now: int) -> bool:
        told = self._diagnosed(run)
        if told is None:
            return False
        graph = self._graph_of(run)
        if graph is None:
            self._end_run(run, RunStatus.FAILED, "its workflow is gone", now)
        elif told.ailment is StuckReason.STEP_NOT_ENDED:
            for task in told.steps:
                self._end_step(task, graph, now)
        else:
            self._advance(run, graph, now)
        return True

    def _end_step(self, task: Task, graph: Workflow, now: int) -> None:
        if waits_for_run(task, graph):
            self._end_awaiting_step(self._runs[sub_run_id(task)], now)
        else:
            self._end_items(task, self._items(task.task_id), graph, now)


def _place(run: Run) -> OpenRunPosition:
    return run.schedule_uid or "", run.planned_at


class MemoryInvariantChecks(MemoryStuckRuns):
    """The port Vitals."""

    #: Shard to who holds it, and until when.
    _leases: dict[int, tuple[str, int]]

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Vitals.idle_schedules."""
        found = sorted(uid for uid, one in self._schedules.items() if uid > after and _idle(one))
        return [self._schedules[uid] for uid in found[:limit]]

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See Vitals.give_next_fire."""
        current = self._schedules.get(schedule.uid)
        if current is None or not unchanged(schedule, current) or not _idle(current):
            return False
        self._schedules[schedule.uid] = replace(current, next_fire_at=next_fire_at)
        return True

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """See Vitals.orphans."""
        before = self._now() - grace_ms
        found = [one for _, one in sorted(self._attempts.items()) if one.ended_at is None and one.lease_until < before]
        return [OrphanedAttempt(task_id=o.task_id, worker=o.worker, lease_until=o.lease_until) for o in found[:limit]]

    async def oldest_due(self) -> OverdueSchedule | None:
        """See Vitals.oldest_due."""
        due = [(one.next_fire_at, one.uid) for one in self._schedules.values() if one.next_fire_at is not None]
        if not due:
            return None
        at, uid = min(due)
        schedule = self._schedules[uid]
        led = self._leases.get(schedule.shard, ("", 0))[1] > self._now()
        return OverdueSchedule(uid=uid, schedule_id=schedule.schedule_id, next_fire_at=at, led=led)

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """See Vitals.counted."""
        return [self._count(uid) for uid in sorted(uid for uid in self._schedules if uid > after)[:limit]]

    def _count(self, uid: ScheduleUid) -> RunCountCheck:
        schedule, runs = self._schedules[uid], self._under_way(uid)
        return RunCountCheck(
            uid=uid,
            schedule_id=schedule.schedule_id,
            active_runs=schedule.active_runs,
            queued_runs=schedule.queued_runs,
            active=sum(not run.queued for run in runs),
            queued=sum(run.queued for run in runs),
        )

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See Vitals.recount."""
        wrong = [one for uid in sorted(uids) if uid in self._schedules and (one := self._count(uid)).mismatched]
        for one in wrong:
            self._release_slot(self._schedules[one.uid], active=one.active, now=now)
        return [one.uid for one in wrong]


def _idle(schedule: Schedule) -> bool:
    timed = not isinstance(schedule.spec.trigger, OnDemand | OnEvent)
    return timed and schedule.next_fire_at is None and schedule.paused_at is None
