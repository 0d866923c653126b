"""What may go, in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gnomon.adapters.memory.event_log import MemoryEventLog
from gnomon.core.model import ENGINE, Run, RunId, ScheduleUid, Tick
from gnomon.core.retention import (
    Horizons,
    Past,
    event_may_go,
    letter_may_go,
    rested_on,
    run_may_go,
    ticks_that_may_go,
)
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.ports.maintenance import Kind, Lot, Place, Record
from gnomon.ports.schedules import Pause, Revision


class MemoryKeeping(MemoryEventLog):
    """The ports Keeping and Turns."""

    _revisions: dict[ScheduleUid, list[Revision]]
    _pauses: dict[ScheduleUid, list[Pause]]

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        #: By name, who has the turn and until when.
        self._turns: dict[str, tuple[str, int]] = {}

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        owner, until = self._turns.get(name, (holder, 0))
        if owner != holder and until > self._now():
            return False
        self._turns[name] = holder, self._now() + ttl_ms
        return True

    async def give_turns_up(self, holder: str) -> None:
        """See Turns.give_turns_up."""
        self._turns = {name: turn for name, turn in self._turns.items() if turn[0] != holder}

    # ---- finding -----------------------------------------------------------------------------

    async def pasts(self, *, after: str, limit: int) -> Sequence[Past]:
        """See Keeping.pasts."""
        return [self._past(uid) for uid in sorted(uid for uid in self._revisions if uid > after)[:limit]]

    def _past(self, uid: ScheduleUid) -> Past:
        last = self._revisions[uid][-1]
        schedule = self._schedules.get(uid, last.schedule)
        ticks = [at for owner, at in self._ticks if owner == uid]
        return Past(
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

    async def aged_runs(self, past: Past | None, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_runs."""
        uid = None if past is None else past.uid
        of_schedule = [run for run in self._runs.values() if run.schedule_uid == uid and run.planned_at < kept.runs_at]
        found = sorted(run for run in ((one.planned_at, one.run_id) for one in of_schedule) if run > after)
        names: list[str] = []
        records: list[Record] = []
        place: Place | None = None
        for at, name in found:
            if len(records) >= limit:
                break
            place = at, name
            family = self._family(self._runs[RunId(name)], kept)
            names += [run.run_id for run in family]
            records += [record for run in family for record in self._run_records(run, family[0])]
        else:
            place = None
        return Lot(kind=Kind.RUNS, names=tuple(names), records=records, after=place)

    def _family(self, run: Run, kept: Horizons) -> list[Run]:
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
        over = run_may_go(run, kept) and all(one.over for one in family)
        return family if over and not rested_on(run, letters, under_way) else []

    def _below(self, run: Run) -> list[RunId]:
        steps = {task.task_id: task for task in self._of_run(run.run_id)}
        attempts = [one for one in self._attempts.values() if one.task_id in steps and one.worker == ENGINE]
        names = [sub_run_id(replace(steps[one.task_id], fence=one.number)) for one in attempts]
        return [name for name in names if name in self._runs]

    def _run_records(self, run: Run, first: Run) -> list[Record]:
        at = first.completed_at or 0
        tasks = self._of_run(run.run_id)
        found = [Record("run", plain(run), at)]
        found += [Record("task", plain(task), at) for task in tasks]
        found += [
            Record("attempt", plain(o), at) for (t, _), o in self._attempts.items() if t in {x.task_id for x in tasks}
        ]
        found += [
            Record("task_log", {"task_id": task.task_id, "seq": number, **plain(line)}, at)
            for task in tasks
            for number, line in enumerate(self._logs.get(task.task_id, ()), 1)
        ]
        owners = {run.run_id, *(task.task_id for task in tasks)}
        found += [
            Record("payload", {"owner_id": owner, "kind": kind, "body": body.decode()}, at)
            for (owner, kind), body in self._payloads.items()
            if owner in owners
        ]
        return found

    async def aged_ticks(self, past: Past, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_ticks."""
        planned = sorted(at for owner, at in self._ticks if owner == past.uid and after[0] < at < kept.keys_at)
        page = [self._ticks[past.uid, at] for at in planned[:limit]]
        going = ticks_that_may_go(past, page, kept, {str(name) for name in self._runs})
        return Lot(
            kind=Kind.TICKS,
            uid=past.uid,
            names=tuple(tick.decision.planned_at for tick in going),
            records=[Record("tick", _tick_row(tick), tick.decided_at) for tick in going],
            after=(planned[limit - 1], "") if len(planned) > limit else None,
        )

    async def aged_events(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_events."""
        events = [one for one in self._events.values() if one.tenant == tenant and one.emitted_at < before_at]
        places = sorted(place for one in events if (place := (one.emitted_at, one.event_id)) > after)
        records, names = [], []
        for _, name in places[:limit]:
            event = self._events[name]
            entries = [entry for (of, _), entry in self._entries.items() if of == name]
            if event_may_go(entries):
                names.append(name)
                records += [Record("event", plain(event), event.emitted_at)]
                records += [Record("event_entry", plain(entry), event.emitted_at) for entry in entries]
        further = places[limit - 1] if len(places) > limit else None
        return Lot(kind=Kind.EVENTS, names=tuple(names), records=records, after=further)

    async def aged_letters(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_letters."""
        letters = sorted(name for name, one in self._dead_letters.items() if one.tenant == tenant and name > after[1])
        under_way = {str(run.run_id) for run in self._runs.values() if not run.over}
        page = [self._dead_letters[name] for name in letters[:limit]]
        going = [one for one in page if letter_may_go(one, before_at, under_way)]
        return Lot(
            kind=Kind.DEAD_LETTERS,
            names=tuple(one.dead_letter_id for one in going),
            records=[Record("dead_letter", plain(one), one.created_at) for one in going],
            after=(0, letters[limit - 1]) if len(letters) > limit else None,
        )

    async def aged_schedule(self, uid: ScheduleUid) -> Lot:
        """See Keeping.aged_schedule."""
        kept = self._revisions[uid]
        at = kept[-1].from_at
        records = [Record("schedule", {"uid": uid, "schedule_id": kept[-1].schedule.schedule_id}, at)]
        records += [
            Record("schedule_revision", {"uid": uid, "revision": r.revision, "actor": r.actor}, at) for r in kept
        ]
        records += [Record("pause", {"uid": uid, **plain(one)}, at) for one in self._pauses.get(uid, ())]
        return Lot(kind=Kind.SCHEDULES, names=(uid,), records=records)

    # ---- removing ----------------------------------------------------------------------------

    async def remove(self, lot: Lot, *, limit: int) -> bool:
        """See Keeping.remove."""
        match lot.kind:
            case Kind.RUNS:
                return self._remove_runs(lot.names, limit)
            case Kind.TICKS:
                _drop(self._ticks, ((lot.uid, at) for at in lot.names))
            case Kind.EVENTS:
                _drop(self._entries, [key for key in self._entries if key[0] in lot.names])
                _drop(self._events, lot.names)
            case Kind.DEAD_LETTERS:
                _drop(self._dead_letters, lot.names)
            case Kind.SCHEDULES:
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


def _drop(kept: dict[Any, Any], names: Iterable[Any]) -> None:
    for name in list(names):
        kept.pop(name, None)


def plain(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the nouns
    """The fields of a value as JSON can hold them. Its bytes are JSON already."""
    return {name: said.decode() if isinstance(said, bytes) else said for name, said in asdict(value).items()}


def _tick_row(tick: Tick) -> dict[str, Any]:
    row = {name: said for name, said in asdict(tick).items() if name not in ("decision", "key")}
    return {**row, **asdict(tick.decision), "key": tick.key.hex()}
