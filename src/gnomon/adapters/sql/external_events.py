"""External events: the port EventLog.

A transaction that decides about an event first locks the counters of the schedules that listen to it, like every
transaction that starts runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec.structs import astuple, replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import ConcurrencyCounters
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.payloads import sealed_event, unsealed_event
from gnomon.adapters.sql.rows import SCHEDULE, Row, column_list, load_workflow
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.model import MINUTE_MS, Schedule, ScheduleUid
from gnomon.core.runs.external_events import (
    EventBatch,
    EventEffect,
    EventEffectKind,
    ExternalEvent,
    add_to_batch,
    effect_of_launch,
    event_data,
    event_skip_reason,
    is_batch_measured,
    launch_for_events,
)
from gnomon.core.triggers import OnEvent

_event = schema.event.c
_EVENT = tuple(schema.event.c[name] for name in ExternalEvent.__struct_fields__)
_ENTRY = tuple(schema.event_entry.c[name] for name in EventEffect.__struct_fields__)
_KEEP = bulk.insert_statement(
    schema.event, tuple(column.name for column in _EVENT), "ON CONFLICT (event_id) DO NOTHING"
)
_LISTENERS = bulk.statement(f"SELECT uid FROM schedule WHERE tenant = ? AND expression = ? AND {schema.LISTENS}")  # noqa: S608 - our own names, here and below
_SCHEDULES = bulk.statement(f"SELECT {column_list(SCHEDULE)} FROM schedule WHERE uid IN KEYS AND deleted_at IS NULL")  # noqa: S608
_ENTRIES = bulk.statement(f"SELECT {column_list(_ENTRY)} FROM event_entry WHERE event_id IN KEYS")  # noqa: S608
_ADD_ENTRY = bulk.insert_statement(schema.event_entry, tuple(column.name for column in _ENTRY))
_CHANGE_ENTRY = bulk.update_statement(
    schema.event_entry, ("kind", "reason", "run_id", "decided_at"), by=("event_id", "schedule_uid")
)
_GATHERINGS = bulk.statement("SELECT schedule_uid, first_at, due_at, count FROM gathering WHERE schedule_uid IN KEYS")
_GATHER = bulk.insert_statement(
    schema.gathering,
    ("schedule_uid", "first_at", "due_at", "count"),
    "ON CONFLICT (schedule_uid) DO UPDATE SET due_at = excluded.due_at, count = excluded.count",
)
_NEXT = bulk.statement("SELECT due_at FROM gathering ORDER BY due_at, schedule_uid LIMIT 1")
_DUE = bulk.statement("SELECT schedule_uid FROM gathering WHERE due_at <= ? ORDER BY due_at, schedule_uid LIMIT ?")
_CLOSE = bulk.statement("DELETE FROM gathering WHERE schedule_uid IN KEYS AND due_at <= ? RETURNING schedule_uid")
_EXISTING = bulk.statement("SELECT uid FROM schedule WHERE uid IN KEYS AND deleted_at IS NULL")
_POSTPONE = bulk.update_statement(schema.gathering, ("due_at",), by=("schedule_uid",))
_GATHERED = bulk.statement(
    f"SELECT {column_list(_ENTRY)}, {column_list(_EVENT)} FROM event_entry"  # noqa: S608
    " JOIN event ON event.event_id = event_entry.event_id"
    f" WHERE event_entry.schedule_uid IN KEYS AND event_entry.{schema.GATHERED}"
)
_BATCHED_SIZES = bulk.statement(
    "SELECT event_entry.schedule_uid, sum(length(event.body)) FROM event_entry"  # noqa: S608
    " JOIN event ON event.event_id = event_entry.event_id"
    f" WHERE event_entry.schedule_uid IN KEYS AND event_entry.{schema.GATHERED} GROUP BY event_entry.schedule_uid"
)
_FIND = bulk.statement(f"SELECT {column_list(_EVENT)} FROM event WHERE event_id = ?")  # noqa: S608
_LIST = (
    sa.select(*_EVENT)
    .where(_event.tenant == sa.bindparam("owner"))
    .order_by(_event.emitted_at.desc(), _event.event_id.desc())
    .limit(sa.bindparam("limit"))
)
#: The delay of a batch whose schedule this program cannot read: a newer node may be able to.
_POSTPONE_MS = MINUTE_MS


# ---- emitting ------------------------------------------------------------------------------------


def emit(conn: sa.Connection, event: ExternalEvent, now: int, unreadable: UnreadableSchedules) -> Sequence[EventEffect]:
    """See EventLog.emit."""
    if bulk.execute_returning_keys(conn, _KEEP, [astuple(sealed_event(conn, event))], "event_id"):
        uids = [uid for (uid,) in bulk.fetch_rows(conn, _LISTENERS, event.tenant, event.name)]
        # The schedules are read after they were locked: a change until then counts.
        listening = [one for one in _lock_schedules(conn, uids, unreadable) if _listens(one, event)]
        body = msgspec.json.decode(event.body) if listening else None
        decided = {one.uid: _effect_before_launch(one, event, body, now) for one in listening}
        waiting = [one for one in listening if decided[one.uid].kind is EventEffectKind.GATHERED]
        full = _add_to_batches(conn, waiting, event, now)
        firing = [(one, [event]) for one in listening if not decided[one.uid].reason]
        for uid, fields in _launch_runs(conn, firing, now).items():
            decided[uid] = replace(decided[uid], **fields, decided_at=now)
        bulk.execute_many(conn, _ADD_ENTRY, [_entry_row(decided[one.uid]) for one in listening])
        _close(conn, full, {one.uid: one for one in waiting}, now)
    return effects(conn, [event.event_id])


def _lock_schedules(conn: sa.Connection, uids: Sequence[str], unreadable: UnreadableSchedules) -> Sequence[Schedule]:
    """The schedules that exist and can be read, with their counters locked."""
    if not uids:
        return ()
    ConcurrencyCounters(conn, map(ScheduleUid, uids))
    found = unreadable.readable(bulk.fetch_rows(conn, _SCHEDULES, list(uids)))
    return sorted(found, key=lambda one: one.schedule_id)


def _listens(schedule: Schedule, event: ExternalEvent) -> bool:
    trigger = schedule.spec.trigger
    return isinstance(trigger, OnEvent) and trigger.event == event.name


def _effect_before_launch(schedule: Schedule, event: ExternalEvent, body: object, now: int) -> EventEffect:
    """The effect of the event on the schedule; its reason is empty if the launch of a run decides it."""
    trigger = _trigger(schedule)
    entry = EventEffect(
        event_id=event.event_id,
        schedule_uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        kind=EventEffectKind.SKIPPED,
        reason=event_skip_reason(schedule, trigger, event, body) or "",
        decided_at=now,
    )
    if not entry.reason and trigger.is_batched:
        return replace(entry, kind=EventEffectKind.GATHERED, reason="waits_for_others")
    return entry


def _trigger(schedule: Schedule) -> OnEvent:
    trigger = schedule.spec.trigger
    assert isinstance(trigger, OnEvent)  # noqa: S101 - the schedule listens to events
    return trigger


def _add_to_batches(
    conn: sa.Connection, schedules: Sequence[Schedule], event: ExternalEvent, now: int
) -> Sequence[ScheduleUid]:
    """Add the event to the batch of each schedule; return the schedules whose batch is full."""
    if not schedules:
        return ()
    names: list[str] = [one.uid for one in schedules]
    found = (
        EventBatch(schedule_uid=row[0], first_at=row[1], due_at=row[2], count=row[3])
        for row in bulk.fetch_rows(conn, _GATHERINGS, names)
    )
    so_far = {one.schedule_uid: one for one in found}
    measured: list[str] = [one.uid for one in schedules if is_batch_measured(so_far.get(one.uid), event)]
    found_sizes = bulk.fetch_rows(conn, _BATCHED_SIZES, measured) if measured else ()
    sizes = {uid: int(size) + len(event.body) for uid, size in found_sizes}
    after = [
        add_to_batch(_trigger(one), so_far.get(one.uid), one.uid, now=now, size=sizes.get(one.uid, 0))
        for one in schedules
    ]
    bulk.execute_many(conn, _GATHER, [astuple(one) for one in after])
    return [one.schedule_uid for one in after if one.due_at <= now]


def _launch_runs(
    conn: sa.Connection, firing: Sequence[tuple[Schedule, Sequence[ExternalEvent]]], now: int
) -> Mapping[ScheduleUid, Mapping[str, Any]]:
    """Launch a run of each schedule for its events; return the fields of the effect that each launch decides."""
    # Once for each event, and not for each of the jobs that it starts.
    data = {one.event_id: event_data(one) for _, events in firing for one in events}
    requests = [
        launch_for_events(schedule, [data[one.event_id] for one in events], _input(conn, schedule), now=now)
        for schedule, events in firing
    ]
    outcomes = launch(conn, requests, now) if requests else ()
    effects: dict[ScheduleUid, Mapping[str, Any]] = {}
    for (schedule, _), request, outcome in zip(firing, requests, outcomes, strict=True):
        kind, reason = effect_of_launch(outcome)
        run_id = None if kind is EventEffectKind.SKIPPED else request.run.run_id
        effects[schedule.uid] = {"kind": kind, "reason": reason, "run_id": run_id}
    return effects


def _input(conn: sa.Connection, schedule: Schedule) -> Mapping[str, Any]:
    spec = schedule.spec
    found = load_workflow(conn, schedule.tenant, spec.workflow_id, spec.workflow_version)
    return found.input if found is not None else {}


# ---- batches -------------------------------------------------------------------------------------


def next_batch_at(conn: sa.Connection) -> int | None:
    """See EventLog.next_batch_at."""
    found = bulk.fetch_rows(conn, _NEXT)
    return found[0][0] if found else None


def close_batches(conn: sa.Connection, now: int, limit: int, unreadable: UnreadableSchedules) -> Sequence[ScheduleUid]:
    """See EventLog.close_batches."""
    due = [uid for (uid,) in bulk.fetch_rows(conn, _DUE, now, limit)]
    if not due:
        return []
    schedules = {one.uid: one for one in _lock_schedules(conn, due, unreadable)}
    existing = {uid for (uid,) in bulk.fetch_rows(conn, _EXISTING, due)}
    unread = [uid for uid in due if uid in existing and uid not in schedules]
    bulk.execute_many(conn, _POSTPONE, [(now + _POSTPONE_MS, uid) for uid in unread])
    return _close(conn, due, schedules, now)


def _close(
    conn: sa.Connection, due: Sequence[ScheduleUid], schedules: Mapping[ScheduleUid, Schedule], now: int
) -> Sequence[ScheduleUid]:
    """Close the batches that are due: start a run for each, or record why not; return their schedules."""
    if not due:
        return ()
    # Before the lock another transaction may have closed some, or another event may have postponed them.
    closed = {uid for (uid,) in bulk.fetch_rows(conn, _CLOSE, list(due), now)}
    waiting = _batched_events(conn, sorted(closed))
    existing = [(schedules[uid], [event for _, event in of]) for uid, of in waiting.items() if uid in schedules]
    fields: dict[ScheduleUid, Mapping[str, Any]] = dict.fromkeys(waiting, _skipped("gone"))
    fields |= {one.uid: _skipped("paused") for one, _ in existing if one.paused_at is not None}
    fields |= _launch_runs(conn, [(one, events) for one, events in existing if one.paused_at is None], now)
    after = [replace(entry, **fields[uid]) for uid, of in waiting.items() for entry, _ in of]
    changed = [(one.kind.value, one.reason, one.run_id, now, one.event_id, one.schedule_uid) for one in after]
    bulk.execute_many(conn, _CHANGE_ENTRY, changed)
    return [uid for uid in due if uid in closed]


def _skipped(reason: str) -> Mapping[str, Any]:
    return {"kind": EventEffectKind.SKIPPED, "reason": reason}


def _batched_events(
    conn: sa.Connection, uids: list[str]
) -> Mapping[ScheduleUid, list[tuple[EventEffect, ExternalEvent]]]:
    """The events in the batch of each schedule, oldest first."""
    found: dict[ScheduleUid, list[tuple[EventEffect, ExternalEvent]]] = {}
    for row in bulk.fetch_rows(conn, _GATHERED, uids) if uids else ():
        entry = _entry_of(row[: len(_ENTRY)])
        found.setdefault(entry.schedule_uid, []).append((entry, _event_of(conn, row[len(_ENTRY) :])))
    return {uid: sorted(of, key=lambda one: (one[1].emitted_at, one[1].event_id)) for uid, of in found.items()}


# ---- reading -------------------------------------------------------------------------------------


def page(
    conn: sa.Connection, tenant: str, name: str | None, after: tuple[int, str] | None, limit: int
) -> Sequence[ExternalEvent]:
    """See EventLog.page."""
    query = _LIST
    if name is not None:
        query = query.where(_event.name == name)
    if after is not None:
        query = query.where(sa.tuple_(_event.emitted_at, _event.event_id) < sa.tuple_(*after))
    return [_event_of(conn, row) for row in conn.execute(query, {"owner": tenant, "limit": limit})]


def find(conn: sa.Connection, event_id: str) -> ExternalEvent | None:
    """See EventLog.find."""
    found = bulk.fetch_rows(conn, _FIND, event_id)
    return _event_of(conn, found[0]) if found else None


def effects(conn: sa.Connection, event_ids: Sequence[str]) -> Sequence[EventEffect]:
    """See EventLog.effects."""
    found = map(_entry_of, bulk.fetch_rows(conn, _ENTRIES, list(event_ids)))
    return sorted(found, key=lambda entry: (entry.event_id, entry.schedule_id))


def _event_of(conn: sa.Connection, row: Row) -> ExternalEvent:
    return unsealed_event(conn, ExternalEvent(**dict(zip(ExternalEvent.__struct_fields__, row, strict=True))))


def _entry_of(row: Row) -> EventEffect:
    fields = dict(zip(EventEffect.__struct_fields__, row, strict=True))
    return EventEffect(**fields | {"kind": EventEffectKind(fields["kind"])})


def _entry_row(entry: EventEffect) -> tuple[Any, ...]:
    return tuple(str(value) if isinstance(value, EventEffectKind) else value for value in astuple(entry))
