"""How attempts ended, written down with what they gave back and said."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.executions import log_lengths
from gnomon.adapters.sql.hinting import hint
from gnomon.adapters.sql.tally import note
from gnomon.core.runs.outcomes import Ending
from gnomon.ports.coordination import Topic

_ATTEMPTED = ("state", "wait_reason", "available_at", "attempts", "losses", "routings", "note")
_END_TASK = bulk.changing(tables.task, _ATTEMPTED, by=("task_id",))
_END = bulk.changing(tables.attempt, ("ended_at", "result", "error"), by=("task_id", "number"))
#: What a task is given or gives back; the newest counts.
KEEP = bulk.inserting(
    tables.payload, ("owner_id", "kind", "body"), "ON CONFLICT (owner_id, kind) DO UPDATE SET body = excluded.body"
)


def write_down(conn: sa.Connection, endings: Sequence[Ending]) -> None:
    """The attempts are over, and their tasks are where that leads them."""
    bulk.many(conn, _END_TASK, [_ended_row(one) for one in endings])
    ended = [(one.ended_at, one.result.value, one.error, one.task_id, one.fence) for one in endings]
    bulk.many(conn, _END, ended)
    bulk.many(conn, KEEP, [(one.task_id, "output", one.output) for one in endings if one.output is not None])
    _keep_logs(conn, [one for one in endings if one.logs])
    if not all(one.over for one in endings):
        hint(conn, Topic.READY)
    note(conn, lambda tally: tally.tried(endings))


def _ended_row(one: Ending) -> tuple[object, ...]:
    return (
        one.state.value,
        one.wait_reason.value,
        one.available_at,
        one.attempts,
        one.losses,
        one.routings,
        one.error,
        one.task_id,
    )


def _keep_logs(conn: sa.Connection, endings: Sequence[Ending]) -> None:
    if not endings:
        return
    names = [one.task_id for one in endings]
    said = log_lengths(conn, names)
    lines = [
        (one.task_id, number, line.at, line.level, line.text)
        for one in endings
        for number, line in enumerate(one.logs, said.get(one.task_id, 0) + 1)
    ]
    bulk.insert(conn, tables.task_log, lines)
