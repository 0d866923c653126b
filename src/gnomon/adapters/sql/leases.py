"""Terms and leases, judged by the store's clock."""

from collections.abc import Collection

import sqlalchemy as sa

from gnomon.adapters.sql import house_tables
from gnomon.adapters.sql.hinting import hint
from gnomon.ports.coordination import Topic
from gnomon.ports.ledger import Attendance, Terms

_shard, _node = house_tables.shard.c, house_tables.node.c
_HELD = (
    sa.select(_shard.shard, _shard.term)
    .where(_shard.holder == sa.bindparam("by"))
    .order_by(_shard.shard)
    .with_for_update()
)
_TAKEABLE = sa.select(_shard.shard).order_by(_shard.shard).limit(sa.bindparam("limit"))
_OVER = _shard.lease_until <= sa.bindparam("now")
_THESE = sa.update(house_tables.shard).where(_shard.shard.in_(sa.bindparam("shards", expanding=True)))
_EXTEND = _THESE.values(lease_until=sa.bindparam("until"))
_TAKE = _THESE.values(term=_shard.term + 1, holder=sa.bindparam("by"), lease_until=sa.bindparam("until")).returning(
    _shard.shard, _shard.term
)
_RELEASE = _THESE.where(_shard.holder == sa.bindparam("by")).values(holder=None, lease_until=0)
_LEAVE = (
    sa.update(house_tables.shard).where(_shard.holder == sa.bindparam("by")).values(holder=None, lease_until=0),
    sa.delete(house_tables.node).where(_node.holder == sa.bindparam("by")),
)
_UNSEEN = sa.select(_node.holder).where(_node.seen_until <= sa.bindparam("now")).with_for_update(skip_locked=True)
_FORGET = sa.delete(house_tables.node).where(_node.holder.in_(_UNSEEN))
_FORGET_OTHERS = sa.delete(house_tables.node).where(_node.holder != sa.bindparam("by"))
_OTHERS_END = sa.select(sa.func.min(_shard.lease_until)).where(
    _shard.holder != sa.bindparam("by"), _shard.lease_until > sa.bindparam("now")
)
_ALIVE = sa.select(sa.func.count()).select_from(house_tables.node).where(_node.seen_until > sa.bindparam("now"))


def attend(conn: sa.Connection, holder: str, ttl_ms: int, now: int) -> Attendance:
    """See Shards.attend."""
    _see(conn, holder, now + ttl_ms)
    # Whoever is just showing up is skipped, not waited for: two could wait for each other.
    conn.execute(_FORGET, {"now": now})
    held = dict(conn.execute(_HELD, {"by": holder}).all())
    if held:
        conn.execute(_EXTEND, {"shards": list(held), "until": now + ttl_ms})
    alive = conn.scalar(_ALIVE, {"now": now}) or 0
    return Attendance(held, alive, now, conn.scalar(_OTHERS_END, {"by": holder, "now": now}))


def _see(conn: sa.Connection, holder: str, until: int) -> None:
    if conn.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    seen = insert(house_tables.node).values(holder=holder, seen_until=until)
    conn.execute(seen.on_conflict_do_update(index_elements=["holder"], set_={"seen_until": until}))


def claim(conn: sa.Connection, holder: str, ttl_ms: int, limit: int, now: int, *, by_force: bool) -> Terms:
    """See Shards.claim."""
    # A shard that another is about to take is left to them; by force, it is waited for.
    if by_force:
        conn.execute(_FORGET_OTHERS, {"by": holder})
    query = _TAKEABLE if by_force else _TAKEABLE.where(_OVER)
    locked = query.with_for_update(skip_locked=not by_force)
    free = conn.scalars(locked, {"limit": limit} if by_force else {"limit": limit, "now": now}).all()
    if not free:
        return {}
    taken = conn.execute(_TAKE, {"shards": free, "by": holder, "until": now + ttl_ms})
    return dict(taken.all())


def release(conn: sa.Connection, holder: str, shards: Collection[int]) -> None:
    """See Shards.release."""
    conn.execute(_RELEASE, {"by": holder, "shards": sorted(shards)})
    hint(conn, Topic.SHARDS)


def leave(conn: sa.Connection, holder: str) -> None:
    """See Shards.leave."""
    for statement in _LEAVE:
        conn.execute(statement, {"by": holder})
    hint(conn, Topic.SHARDS)
