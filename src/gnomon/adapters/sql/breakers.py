"""Breakers in their table, each read and written in the transaction that uses it."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.placement import lock_tenant
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import breaker_reset_entry
from gnomon.core.breakers import Breaker, BreakerLimits
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
    ask_permission,
    closed_by_hand,
    record_outcome,
)

_COLUMNS = tuple(column.name for column in schema.breaker.columns)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM breaker"  # noqa: S608 - our own names, here and below
_OF_NAMES = bulk.statement(f"{_SELECT} WHERE tenant = ? AND name IN KEYS", keys=schema.breaker.c.name)
_PAGE = bulk.statement(f"{_SELECT} WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?")
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])
_SAVE = bulk.insert_statement(schema.breaker, _COLUMNS, f"ON CONFLICT (tenant, name) DO UPDATE SET {_CHANGED}")
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
    save(conn, [permission.named], before=[before])
    return permission


def record(conn: sa.Connection, use: BreakerUse, outcome: RequestOutcome, now: int) -> NamedBreaker:
    """See Breakers.record."""
    lock(conn, [use.key])
    before = find(conn, use.key)
    after = record_outcome(before, use, outcome, now=now)
    save(conn, [after], before=[before])
    return after


def reset(conn: sa.Connection, key: BreakerKey, actor: str, now: int) -> NamedBreaker | None:
    """See Breakers.reset."""
    lock(conn, [key])
    before = find(conn, key)
    if before is None:
        return None
    after = closed_by_hand(before, now=now)
    save(conn, [after], before=[before])
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


def save(conn: sa.Connection, after: Iterable[NamedBreaker], *, before: Iterable[NamedBreaker | None]) -> None:
    """Write the breakers that are no longer as they were before."""
    known: Mapping[BreakerKey, NamedBreaker] = {one.key: one for one in before if one is not None}
    bulk.execute_many(conn, _SAVE, [_breaker_row(one) for one in after if one != known.get(one.key)])


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
