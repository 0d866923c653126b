"""Tasks that the engine executes itself: they wait for their items or for a sub-run, or end at once."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.advances import items_of_undone_step
from gnomon.adapters.sql.completion import EndedRun, start_runs
from gnomon.adapters.sql.graph import (
    LOCKED_TASKS,
    EngineTaskEnd,
    begin_next_rollback,
    cascade_run_ends,
    end_engine_tasks,
    end_tasks,
    lock_counters,
    undone_runs,
)
from gnomon.adapters.sql.item_lots import AddedItems, first_items, write_items
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.rows import task_and_run_of
from gnomon.adapters.sql.rulings import write_rulings
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.instants import FOREVER
from gnomon.core.model import ENGINE, MOST_SUB_RUN_TASKS, Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import FanOut, FanOutResult
from gnomon.core.runs.launch import item_tasks
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.rollback import items_to_undo
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
    """A fan-out, its task under its new attempt, its run, and the numbers of its items."""

    fan_out: FanOut
    task: Task
    run: Run
    numbers: Sequence[int]

    @property
    def waits_for_runs(self) -> bool:
        """Whether it undoes a step by rolling back its runs."""
        return self.fan_out.undoes is not None and not _undoes_items(self.fan_out, self.task)


def fan_out(
    conn: sa.Connection, fan_outs: Sequence[FanOut], now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
) -> FanOutResult:
    """See PendingTasks.fan_out."""
    empty = [one for one in fan_outs if one.launch is None and not one.items]
    counters = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in empty))
    counts = _SubRunTaskCounts(conn, fan_outs, most_sub_run_tasks)
    started = _start(conn, fan_outs, now, counts)
    counts.write()
    write_rulings(conn, [(one.task.task_id, one.run.run_id, r) for one in started if (r := one.fan_out.ruling)], now)
    _add_items(conn, started, now)
    launches = [one.fan_out.launch for one in started if one.fan_out.launch is not None]
    if launches:
        launch(conn, launches, now)
    done, over = _ends_at_once(conn, started, now)
    end_tasks(conn, end_engine_tasks(conn, done), counters)
    cascade_run_ends(conn, over, counters)
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


def _ends_at_once(
    conn: sa.Connection, started: Sequence[_StartedFanOut], now: int
) -> tuple[list[EngineTaskEnd], list[EndedRun]]:
    """The ends of those that wait for nothing, and of runs whose rollback has begun for one of them and is over."""
    done, over = list[EngineTaskEnd](), list[EndedRun]()
    for one in started:
        outcome = AttemptOutcome(result=Result.SUCCEEDED, output=one.fan_out.output)
        if one.fan_out.launch is not None or one.numbers:
            continue
        if one.waits_for_runs:
            begun = begin_next_rollback(conn, one.task, now)
            if begun is not None:
                over += begun
                continue
            outcome = undone_runs(conn, one.task)
        done.append(EngineTaskEnd(one.task, one.run, one.fan_out.graph, outcome, now))
    return done, over


def _undoes_items(one: FanOut, task: Task) -> bool:
    step = one.graph.step(task.step)
    return one.undoes is not None and task.parent is None and step is not None and step.foreach is not None


def _numbers(conn: sa.Connection, one: FanOut, task: Task) -> Sequence[int]:
    """The numbers of the items of a fan-out, in the order in which they start."""
    step = one.graph.step(task.step)
    if step is None or not _undoes_items(one, task):
        return range(len(one.items))
    return items_to_undo(*items_of_undone_step(conn, task.run_id, step))


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
            numbers = _numbers(conn, one, task)
            held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=len(numbers), note=None)
            started[task.task_id] = _StartedFanOut(one, held, _started_run(run, now), numbers)
    tasks = [one.task for one in started.values()]
    changes = [StateChange(t.task_id, TaskState.PENDING, t.state, (t.fence, t.open_items, None)) for t in tasks]
    write_changes(conn, _START, changes)
    bulk.insert_rows(conn, schema.attempt, [(t.task_id, t.fence, ENGINE, FOREVER, now, now) for t in tasks])
    start_runs(conn, [found[name][1] for name in started], now)
    return list(started.values())


def _started_run(run: Run, now: int) -> Run:
    return run if run.started_at is not None else replace(run, status=RunStatus.RUNNING, started_at=now)


def _add_items(conn: sa.Connection, started: Sequence[_StartedFanOut], now: int) -> None:
    write_items(conn, [_added_items(conn, one, now) for one in started])


def _added_items(conn: sa.Connection, one: _StartedFanOut, now: int) -> AddedItems:
    asked = one.fan_out
    if asked.undoes is None:
        return first_items(conn, one.task, asked.items, asked.limit, now)
    tasks = item_tasks(one.task, one.numbers, limit=asked.limit, now=now)
    return AddedItems(tasks, [asked.items[task.item or 0] for task in tasks] if asked.items else [], kind="item")
