"""Tasks that the engine executes itself: they wait for their items or for a sub-run, or end at once."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import start_runs
from gnomon.adapters.sql.graph import LOCKED_TASKS, EngineTaskEnd, end_engine_tasks, end_tasks, lock_counters
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.payloads import sealed_rows
from gnomon.adapters.sql.rows import NEW_ITEM, item_row, task_and_run_of
from gnomon.adapters.sql.rulings import write_rulings
from gnomon.adapters.sql.transitions import StateChange, insert_tasks, state_update, write_changes
from gnomon.core.instants import FOREVER
from gnomon.core.model import ENGINE, MOST_SUB_RUN_TASKS, Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import FanOut, FanOutResult
from gnomon.core.runs.launch import item_tasks
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.states import TaskState

_START = state_update("fence", "open_items", "note")
_BEGIN_COUNTS = bulk.insert_statement(
    schema.sub_run_tasks, ("root_run_id", "count"), "ON CONFLICT (root_run_id) DO NOTHING"
)
_SET_COUNTS = bulk.update_statement(schema.sub_run_tasks, ("count",), by=("root_run_id",))
_READ_COUNTS = "SELECT root_run_id, count FROM sub_run_tasks WHERE root_run_id IN KEYS"
_COUNTS = bulk.Statement(
    bulk.statement(_READ_COUNTS).sqlite, bulk.statement(f"{_READ_COUNTS} ORDER BY root_run_id FOR UPDATE").postgresql
)


class _StartedFanOut(NamedTuple):
    """A fan-out, its task under its new attempt, and its run."""

    fan_out: FanOut
    task: Task
    run: Run


def fan_out(
    conn: sa.Connection, fan_outs: Sequence[FanOut], now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
) -> FanOutResult:
    """See PendingTasks.fan_out."""
    empty = [one for one in fan_outs if _ends_at_once(one)]
    counters = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in empty))
    counts = _SubRunTaskCounts(conn, fan_outs, most_sub_run_tasks)
    started = _start(conn, fan_outs, now, counts)
    counts.write()
    write_rulings(conn, [(one.task.task_id, one.run.run_id, r) for one in started if (r := one.fan_out.ruling)], now)
    _add_items(conn, started, now)
    launches = [one.fan_out.launch for one in started if one.fan_out.launch is not None]
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
        for one in started
        if _ends_at_once(one.fan_out)
    ]
    end_tasks(conn, end_engine_tasks(conn, done), counters)
    return FanOutResult(frozenset(one.task.task_id for one in started), frozenset(counts.over_limit))


class _SubRunTaskCounts:
    """How many tasks the sub-runs under each run at the top have.

    Only fan-outs lock these rows, before those of tasks, and in the order of their keys: they cannot deadlock.
    """

    def __init__(self, conn: sa.Connection, fan_outs: Sequence[FanOut], most: int) -> None:
        self._conn, self._most = conn, most
        self._added = dict[str, int]()
        self.over_limit: set[TaskId] = set()
        roots: list[str] = sorted({one.root for one in fan_outs if one.sub_run_tasks})
        if roots:
            bulk.execute_many(conn, _BEGIN_COUNTS, [(root, 0) for root in roots])
        found = bulk.fetch_rows(conn, _COUNTS, roots) if roots else ()
        self._counts: dict[str, int] = {root: count for root, count in found}  # noqa: C416 - rows are no tuples to a type checker

    def add(self, one: FanOut) -> bool:
        """Count the tasks of a fan-out; False if they would be too many."""
        if not one.sub_run_tasks:
            return True
        count = self._counts[one.root] + one.sub_run_tasks
        if count > self._most:
            self.over_limit.add(one.task_id)
            return False
        self._counts[one.root] = self._added[one.root] = count
        return True

    def write(self) -> None:
        """Write the counts that have grown."""
        bulk.execute_many(self._conn, _SET_COUNTS, [(count, root) for root, count in self._added.items()])


def _ends_at_once(one: FanOut) -> bool:
    return one.launch is None and not one.items


def _start(
    conn: sa.Connection, fan_outs: Sequence[FanOut], now: int, counts: _SubRunTaskCounts
) -> list[_StartedFanOut]:
    """Start the tasks that are still PENDING under the fence with which they were read, as far as they are counted."""
    names: list[str] = [one.task_id for one in fan_outs]
    found = {
        task.task_id: (task, run) for task, run in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, names))
    }
    started: dict[TaskId, _StartedFanOut] = {}
    for one in fan_outs:
        task, run = found.get(one.task_id, (None, None))
        if task is None or run is None or task.task_id in started:
            continue
        if task.state is TaskState.PENDING and task.fence == one.fence and counts.add(one):
            count = len(one.items)
            held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=count, note=None)
            started[task.task_id] = _StartedFanOut(one, held, _started_run(run, now))
    tasks = [one.task for one in started.values()]
    changes = [StateChange(t.task_id, TaskState.PENDING, t.state, (t.fence, t.open_items, None)) for t in tasks]
    write_changes(conn, _START, changes)
    bulk.insert_rows(conn, schema.attempt, [(t.task_id, t.fence, ENGINE, FOREVER, now, now) for t in tasks])
    start_runs(conn, [found[name][1] for name in started], now)
    return list(started.values())


def _started_run(run: Run, now: int) -> Run:
    return run if run.started_at is not None else replace(run, status=RunStatus.RUNNING, started_at=now)


def _add_items(conn: sa.Connection, started: Sequence[_StartedFanOut], now: int) -> None:
    items: list[Task] = []
    inputs: list[tuple[str, str, bytes]] = []
    for one, task, _ in started:
        added = item_tasks(task, len(one.items), limit=one.limit, now=now)
        items += added
        inputs += [(item.task_id, "input", body) for item, body in zip(added, one.items, strict=True)]
    insert_tasks(conn, items, item_row, NEW_ITEM)
    bulk.insert_rows(conn, schema.payload, sealed_rows(conn, inputs))
