"""The shadow of the policy in its tables: there is one at a time, and the last one stays until another starts."""

from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import asdict, replace

from gnomon.adapters.sql import audit, policies, schema
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import shadow_entry
from gnomon.core.policy.shadow import (
    MOST_DIFFERENCES,
    DifferenceKey,
    PolicyShadow,
    ShadowCounts,
    ShadowDifference,
    counted_shadow,
    merged_differences,
    new_shadow,
)
from gnomon.core.policy.version import PolicyVersion
from gnomon.errors import NotFound

_shadow, _difference = schema.policy_shadow.c, schema.shadow_difference.c
_FIELDS, _DIFFERENCE_FIELDS = PolicyShadow.__struct_fields__, ShadowDifference.__struct_fields__
_NEWEST = sa.select(*(_shadow[name] for name in _FIELDS)).order_by(_shadow.number.desc()).limit(1)
_RUNNING = sa.select(_shadow.number).where(_shadow.ended_at.is_(None))
_DIFFERENCES = sa.select(*(_difference[name] for name in _DIFFERENCE_FIELDS))
_KEY = DifferenceKey._fields
#: Two servers that start or end a shadow at the same time take turns.
_LOCK = sa.text("LOCK TABLE policy_shadow IN SHARE ROW EXCLUSIVE MODE")


def newest(conn: sa.Connection) -> PolicyShadow | None:
    """See PolicyShadows.newest."""
    return _shadow_of(conn.execute(_NEWEST).first())


def running_number(conn: sa.Connection) -> int:
    """See PolicyShadows.running_number."""
    return conn.execute(_RUNNING).scalar() or 0


def start(conn: sa.Connection, body: str, author: str, now: int) -> PolicyShadow:
    """See PolicyShadows.start."""
    _lock(conn)
    last = newest(conn)
    made = new_shadow(last, body, author=author, now=now)
    if made is not last:
        conn.execute(sa.delete(schema.shadow_difference))
        conn.execute(sa.delete(schema.policy_shadow))
        conn.execute(sa.insert(schema.policy_shadow).values(asdict(made)))
        audit.write(conn, [shadow_entry(last, made, actor=author, now=now)])
    return made


def stop(conn: sa.Connection, actor: str, now: int) -> PolicyShadow:
    """See PolicyShadows.stop."""
    _lock(conn)
    last = newest(conn)
    if last is None or last.ended_at is not None:
        raise NotFound("shadow", "of the policy")
    ended = replace(last, ended_at=now)
    conn.execute(sa.update(schema.policy_shadow).values(ended_at=now))
    audit.write(conn, [shadow_entry(last, ended, actor=actor, now=now)])
    return ended


def promote(conn: sa.Connection, actor: str, now: int, expected: int | None) -> PolicyVersion:
    """See PolicyShadows.promote."""
    ended = stop(conn, actor, now)
    return policies.add(conn, ended.body, actor, now, expected)


def count(conn: sa.Connection, number: int, counts: ShadowCounts) -> bool:
    """See PolicyShadows.count."""
    _lock(conn)
    shadow = newest(conn)
    if shadow is None or shadow.number != number or shadow.ended_at is not None:
        return False
    known = {one.key: one for one in map(_difference_of, conn.execute(_DIFFERENCES))} if counts.differences else {}
    changed, new, left_out = merged_differences(known, counts, free=MOST_DIFFERENCES - len(known))
    counted = counted_shadow(shadow, counts, left_out=left_out)
    conn.execute(
        sa.update(schema.policy_shadow).values(
            same=counted.same,
            different=counted.different,
            not_judged=counted.not_judged,
            left_out=counted.left_out,
        )
    )
    for one in changed:
        where = [_difference[name] == value for name, value in zip(_KEY, one.key, strict=True)]
        conn.execute(sa.update(schema.shadow_difference).where(*where).values(asdict(one)))
    if new:
        conn.execute(sa.insert(schema.shadow_difference), [asdict(one) for one in new])
    return True


def differences(conn: sa.Connection, limit: int) -> Sequence[ShadowDifference]:
    """See PolicyShadows.differences."""
    in_order = _DIFFERENCES.order_by(_difference.count.desc(), *(_difference[name] for name in _KEY)).limit(limit)
    return [_difference_of(row) for row in conn.execute(in_order)]


def _lock(conn: sa.Connection) -> None:
    if conn.dialect.name == "postgresql":
        conn.execute(_LOCK)


def _shadow_of(row: Row | None) -> PolicyShadow | None:
    return None if row is None else PolicyShadow(**dict(zip(_FIELDS, row, strict=True)))


def _difference_of(row: Row) -> ShadowDifference:
    return ShadowDifference(**dict(zip(_DIFFERENCE_FIELDS, row, strict=True)))
