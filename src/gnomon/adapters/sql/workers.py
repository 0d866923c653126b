"""The registry of workers: their functions, labels and load, in one table that every node reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.core.model import ENGINE
from gnomon.core.runs.routing import lacks_common_function
from gnomon.core.worker_ids import MOST_STARTS, enrolled_pool, identity_of
from gnomon.ports.coordination import HintTopic
from gnomon.ports.tasks import HostLoad, WorkerInfo

_worker = schema.worker.c
_COLUMNS = tuple(column.name for column in schema.worker.columns)
_UPSERT = bulk.insert_statement(
    schema.worker,
    _COLUMNS,
    "ON CONFLICT (worker) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:]),
)
_UNSEEN = sa.select(_worker.worker).where(_worker.seen_until <= sa.bindparam("now")).with_for_update(skip_locked=True)
_FORGET = sa.delete(schema.worker).where(_worker.worker.in_(_UNSEEN))
#: The starts of an enrolled worker beyond those that may be registered: its credentials admit any number of them.
_SURPLUS = (
    sa.select(_worker.worker)
    .where(sa.func.substr(_worker.worker, 1, sa.bindparam("length")) == sa.bindparam("prefix"))
    .order_by(_worker.seen_at.desc(), _worker.worker.desc())
    .offset(MOST_STARTS)
    .with_for_update(skip_locked=True)
)
_FORGET_SURPLUS = sa.delete(schema.worker).where(_worker.worker.in_(_SURPLUS))
_ALIVE = sa.select(schema.worker).where(_worker.seen_until > sa.bindparam("now")).order_by(_worker.worker)
_DEREGISTER = sa.delete(schema.worker).where(_worker.worker == sa.bindparam("name"))
#: The columns that decide which tasks a worker may get.
_KNOWN = sa.select(_worker.pool, _worker.functions, _worker.labels, _worker.capabilities, _worker.draining).where(
    _worker.worker == sa.bindparam("name")
)
#: How many different lists of functions are compared: the workers of a pool usually have the same.
_MOST_COMPARED = 50
#: The functions of the others in a pool, also of those that have been silent for too long: tasks were placed for them.
_OTHERS = (
    sa.select(_worker.functions)
    .where(_worker.pool == sa.bindparam("pool"), _worker.worker != sa.bindparam("name"), ~_worker.draining)
    .distinct()
    .limit(_MOST_COMPARED)
)
_IN_HAND = bulk.statement(
    "SELECT attempt.worker, count(*) FROM attempt JOIN task ON task.task_id = attempt.task_id"  # noqa: S608 - our own names
    f" WHERE {schema.OPEN} AND attempt.worker <> '{ENGINE}' AND task.tenant = ? GROUP BY attempt.worker"
)
_NAMES = msgspec.json.Decoder(tuple[str, ...])
_LABELS = msgspec.json.Decoder(dict[str, str])


def register_worker(conn: sa.Connection, info: WorkerInfo, ttl_ms: int, now: int) -> bool:
    """See Workers.register. Return whether the worker lacks a function that all others of its pool have."""
    row = {
        "worker": info.worker,
        "pool": info.pool,
        "functions": _json(info.functions),
        "slots": info.slots,
        "started_at": info.started_at,
        "seen_until": now + ttl_ms,
        "labels": _json(info.labels),
        "capabilities": _json(info.capabilities),
        "in_hand": info.in_hand,
        "cpu": info.load.cpu,
        "gpu": info.load.gpu,
        "draining": info.draining,
        "seen_at": now,
    }
    before = conn.execute(_KNOWN, {"name": info.worker}).mappings().one_or_none()
    lacking = False
    if before is None or any(row[name] != value for name, value in before.items()):
        hint_after_commit(conn, HintTopic.WORKERS)
        others = conn.execute(_OTHERS, {"pool": info.pool, "name": info.worker}).scalars()
        lacking = lacks_common_function(info.functions, [_NAMES.decode(one) for one in others])
    bulk.execute_many(conn, _UPSERT, [tuple(row[name] for name in _COLUMNS)])
    # Every process has a new worker id, so the rows of ended ones must be removed.
    conn.execute(_FORGET, {"now": now})
    if before is None and enrolled_pool(info.worker) is not None:
        prefix = f"{identity_of(info.worker)}."
        conn.execute(_FORGET_SURPLUS, {"prefix": prefix, "length": len(prefix)})
    return lacking


def workers(conn: sa.Connection, now: int) -> Sequence[WorkerInfo]:
    """See Workers.alive."""
    return [_worker_info(row) for row in conn.execute(_ALIVE, {"now": now})]


def deregister_worker(conn: sa.Connection, worker: str) -> None:
    """See Workers.deregister."""
    conn.execute(_DEREGISTER, {"name": worker})


def in_hand_of(conn: sa.Connection, tenant: str) -> Mapping[str, int]:
    """See Workers.in_hand_of."""
    return {row[0]: row[1] for row in bulk.fetch_rows(conn, _IN_HAND, tenant)}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _worker_info(row: Any) -> WorkerInfo:  # noqa: ANN401 - its columns are those of the table
    return WorkerInfo(
        worker=row.worker,
        functions=_NAMES.decode(row.functions),
        slots=row.slots,
        pool=row.pool,
        started_at=row.started_at,
        capabilities=_NAMES.decode(row.capabilities),
        labels=_LABELS.decode(row.labels),
        in_hand=row.in_hand,
        load=HostLoad(cpu=row.cpu, gpu=row.gpu),
        draining=bool(row.draining),
        seen_at=row.seen_at,
    )
