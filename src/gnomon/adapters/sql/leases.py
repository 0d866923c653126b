"""Leases of shards with their terms, and of singletons. The store's clock decides when a lease has expired."""

from collections.abc import Collection

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.ports.coordination import HintTopic
from gnomon.ports.ledger import ShardRenewal, Terms

_shard, _node = schema.shard.c, schema.node.c
_HELD = (
    sa.select(_shard.shard, _shard.term)
    .where(_shard.holder == sa.bindparam("by"))
    .order_by(_shard.shard)
    .with_for_update()
)
_TAKEABLE = sa.select(_shard.shard).order_by(_shard.shard).limit(sa.bindparam("limit"))
_OVER = _shard.lease_until <= sa.bindparam("now")
_THESE = sa.update(schema.shard).where(_shard.shard.in_(sa.bindparam("shards", expanding=True)))
_EXTEND = _THESE.values(lease_until=sa.bindparam("until"))
_TAKE = _THESE.values(term=_shard.term + 1, holder=sa.bindparam("by"), lease_until=sa.bindparam("until")).returning(
    _shard.shard, _shard.term
)
_RELEASE_SHARDS = _THESE.where(_shard.holder == sa.bindparam("by")).values(holder=None, lease_until=0)
_LEAVE = (
    sa.update(schema.shard).where(_shard.holder == sa.bindparam("by")).values(holder=None, lease_until=0),
    sa.delete(schema.node).where(_node.holder == sa.bindparam("by")),
)
_UNSEEN = sa.select(_node.holder).where(_node.seen_until <= sa.bindparam("now")).with_for_update(skip_locked=True)
_FORGET = sa.delete(schema.node).where(_node.holder.in_(_UNSEEN))
_FORGET_OTHERS = sa.delete(schema.node).where(_node.holder != sa.bindparam("by"))
_OTHERS_END = sa.select(sa.func.min(_shard.lease_until)).where(
    _shard.holder != sa.bindparam("by"), _shard.lease_until > sa.bindparam("now")
)
_ALIVE = sa.select(sa.func.count()).select_from(schema.node).where(_node.seen_until > sa.bindparam("now"))


def renew_shards(conn: sa.Connection, holder: str, ttl_ms: int, now: int) -> ShardRenewal:
    """See Shards.renew."""
    _record_node(conn, holder, now + ttl_ms)
    # Nodes that renew at this moment are skipped, not waited for: two could wait for each other.
    conn.execute(_FORGET, {"now": now})
    held = dict(conn.execute(_HELD, {"by": holder}).all())
    if held:
        conn.execute(_EXTEND, {"shards": list(held), "until": now + ttl_ms})
    alive = conn.scalar(_ALIVE, {"now": now}) or 0
    return ShardRenewal(held, alive, now, conn.scalar(_OTHERS_END, {"by": holder, "now": now}))


def _record_node(conn: sa.Connection, holder: str, until: int) -> None:
    if conn.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    seen = insert(schema.node).values(holder=holder, seen_until=until)
    conn.execute(seen.on_conflict_do_update(index_elements=["holder"], set_={"seen_until": until}))


def claim(conn: sa.Connection, holder: str, ttl_ms: int, limit: int, now: int, *, by_force: bool) -> Terms:
    """See Shards.claim."""
    # A shard that another node is about to take is skipped; by force, the claim waits for it.
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
    conn.execute(_RELEASE_SHARDS, {"by": holder, "shards": sorted(shards)})
    hint_after_commit(conn, HintTopic.SHARDS)


def leave(conn: sa.Connection, holder: str) -> None:
    """See Shards.leave."""
    for statement in _LEAVE:
        conn.execute(statement, {"by": holder})
    hint_after_commit(conn, HintTopic.SHARDS)


_ACQUIRE_SINGLETON = bulk.statement(
    "INSERT INTO turn (name, holder, until_at, token) VALUES (?, ?, ?, 1) ON CONFLICT (name)"
    " DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at, token = turn.token + 1"
    " WHERE turn.holder = excluded.holder OR turn.until_at <= ? RETURNING token"
)
#: The row stays, so that the next token is higher.
_RELEASE_SINGLETONS = bulk.statement("UPDATE turn SET until_at = 0 WHERE holder = ?")


def acquire_singleton(conn: sa.Connection, name: str, holder: str, until_at: int, now: int) -> bool:
    """See SingletonLeases.acquire_singleton."""
    return bool(bulk.fetch_rows(conn, _ACQUIRE_SINGLETON, name, holder, until_at, now))


def release_singletons(conn: sa.Connection, holder: str) -> None:
    """See SingletonLeases.release_singletons."""
    bulk.execute_statement(conn, _RELEASE_SINGLETONS, holder)
