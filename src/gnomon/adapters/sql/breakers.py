"""Breakers in their table, each read and written in the transaction that uses it."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity
from gnomon.adapters.sql.placement import lock_tenant
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import breaker_reset_entry
from gnomon.core.breakers import CLOSED_BREAKER, Breaker, BreakerLimits, BreakerState
from gnomon.core.model import TaskId
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
    ask_permission,
    change_between,
    closed_by_hand,
    record_outcome,
)
from gnomon.core.runs.admission import Admission, breaker_uses, held_by_breaker
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.task_breakers import (
    TaskPermissions,
    ask_for_tasks,
    attempt_of_request,
    gone_probes,
    record_ends,
    without_probes,
)
from gnomon.ports.coordination import HintTopic

_COLUMNS = tuple(column.name for column in schema.breaker.columns)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM breaker"  # noqa: S608 - our own names, here and below
_OF_NAMES = bulk.statement(f"{_SELECT} WHERE tenant = ? AND name IN KEYS", keys=schema.breaker.c.name)
_PAGE = bulk.statement(f"{_SELECT} WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?")
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])
_SAVE = bulk.insert_statement(schema.breaker, _COLUMNS, f"ON CONFLICT (tenant, name) DO UPDATE SET {_CHANGED}")
_STATES = bulk.statement("SELECT task_id, state, fence FROM task WHERE task_id IN KEYS")
_WAKE = bulk.statement(
    f"UPDATE task SET available_at = ? WHERE {schema.WAITS} AND tenant = ? AND wait_reason = 'breaker'"  # noqa: S608
)
_PROBES = msgspec.json.Decoder(dict[str, int])
_DEFINITIONS = msgspec.json.Decoder(dict[str, BreakerLimits])


def find(conn: sa.Connection, key: BreakerKey) -> NamedBreaker | None:
    """See Breakers.find."""
    return load(conn, [key]).get(key)


def page(conn: sa.Connection, tenant: str, after: str, limit: int) -> Sequence[NamedBreaker]:
    """See Breakers.page."""
    return [_breaker_of(row) for row in bulk.fetch_rows(conn, _PAGE, tenant, after, limit)]


def request(conn: sa.Connection, use: BreakerUse, now: int) -> NamedPermission:
    """See Breakers.request."""
    lock(conn, [use.key])
    before = find(conn, use.key)
    permission = ask_permission(before, use, now=now)
    save(conn, [permission.named], before=[before], now=now)
    return permission


def record(conn: sa.Connection, use: BreakerUse, outcome: RequestOutcome, now: int) -> NamedBreaker:
    """See Breakers.record."""
    lock(conn, [use.key])
    before = find(conn, use.key)
    after = record_outcome(before, use, outcome, now=now)
    save(conn, [after], before=[before], now=now)
    return after


def reset(conn: sa.Connection, key: BreakerKey, actor: str, now: int) -> NamedBreaker | None:
    """See Breakers.reset."""
    lock(conn, [key])
    before = find(conn, key)
    if before is None or before.breaker == CLOSED_BREAKER:
        return before
    after = closed_by_hand(before, now=now)
    save(conn, [after], before=[before], now=now)
    audit.write(conn, [breaker_reset_entry(before, after, actor, now)])
    return after


def lock(conn: sa.Connection, keys: Iterable[BreakerKey]) -> None:
    """Keep other transactions from changing these breakers."""
    for key in sorted(set(keys)):
        # No tenant has such a name.
        lock_tenant(conn, f"breaker {key.tenant} {key.name}")


def load(conn: sa.Connection, keys: Iterable[BreakerKey]) -> dict[BreakerKey, NamedBreaker]:
    """These breakers, as far as they have been used."""
    names: dict[str, list[str]] = {}
    for key in sorted(set(keys)):
        names.setdefault(key.tenant, []).append(key.name)
    rows = (row for tenant, wanted in names.items() for row in bulk.fetch_rows(conn, _OF_NAMES, tenant, wanted))
    return {one.key: one for one in map(_breaker_of, rows)}


def save(
    conn: sa.Connection, after: Iterable[NamedBreaker], *, before: Iterable[NamedBreaker | None], now: int
) -> None:
    """Write the breakers that are no longer as they were before. The tasks that wait for a closed one ask at once."""
    known: Mapping[BreakerKey, NamedBreaker] = {one.key: one for one in before if one is not None}
    new = [one for one in after if one != known.get(one.key)]
    bulk.execute_many(conn, _SAVE, [_breaker_row(one) for one in new])
    found = (change_between(known.get(one.key), one, now=now) for one in new)
    changes = [one for one in found if one is not None]
    if not changes:
        return
    notify_activity(conn, lambda observer: observer.breakers_changed(changes, now))
    for tenant in sorted({one.named.tenant for one in changes if one.state is BreakerState.CLOSED}):
        bulk.execute_statement(conn, _WAKE, now, tenant)
        hint_after_commit(conn, HintTopic.READY)


# ---- tasks ---------------------------------------------------------------------------------------


def lock_breakers(conn: sa.Connection, admissions: Sequence[Admission], now: int) -> None:
    """Keep other transactions from changing the breakers that these admissions will change.

    It is called before any task is locked, so that no two transactions wait for each other.
    """
    uses = breaker_uses(admissions)
    if uses and conn.dialect.name == "postgresql":
        keys = {use.key for _, use in uses}
        known = load(conn, keys)
        if _must_lock(ask_for_tasks(uses, known, now=now), known, now):
            lock(conn, keys)


def lock_recorded_breakers(conn: sa.Connection, ended: Sequence[TaskCompletion]) -> None:
    """Keep other transactions from changing the breakers that these ends will change."""
    uses = [(one.breaker, one) for one in ended if one.breaker is not None]
    if uses and conn.dialect.name == "postgresql":
        keys = {use.key for use, _ in uses}
        known = load(conn, keys)
        if record_ends(uses, known) != known:
            lock(conn, keys)


def _must_lock(asked: TaskPermissions, known: Mapping[BreakerKey, NamedBreaker], now: int) -> bool:
    return asked.breakers != known or any(one.state(now) is BreakerState.HALF_OPEN for one in known.values())


def within_breakers(conn: sa.Connection, admitted: Mapping[TaskId, Admission], now: int) -> dict[TaskId, Admission]:
    """The admissions; those that their breakers do not let start are held."""
    uses = breaker_uses(admitted.values())
    if not uses:
        return dict(admitted)
    keys = {use.key for _, use in uses}
    known = load(conn, keys)
    asked = ask_for_tasks(uses, known, now=now)
    if _must_lock(asked, known, now):
        lock(conn, keys)
        known = load(conn, keys)
        asked = ask_for_tasks(uses, _without_gone_probes(conn, known), now=now)
        save(conn, asked.breakers.values(), before=known.values(), now=now)
    held = {task_id: held_by_breaker(admitted[task_id], *when) for task_id, when in asked.waiting.items()}
    return {**admitted, **held}


def record_attempts(conn: sa.Connection, ends: Collection[TaskCompletion]) -> None:
    """Record the ends of attempts with their breakers."""
    uses = [(one.breaker, one) for one in ends if one.breaker is not None]
    if not uses:
        return
    keys = {use.key for use, _ in uses}
    known = load(conn, keys)
    if record_ends(uses, known) != known:
        lock(conn, keys)
        known = load(conn, keys)
        now = max(one.ended_at for _, one in uses)
        save(conn, record_ends(uses, known).values(), before=known.values(), now=now)


def _without_gone_probes(
    conn: sa.Connection, known: Mapping[BreakerKey, NamedBreaker]
) -> dict[BreakerKey, NamedBreaker]:
    """The breakers without the probes of tasks that have moved on without an end of their attempt."""
    probes = [name for one in known.values() for name in one.breaker.probes]
    names: list[str] = sorted({attempt_of_request(name)[0] for name in probes})
    found = {row[0]: (TaskState(row[1]), row[2]) for row in bulk.fetch_rows(conn, _STATES, names)} if names else {}
    return {key: without_probes(one, gone_probes(one, found)) for key, one in known.items()}


def _breaker_of(row: Row) -> NamedBreaker:
    tenant, name, failures, open_until, successes, probes, definitions, opened_by, changed_at = row
    return NamedBreaker(
        tenant=tenant,
        name=name,
        breaker=Breaker(failures=failures, open_until=open_until, successes=successes, probes=_PROBES.decode(probes)),
        definitions=_DEFINITIONS.decode(definitions),
        opened_by=opened_by,
        changed_at=changed_at,
    )


def _breaker_row(one: NamedBreaker) -> tuple[object, ...]:
    made = one.breaker
    return (
        one.tenant,
        one.name,
        made.failures,
        made.open_until,
        made.successes,
        msgspec.json.encode(made.probes).decode(),
        msgspec.json.encode(one.definitions).decode(),
        one.opened_by,
        one.changed_at,
    )
