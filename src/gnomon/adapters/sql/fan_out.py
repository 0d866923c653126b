"""Tasks that no worker carries out: they wait for their items, or for another run, or are done at once."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import start_runs
from gnomon.adapters.sql.graph import LOCKED_TASKS, EngineTaskEnd, end_engine_tasks, end_tasks, lock_counters
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.rows import NEW_ITEM, item_row, task_and_run_of
from gnomon.core.model import ENGINE, Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import FanOut
from gnomon.core.runs.launch import item_tasks
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.states import TaskState

_FOREVER = 1 << 62
_BEGIN = bulk.update_statement(schema.task, ("state", "fence", "open_items", "note"), by=("task_id",))


class _StartedFanOut(NamedTuple):
    """An unfolding, its task under its new attempt, and its run."""

    fan_out: FanOut
    task: Task
    run: Run


def fan_out(conn: sa.Connection, unfoldings: Sequence[FanOut], now: int) -> frozenset[TaskId]:
    """See Work.unfold."""
    at_once = [one for one in unfoldings if _done_at_once(one)]
    rooms = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in at_once))
    begun = _begin(conn, unfoldings, now)
    _add_items(conn, begun, now)
    launches = [one.fan_out.launch for one in begun if one.fan_out.launch is not None]
    if launches:
        launch(conn, launches, now)
    done = [
        EngineTaskEnd(
            one.task,
            one.run,
            one.fan_out.graph,
            AttemptOutcome(result=Result.SUCCEEDED, output=one.fan_out.output),
            now,
        )
        for one in begun
        if _done_at_once(one.fan_out)
    ]
    end_tasks(conn, end_engine_tasks(conn, done), rooms)
    return frozenset(one.task.task_id for one in begun)


def _done_at_once(one: FanOut) -> bool:
    return one.launch is None and not one.items


def _begin(conn: sa.Connection, unfoldings: Sequence[FanOut], now: int) -> list[_StartedFanOut]:
    """Those that are still as they were read are under way."""
    names: list[str] = [one.task_id for one in unfoldings]
    found = {
        task.task_id: (task, run) for task, run in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, names))
    }
    begun: dict[TaskId, _StartedFanOut] = {}
    for one in unfoldings:
        task, run = found.get(one.task_id, (None, None))
        if task is None or run is None or task.task_id in begun:
            continue
        if task.state is TaskState.PENDING and task.fence == one.fence:
            count = len(one.items)
            held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=count, note=None)
            begun[task.task_id] = _StartedFanOut(one, held, _started(run, now))
    tasks = [one.task for one in begun.values()]
    bulk.execute_many(conn, _BEGIN, [(t.state.value, t.fence, t.open_items, None, t.task_id) for t in tasks])
    bulk.insert_rows(conn, schema.attempt, [(t.task_id, t.fence, ENGINE, _FOREVER, now, now) for t in tasks])
    start_runs(conn, [found[name][1] for name in begun], now)
    return list(begun.values())


def _started(run: Run, now: int) -> Run:
    return run if run.started_at is not None else replace(run, status=RunStatus.RUNNING, started_at=now)


def _add_items(conn: sa.Connection, begun: Sequence[_StartedFanOut], now: int) -> None:
    made, given = [], []
    for wish, task, _ in begun:
        items = item_tasks(task, len(wish.items), limit=wish.limit, now=now)
        made += [item_row(item) for item in items]
        given += [(item.task_id, "input", body) for item, body in zip(items, wish.items, strict=True)]
    bulk.insert_rows(conn, schema.task, made, NEW_ITEM)
    bulk.insert_rows(conn, schema.payload, given)
