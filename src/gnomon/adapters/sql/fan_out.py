"""Tasks that no worker carries out: they wait for their items, or for another run, or are done at once."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import start_runs
from gnomon.adapters.sql.graph import HELD, Inner, end_inner, end_tasks, rooms_for
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.rows import NEW_ITEM, item_row, task_and_run_of
from gnomon.core.model import ENGINE, Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import Unfolding
from gnomon.core.runs.launch import item_tasks
from gnomon.core.runs.outcomes import Outcome
from gnomon.core.runs.states import TaskState

_FOREVER = 1 << 62
_BEGIN = bulk.changing(schema.task, ("state", "fence", "open_items", "note"), by=("task_id",))


class _Begun(NamedTuple):
    """An unfolding, its task under its new attempt, and its run."""

    wish: Unfolding
    task: Task
    run: Run


def unfold(conn: sa.Connection, unfoldings: Sequence[Unfolding], now: int) -> frozenset[TaskId]:
    """See Work.unfold."""
    at_once = [one for one in unfoldings if _done_at_once(one)]
    rooms = rooms_for(conn, ((one.run_id, one.schedule_uid) for one in at_once))
    begun = _begin(conn, unfoldings, now)
    _add_items(conn, begun, now)
    launches = [one.wish.launch for one in begun if one.wish.launch is not None]
    if launches:
        launch(conn, launches, now)
    done = [
        Inner(one.task, one.run, one.wish.graph, Outcome(result=Result.SUCCEEDED, output=one.wish.output), now)
        for one in begun
        if _done_at_once(one.wish)
    ]
    end_tasks(conn, end_inner(conn, done), rooms)
    return frozenset(one.task.task_id for one in begun)


def _done_at_once(one: Unfolding) -> bool:
    return one.launch is None and not one.items


def _begin(conn: sa.Connection, unfoldings: Sequence[Unfolding], now: int) -> list[_Begun]:
    """Those that are still as they were read are under way."""
    names: list[str] = [one.task_id for one in unfoldings]
    found = {task.task_id: (task, run) for task, run in map(task_and_run_of, bulk.rows(conn, HELD, names))}
    begun: dict[TaskId, _Begun] = {}
    for one in unfoldings:
        task, run = found.get(one.task_id, (None, None))
        if task is None or run is None or task.task_id in begun:
            continue
        if task.state is TaskState.PENDING and task.fence == one.fence:
            count = len(one.items)
            held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=count, note=None)
            begun[task.task_id] = _Begun(one, held, _started(run, now))
    tasks = [one.task for one in begun.values()]
    bulk.many(conn, _BEGIN, [(t.state.value, t.fence, t.open_items, None, t.task_id) for t in tasks])
    bulk.insert(conn, schema.attempt, [(t.task_id, t.fence, ENGINE, _FOREVER, now, now) for t in tasks])
    start_runs(conn, [found[name][1] for name in begun], now)
    return list(begun.values())


def _started(run: Run, now: int) -> Run:
    return run if run.started_at is not None else replace(run, status=RunStatus.RUNNING, started_at=now)


def _add_items(conn: sa.Connection, begun: Sequence[_Begun], now: int) -> None:
    made, given = [], []
    for wish, task, _ in begun:
        items = item_tasks(task, len(wish.items), limit=wish.limit, now=now)
        made += [item_row(item) for item in items]
        given += [(item.task_id, "input", body) for item, body in zip(items, wish.items, strict=True)]
    bulk.insert(conn, schema.task, made, NEW_ITEM)
    bulk.insert(conn, schema.payload, given)
