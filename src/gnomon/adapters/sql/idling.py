"""Tasks of runs that are to end, which wait for what will not come: they end at once."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.tally import note
from gnomon.core.model import ENGINE, Result, Run
from gnomon.core.runs.states import TaskState

_IN_HAND = bulk.statement(
    "SELECT task.task_id, task.run_id, task.fence, task.parent, attempt.worker FROM task"
    " JOIN attempt ON attempt.task_id = task.task_id AND attempt.number = task.fence"
    " WHERE task.run_id IN KEYS AND task.state IN ('DISPATCHED', 'RUNNING')"
)
_WAITED_FOR = bulk.statement(
    f"SELECT parent_task FROM run WHERE parent_task IN KEYS AND parent_task IS NOT NULL AND {tables.NOT_OVER}"  # noqa: S608 - our own
)
_END_TASK = bulk.changing(tables.task, ("state", "note", "open_items"), by=("task_id",))
_RECOUNT = bulk.changing(tables.task, ("open_items",), by=("task_id",))
_END = bulk.changing(tables.attempt, ("ended_at", "result"), by=("task_id", "number"))


def end_idle(conn: sa.Connection, runs: Sequence[Run], now: int) -> Collection[str]:
    """What waits for nothing is over. The runs of which somebody still has something in hand come back.

    All that waited for its turn is over already.
    """
    if not runs:
        return ()
    names: list[str] = [run.run_id for run in runs]
    hands = {row[0]: row for row in bulk.rows(conn, _IN_HAND, names)}
    inner = [name for name, row in hands.items() if row[4] == ENGINE]
    waited_for = {name for (name,) in bulk.rows(conn, _WAITED_FOR, inner)} if inner else set()
    open_items: dict[str, int] = {}
    idle: list[str] = []
    # Items first: a step waits for those of them that are not idle.
    for name in sorted(hands, key=lambda one: hands[one][3] is None):
        if hands[name][4] == ENGINE and name not in waited_for and not open_items.get(name):
            idle.append(name)
        elif hands[name][3] is not None:
            open_items[hands[name][3]] = open_items.get(hands[name][3], 0) + 1
    why: Mapping[str, str | None] = {run.run_id: run.error for run in runs}
    ended = [(TaskState.CANCELLED.value, why[hands[name][1]], 0, name) for name in idle]
    bulk.many(conn, _END_TASK, ended)
    bulk.many(conn, _END, [(now, Result.CANCELLED.value, name, hands[name][2]) for name in idle])
    bulk.many(conn, _RECOUNT, [(count, name) for name, count in open_items.items()])
    note(conn, lambda tally: tally.called_off(len(idle)))
    return {row[1] for name, row in hands.items() if name not in set(idle)}
