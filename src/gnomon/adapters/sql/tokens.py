"""Issued and revoked tokens in their tables."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import asdict, replace
from sqlalchemy.dialects import postgresql, sqlite

from gnomon.adapters.sql import audit, schema
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import all_revoked_entry, issued_entry, revoked_entry
from gnomon.core.tokens import (
    EVERY_TENANT,
    KEPT_AFTER_END_MS,
    LARGEST_CLOCK_ERROR_MS,
    STAMP_MODULUS,
    RevokedTokens,
    TokenRecord,
    must_be_added,
)

_token, _cutoff = schema.token.c, schema.token_cutoff.c
_FIELDS = TokenRecord.__struct_fields__
_RECORD = [_token[name] for name in _FIELDS]
#: As literal text: a database uses a partial index only if the query repeats its condition word for word.
_IS_REVOKED = sa.text(schema.REVOKED)
_REVOKED = sa.select(_token.tenant, _token.token_id).where(_IS_REVOKED)
_CUTOFFS = sa.select(_cutoff.tenant, _cutoff.issued_before)
_STAMP = sa.select(
    sa.select(sa.func.count()).select_from(schema.token).where(_IS_REVOKED).scalar_subquery(),
    # Not the latest: a clock may be set back.
    sa.select(sa.func.coalesce(sa.func.sum(_token.revoked_at % STAMP_MODULUS), 0)).where(_IS_REVOKED).scalar_subquery(),
    sa.select(sa.func.count()).select_from(schema.token_cutoff).scalar_subquery(),
    sa.select(sa.func.coalesce(sa.func.sum(_cutoff.issued_before), 0)).scalar_subquery(),
)


def add(conn: sa.Connection, record: TokenRecord, now: int) -> bool:
    """See Tokens.add."""
    _forget_expired(conn, now)
    added = _insert(conn, record)
    if added:
        audit.write(conn, [issued_entry(record, now)])
    return added


def page(conn: sa.Connection, tenant: str, before: str | None, limit: int, now: int) -> Sequence[TokenRecord]:
    """See Tokens.page."""
    query = sa.select(*_RECORD).where(_token.expires_at > now)
    query = query.order_by(_token.token_id.desc(), _token.tenant.desc()).limit(limit)
    if tenant != EVERY_TENANT:
        query = query.where(_token.tenant == tenant)
    if before is not None:
        query = query.where(_token.token_id < before)
    return [_record_of(row) for row in conn.execute(query).all()]


def revoke(conn: sa.Connection, record: TokenRecord, now: int) -> bool:
    """See Tokens.revoke."""
    _forget_expired(conn, now)
    query = sa.select(*_RECORD).where(_token.token_id == record.token_id)
    if record.tenant != EVERY_TENANT:
        query = query.where(_token.tenant == record.tenant)
    if conn.dialect.name == "postgresql":
        query = query.with_for_update()
    known = [_record_of(row) for row in conn.execute(query).all()]
    if must_be_added(record, known):
        _insert(conn, record)
        known.append(record)
    fresh = [replace(one, revoked_at=now, revoked_by=record.revoked_by) for one in known if one.revoked_at is None]
    for one in fresh:
        of_one = (_token.tenant == one.tenant) & (_token.token_id == one.token_id)
        conn.execute(sa.update(schema.token).where(of_one).values(revoked_at=now, revoked_by=one.revoked_by))
    audit.write(conn, (revoked_entry(one, now) for one in fresh))
    return bool(fresh)


def revoke_all(conn: sa.Connection, tenant: str, issued_before: int, actor: str, now: int) -> None:
    """See Tokens.revoke_all."""
    insert = _insert_into(conn, schema.token_cutoff).values(tenant=tenant, issued_before=issued_before)
    later = insert.excluded.issued_before > _cutoff.issued_before
    wrong_clock = _cutoff.issued_before > now + LARGEST_CLOCK_ERROR_MS
    conn.execute(
        insert.on_conflict_do_update(
            index_elements=["tenant"], set_={"issued_before": insert.excluded.issued_before}, where=later | wrong_clock
        )
    )
    audit.write(conn, [all_revoked_entry(tenant, issued_before, actor, now)])


def count_revoked(conn: sa.Connection, tenant: str) -> int:
    """See Tokens.count_revoked."""
    query = sa.select(sa.func.count()).select_from(schema.token).where(_token.tenant == tenant, _IS_REVOKED)
    return conn.scalar(query) or 0


def stamp(conn: sa.Connection) -> tuple[int, ...]:
    """See Tokens.stamp."""
    return tuple(map(int, conn.execute(_STAMP).one()))


def revoked(conn: sa.Connection) -> RevokedTokens:
    """See Tokens.revoked."""
    ids = frozenset((tenant, token_id) for tenant, token_id in conn.execute(_REVOKED))
    return RevokedTokens(ids, {row.tenant: row.issued_before for row in conn.execute(_CUTOFFS)})


def _insert(conn: sa.Connection, record: TokenRecord) -> bool:
    """Insert the record unless it is there; return whether it was not."""
    insert = _insert_into(conn, schema.token).values(asdict(record)).on_conflict_do_nothing()
    return conn.execute(insert).rowcount == 1


def _insert_into(conn: sa.Connection, table: sa.Table) -> Any:  # noqa: ANN401 - each dialect has its own class
    return (postgresql if conn.dialect.name == "postgresql" else sqlite).insert(table)


def _forget_expired(conn: sa.Connection, now: int) -> None:
    conn.execute(sa.delete(schema.token).where(_token.expires_at <= now - KEPT_AFTER_END_MS))


def _record_of(row: Row) -> TokenRecord:
    return TokenRecord(**dict(zip(_FIELDS, row, strict=True)))
