"""Maintenance in memory: singleton leases, retention, invariants. No method awaits, so each one is a transaction."""

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.announcements.model import Announcement
from gnomon.core.approvals.model import Approval
from gnomon.core.instants import FOREVER
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
    RunPosition,
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
    VersionsOfRuns,
    WorkflowVersion,
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
        leases = self._state.singleton_leases
        for name in [name for name, (owner, _) in leases.items() if owner == holder]:
            del leases[name]


class MemoryRetention:
    """Implements RetainedHistory."""

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
        oldest_kept = None if schedule is None else self._oldest_kept(schedule, kept)
        until = kept.runs_at if oldest_kept is None else FOREVER
        of_schedule = [run for run in self._state.runs.values() if run.schedule_uid == uid and run.planned_at < until]
        found = sorted(run for run in ((one.planned_at, one.run_id) for one in of_schedule) if run > after)
        names: list[str] = []
        records: list[ArchiveRecord] = []
        position: RetentionPosition | None = None
        for at, name in found:
            if len(records) >= limit:
                break
            position = at, name
            family = self._family(self._state.runs[RunId(name)], kept, oldest_kept)
            names += [run.run_id for run in family]
            records += [record for run in family for record in self._run_records(run, family[0])]
        else:
            position = None
        return RetentionBatch(kind=RetentionKind.RUNS, names=tuple(names), records=records, after=position)

    def _oldest_kept(self, past: RetainedSchedule, kept: RetentionHorizons) -> RunPosition | None:
        """The oldest of the runs whose number is kept; None if there are no more than those, or all are kept."""
        if kept.most_runs is None:
            return None
        runs = (one for one in self._state.runs.values() if one.completed_at is not None)
        of_job = [one for one in runs if (one.tenant, one.schedule_id) == (past.tenant, past.schedule_id)]
        newest = sorted(((one.created_at, one.run_id) for one in of_job), reverse=True)
        return newest[kept.most_runs - 1] if len(newest) >= kept.most_runs else None

    def _family(self, run: Run, kept: RetentionHorizons, oldest_kept: RunPosition | None) -> list[Run]:
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
        over = run_expired(run, kept, oldest_kept) and all(one.over for one in family)
        if any(not announcements.over for one in family for announcements in self._rules.announcements_of(one.run_id)):
            return []
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
        found += [
            ArchiveRecord("ruling", {**asdict(one), "digest": one.digest.hex()}, at)
            for task in tasks
            for one in state.rulings.get(task.task_id, ())
        ]
        found += [
            ArchiveRecord("output_ruling", {**to_json_fields(one), "body": None}, at)
            for (name, _), one in state.output_rulings.items()
            if name in {task.task_id for task in tasks}
        ]
        asked = [one for task in tasks for one in self._rules.approvals_of(task.task_id)]
        found += [ArchiveRecord("approval", _approval_row(one), at) for one in asked]
        found += [
            ArchiveRecord("approval_vote", {"approval_id": one.approval_id, **asdict(vote), "number": number}, at)
            for one in asked
            for number, vote in enumerate(one.votes, 1)
        ]
        found += [
            ArchiveRecord("announcement", to_json_fields(one), at) for one in self._rules.announcements_of(run.run_id)
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
        decided = {tick.decision.planned_at: tick.decided_at for tick in going}
        return RetentionBatch(
            kind=RetentionKind.TICKS,
            uid=schedule.uid,
            names=tuple(tick.decision.planned_at for tick in going),
            records=[
                *(ArchiveRecord("tick", _tick_row(tick), tick.decided_at) for tick in going),
                *(
                    ArchiveRecord("announcement", to_json_fields(one), decided[one.planned_at])
                    for one in self._announcements_of_ticks(schedule.uid)
                    if one.planned_at in decided
                ),
            ],
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

    async def expired_backfills(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """See ExpiredDefinitions.expired_backfills."""
        state = self._state
        needed = {tick.backfill_id for tick in state.backfill_ticks.values() if tick.run_id in state.runs}
        ended = {one.backfill_id: one.ended_at for one in state.backfills.values() if one.ended_at is not None}
        names = sorted(name for name, at in ended.items() if at < before_at and name > after[1] and name not in needed)
        page = names[:limit]
        records = [ArchiveRecord("backfill", to_json_fields(state.backfills[name]), ended[name]) for name in page]
        records += [
            ArchiveRecord("backfill_tick", to_json_fields(tick), ended[tick.backfill_id])
            for tick in state.backfill_ticks.values()
            if tick.backfill_id in page
        ]
        further = (0, page[-1]) if len(names) > limit else None
        return RetentionBatch(kind=RetentionKind.BACKFILLS, names=tuple(page), records=records, after=further)

    async def superseded_workflows(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """See ExpiredDefinitions.superseded_workflows."""
        state = self._state
        created, needed = state.workflow_created_at, self._needed_workflows()
        versions = {(one.tenant, one.workflow_id, one.version): one for of in state.workflows.values() for one in of}
        superseded = sorted(
            name
            for name in versions
            if name not in needed
            and any(other[:2] == name[:2] and other[2] > name[2] and created[other] < before_at for other in versions)
        )
        place = max(after[0], 0)
        page = superseded[place : place + limit]
        records = [
            ArchiveRecord("workflow", {"tenant": name[0], "workflow_id": name[1], "version": name[2]}, created[name])
            for name in page
        ]
        further = (place + limit, "") if len(superseded) > place + limit else None
        return RetentionBatch(kind=RetentionKind.WORKFLOWS, names=tuple(page), records=records, after=further)

    def _needed_workflows(self) -> set[WorkflowVersion]:
        """The versions that a schedule or an open backfill needs."""
        state = self._state
        schedules = [state.revisions[uid][-1].schedule for uid in state.revisions]
        needed = {(one.tenant, one.spec.workflow_id, one.spec.workflow_version) for one in schedules}
        open_ones = {one.schedule_uid for one in state.backfills.values() if one.ended_at is None}
        backfilled = {(one.tenant, one.spec.workflow_id) for one in schedules if one.uid in open_ones}
        return needed | {name for name in state.workflow_created_at if name[:2] in backfilled}

    async def versions_of_runs(self, *, after: RunId, limit: int) -> VersionsOfRuns:
        """See ExpiredDefinitions.versions_of_runs."""
        page = sorted(name for name in self._state.runs if name > after)[:limit]
        runs = [self._state.runs[name] for name in page]
        versions = frozenset((run.tenant, run.workflow_id, run.workflow_version) for run in runs)
        return VersionsOfRuns(versions, page[-1] if len(page) == limit else None)

    # ---- removing ----------------------------------------------------------------------------

    async def remove(self, batch: RetentionBatch, *, limit: int) -> bool:
        """See RetentionStore.remove."""
        state = self._state
        match batch.kind:
            case RetentionKind.RUNS:
                return self._remove_runs(batch.names, limit)
            case RetentionKind.TICKS:
                self._remove_ticks(batch)
                announcements = self._announcements_of_ticks(batch.uid)
                self._remove_announcements(
                    [one.announcement_id for one in announcements if one.planned_at in batch.names]
                )
            case RetentionKind.EVENTS:
                _drop(state.effects, [key for key in state.effects if key[0] in batch.names])
                _drop(state.events, batch.names)
            case RetentionKind.DEAD_LETTERS:
                _drop(state.dead_letters, batch.names)
            case RetentionKind.BACKFILLS:
                _drop(state.backfill_ticks, [key for key in state.backfill_ticks if key[0] in batch.names])
                _drop(state.backfills, batch.names)
            case RetentionKind.WORKFLOWS:
                self._remove_workflows(set(batch.names) - self._needed_workflows())
            case RetentionKind.SCHEDULES:
                _drop(state.failure_streaks, batch.names)
                _drop(state.revisions, batch.names)
                _drop(state.pauses, batch.names)
        return True

    def _remove_ticks(self, batch: RetentionBatch) -> None:
        state, removed = self._state, self._state.ticks_removed_until
        for at in batch.names:
            gone = None if batch.uid is None else state.ticks.pop((batch.uid, at), None)
            if gone is not None and gone.run_id is not None:
                removed[gone.uid] = max(gone.decision.planned_at, removed.get(gone.uid, 0))

    def _announcements_of_ticks(self, uid: ScheduleUid | None) -> list[Announcement]:
        """The announcements of ticks without a run."""
        found = self._state.announcements.values()
        return [one for one in found if one.run_id is None and one.schedule_uid == uid]

    def _remove_workflows(self, names: Collection[WorkflowVersion]) -> None:
        for of, versions in self._state.workflows.items():
            versions[:] = [one for one in versions if (*of, one.version) not in names]
        _drop(self._state.workflow_created_at, names)
        _drop(self._state.workflow_authors, names)

    def _remove_announcements(self, names: Collection[str]) -> None:
        _drop(self._state.announcements, names)
        _drop(self._state.announcement_claims, names)

    def _remove_runs(self, names: Sequence[Any], limit: int) -> bool:
        state = self._state
        over = {name for name in names if name in state.runs and state.runs[name].over}
        tasks = [task.task_id for task in state.tasks.values() if task.run_id in over]
        going = set(tasks[:limit])
        _drop(state.attempts, [held for held in state.attempts if held[0] in going])
        _drop(state.logs, going)
        _drop(state.rulings, going)
        _drop(state.output_rulings, [held for held in state.output_rulings if held[0] in going])
        _drop(state.held_outputs, [held for held in state.held_outputs if held[0] in going])
        _drop(state.output_checks, going)
        _drop(
            state.approvals,
            [name for name, one in state.approvals.items() if one.request and one.request.task_id in going],
        )
        _drop(state.permissions, going)
        _drop(state.payloads, [key for key in state.payloads if key[0] in going])
        _drop(state.tasks, going)
        if len(tasks) > limit:
            return False
        self._remove_announcements([name for name, one in state.announcements.items() if one.run_id in over])
        _drop(state.payloads, [(name, "input") for name in over])
        _drop(state.sub_run_tasks, over)
        _drop(state.runs, over)
        return True


def _drop(kept: MutableMapping[Any, Any], names: Iterable[Any]) -> None:
    for name in list(names):
        kept.pop(name, None)


def to_json_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any record
    """The fields of a value as JSON can hold them. Its bytes are JSON already."""
    return {name: field.decode() if isinstance(field, bytes) else field for name, field in asdict(value).items()}


def _approval_row(one: Approval) -> dict[str, Any]:
    row = {name: field for name, field in asdict(one).items() if name not in ("request", "votes")}
    asked = {} if one.request is None else asdict(one.request)
    return {name: field.hex() if isinstance(field, bytes) else field for name, field in {**row, **asked}.items()}


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
        if self._rules.awaits_announcement(run):
            return None
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
