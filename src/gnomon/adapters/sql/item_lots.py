"""Lots of items: how a step with many items gets them on SQLite.

A file has one writer. A transaction that adds twenty thousand items takes 150 ms, and every tick that is due meanwhile
waits for it. So the transaction that starts such a step adds only its first items, and stores the inputs of the others:
a payload of the step for each lot. Whenever as many items as a lot has are over, the transaction that ends the last of
them adds the next lot. The step counts all of its items from the beginning, and so does not end before the last lot.

There is no service that adds lots, and nothing to resume after a crash: the payloads say what is left, each lot is
added in the transaction that removes its payload, and as long as there is a lot, more items are open than the step may
run at once. A run that is cancelled gets no more lots.

PostgreSQL writes over several connections, and gets all items at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.adapters.sql.payloads import PayloadRow, sealed_rows, unsealed
from gnomon.adapters.sql.rows import NEW_ITEM, item_row
from gnomon.adapters.sql.transitions import insert_tasks
from gnomon.core.model import Run, Task
from gnomon.core.runs.launch import item_tasks
from gnomon.ports.coordination import HintTopic

#: How many items a lot has.
LOT_ITEMS = 500
#: How many items of a step that gets lots may run at once.
_MOST_PARALLEL = 1_000
_KIND = "items."
#: The text after all kinds that begin so.
_AFTER_KINDS = "items/"
_NEXT = bulk.statement(
    "SELECT kind, body FROM payload WHERE owner_id = ? AND kind > ? AND kind < ? ORDER BY kind LIMIT ?"
)
_REMOVE = bulk.statement("DELETE FROM payload WHERE owner_id = ? AND kind = ?")
_INPUTS = msgspec.json.Decoder(list[msgspec.Raw])


class AddedItems(NamedTuple):
    """Items that a transaction adds, with their inputs."""

    tasks: Sequence[Task]
    #: None of them, or that of each.
    inputs: Sequence[bytes]
    #: The kind of the payloads that hold the inputs.
    kind: str = "input"


def first_items(conn: sa.Connection, step: Task, inputs: Sequence[bytes], limit: int | None, now: int) -> AddedItems:
    """The items that a step gets when it starts; the inputs of the others are stored. `limit` may run at once."""
    count = len(inputs) if conn.dialect.name != "sqlite" else _at_first(limit)
    if count < len(inputs):
        limit = None if limit is None else min(limit, _MOST_PARALLEL)
        _store(conn, step, inputs, count)
    given = inputs[:count]
    return AddedItems(item_tasks(step, range(len(given)), limit=limit, now=now), given)


def _at_first(limit: int | None) -> int:
    """So many that, whenever the next lot is due, as many as may run at once are still open."""
    return LOT_ITEMS + max(LOT_ITEMS, min(limit or 0, _MOST_PARALLEL))


def _store(conn: sa.Connection, step: Task, inputs: Sequence[bytes], first: int) -> None:
    rows: list[PayloadRow] = []
    for number in range(first, len(inputs), LOT_ITEMS):
        body = b"[" + b",".join(inputs[number : number + LOT_ITEMS]) + b"]"
        rows.append((step.task_id, f"{_KIND}{number:06}", body))
    bulk.insert_rows(conn, schema.payload, sealed_rows(conn, rows))


def write_items(conn: sa.Connection, added: Sequence[AddedItems]) -> None:
    """Add these items."""
    insert_tasks(conn, [task for one in added for task in one.tasks], item_row, NEW_ITEM)
    inputs = [
        (task.task_id, one.kind, body)
        for one in added
        if one.inputs
        for task, body in zip(one.tasks, one.inputs, strict=True)
    ]
    bulk.insert_rows(conn, schema.payload, sealed_rows(conn, inputs))


def add_due_lots(conn: sa.Connection, step: Task, run: Run, *, ended: int, limited: bool, now: int) -> None:
    """Add the lots that are due to a step now that so many of its items more are over.

    `limited`: only so many of its items may run at once, so that each end releases another one.
    """
    due = (step.open_items + ended) // LOT_ITEMS - step.open_items // LOT_ITEMS
    if not due or run.over or run.cancel_requested_at is not None or conn.dialect.name != "sqlite":
        return
    added: list[AddedItems] = []
    for kind, body in bulk.fetch_rows(conn, _NEXT, step.task_id, _KIND, _AFTER_KINDS, due):
        inputs = [bytes(one) for one in _INPUTS.decode(unsealed(conn, step.task_id, kind, body) or b"[]")]
        first = int(kind.removeprefix(_KIND))
        numbers = range(first, first + len(inputs))
        tasks = item_tasks(step, numbers, limit=0 if limited else None, now=now)
        added.append(AddedItems(tasks, inputs))
        bulk.execute_statement(conn, _REMOVE, step.task_id, kind)
    if added:
        write_items(conn, added)
        hint_after_commit(conn, HintTopic.READY)


def has_lots(step: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """The condition that the step, whose task has this id, is to get more items."""
    lots = schema.payload.c
    return sa.exists().where(lots.owner_id == step, lots.kind > _KIND, lots.kind < _AFTER_KINDS)
