"""Who can execute what."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, house_tables
from gnomon.ports.workers import WorkerCard

_worker = house_tables.worker.c
_SEE = bulk.inserting(
    house_tables.worker,
    tuple(column.name for column in house_tables.worker.columns),
    "ON CONFLICT (worker) DO UPDATE SET pool = excluded.pool, functions = excluded.functions, slots = excluded.slots,"
    " started_at = excluded.started_at, seen_until = excluded.seen_until",
)
_UNSEEN = sa.select(_worker.worker).where(_worker.seen_until <= sa.bindparam("now")).with_for_update(skip_locked=True)
_FORGET = sa.delete(house_tables.worker).where(_worker.worker.in_(_UNSEEN))
_ALIVE = sa.select(house_tables.worker).where(_worker.seen_until > sa.bindparam("now")).order_by(_worker.worker)
_DISMISS = sa.delete(house_tables.worker).where(_worker.worker == sa.bindparam("name"))
_FUNCTIONS = msgspec.json.Decoder(tuple[str, ...])


def enlist(conn: sa.Connection, card: WorkerCard, ttl_ms: int, now: int) -> None:
    """See Workers.enlist."""
    functions = msgspec.json.encode(card.functions).decode()
    bulk.many(conn, _SEE, [(card.worker, card.pool, functions, card.slots, card.started_at, now + ttl_ms)])
    # Every start of a process has a new name: without this they would pile up for ever.
    conn.execute(_FORGET, {"now": now})


def workers(conn: sa.Connection, now: int) -> Sequence[WorkerCard]:
    """See Workers.workers."""
    return [
        WorkerCard(
            worker=row.worker,
            functions=_FUNCTIONS.decode(row.functions),
            slots=row.slots,
            pool=row.pool,
            started_at=row.started_at,
        )
        for row in conn.execute(_ALIVE, {"now": now})
    ]


def dismiss(conn: sa.Connection, worker: str) -> None:
    """See Workers.dismiss."""
    conn.execute(_DISMISS, {"name": worker})
