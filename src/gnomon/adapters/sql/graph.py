"""What follows from the end of tasks: the next steps, the end of the step that they were items of, the end of the run.

That may be the end of a step of another run, which waited for this one, and so on: round by round, until nothing more
has ended.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, dead_letters, schema
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity
from gnomon.adapters.sql.completion import (
    AttemptEnd,
    ConcurrencyCounters,
    EndedRun,
    end_runs,
    run_error,
    write_attempt_ends,
)
from gnomon.adapters.sql.rows import NEW_STEP, RUN, TASK, column_list, load_workflow, step_row, task_and_run_of, task_of
from gnomon.adapters.sql.transitions import insert_tasks
from gnomon.core.model import Run, RunId, RunStatus, ScheduleUid, Task, TaskId
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.dag import (
    GraphProgress,
    ItemTotals,
    graph_progress,
    items_outcome,
    run_outcome,
    step_state,
    topological_order,
)
from gnomon.core.runs.launch import next_tasks, skipped_task, sub_run_id
from gnomon.core.runs.outcomes import (
    Assignment,
    AttemptOutcome,
    GiveUpLimits,
    TaskCompletion,
    cancel_instead_of_retry,
    complete_attempt,
    run_status,
)
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.coordination import HintTopic

#: The tasks of runs but for items.
STEPS = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE run_id IN KEYS AND parent IS NULL")  # noqa: S608 - our own names, here and below
_RELEASE = bulk.update_statement(schema.task, ("wait_reason", "available_at"), by=("task_id",))
_COUNTED = "open_items = open_items - {}, failed_items = failed_items + {}"
_COUNT = bulk.Statement(
    f"UPDATE task SET {_COUNTED.format('?', '?')} WHERE task_id = ? RETURNING {column_list(TASK)}",  # noqa: S608
    f"UPDATE task SET {_COUNTED.format('v.done', 'v.failed')}"  # noqa: S608
    " FROM unnest($1::integer[], $2::integer[], $3::text[]) AS v (done, failed, name)"
    f" WHERE task.task_id = v.name RETURNING {column_list(TASK)}",
)
_NEXT_ITEMS = bulk.statement(
    "UPDATE task SET wait_reason = 'ready', available_at = ? WHERE task_id IN"  # noqa: S608
    f" (SELECT task_id FROM task WHERE parent = ? AND {schema.HELD} ORDER BY item LIMIT ?)"
)
_OUTPUTS = "LEFT JOIN payload ON payload.owner_id = task.task_id AND payload.kind = 'output'"
_OF_ITEMS = bulk.statement(
    f"SELECT payload.body FROM task {_OUTPUTS} WHERE task.run_id = ? AND task.parent = ? ORDER BY task.item"  # noqa: S608
)
_SIZE_OF_ITEMS = bulk.statement(
    "SELECT count(*), coalesce(sum(length(payload.body)), 0)"  # noqa: S608
    f" FROM task {_OUTPUTS} WHERE task.run_id = ? AND task.parent = ?"
)
_OF_STEPS = bulk.statement(
    f"SELECT task.step, payload.body FROM task {_OUTPUTS} WHERE task.run_id = ? AND task.parent IS NULL"  # noqa: S608
)
_WITH_RUNS = f"""
SELECT {column_list(TASK)}, {column_list(RUN)} FROM task JOIN run ON run.run_id = task.run_id WHERE task.task_id IN KEYS
"""  # noqa: S608
#: Tasks with their runs, both nobody else's to change until the end of the transaction. By run: two who end different
#: steps of the same runs do not wait for each other in a circle.
LOCKED_TASKS = bulk.Statement(
    bulk.statement(_WITH_RUNS).sqlite,
    bulk.statement(f"{_WITH_RUNS} ORDER BY task.run_id, task.task_id FOR UPDATE").postgresql,
)
_ABOVE = bulk.statement(
    "WITH RECURSIVE above (parent_task, schedule_uid) AS ("
    "SELECT parent_task, schedule_uid FROM run WHERE run_id IN KEYS AND parent_task IS NOT NULL"
    " UNION SELECT run.parent_task, run.schedule_uid FROM above JOIN task ON task.task_id = above.parent_task"
    " JOIN run ON run.run_id = task.run_id)"
    " SELECT schedule_uid FROM above WHERE schedule_uid IS NOT NULL"
)


class EndedTask(NamedTuple):
    """A task that is over, with its run as it was until then."""

    task: TaskCompletion | Admission
    run: Run
    error: str | None
    at: int
    #: The task of which it is one item.
    parent: TaskId | None = None


def lock_counters(conn: sa.Connection, ends: Iterable[tuple[RunId, ScheduleUid | None]]) -> ConcurrencyCounters:
    """The counts of every schedule that may be touched when something of these runs ends.

    A run without a schedule may be one that a step of another run waits for. On SQLite nobody else writes, so that the
    counts are read when they are needed.
    """
    runs = list(ends)
    loose: list[str] = sorted({run_id for run_id, uid in runs if uid is None})
    above = bulk.fetch_rows(conn, _ABOVE, loose) if loose and conn.dialect.name != "sqlite" else ()
    return ConcurrencyCounters(conn, (*(uid for _, uid in runs), *(uid for (uid,) in above)))


def end_tasks(conn: sa.Connection, over: Sequence[EndedTask], rooms: ConcurrencyCounters) -> None:
    """What has failed for good has left a dead letter; runs go on with their next steps, or are over."""
    cascade_run_ends(conn, _ended_runs(conn, over), rooms)


def cascade_run_ends(conn: sa.Connection, ended: Sequence[EndedRun], rooms: ConcurrencyCounters) -> None:
    """The runs are over, and so is all that ends with them."""
    while ended:
        end_runs(conn, ended, rooms)
        ended = _ended_runs(conn, end_engine_tasks(conn, _end_awaiting_steps(conn, ended)))


def _ended_runs(conn: sa.Connection, over: Sequence[EndedTask]) -> Sequence[EndedRun]:
    """The runs that are over with these tasks."""
    if not over:
        return ()
    _write_dead_letters(conn, over)
    ended = {o.run.run_id: _single_task_run_end(o) for o in over if o.task.graph is None and not o.run.over}
    if len(ended) < len(over):
        graphs = [one for one in over if one.task.graph is not None]
        steps = end_engine_tasks(conn, _count_ended_items(conn, [one for one in graphs if one.parent is not None]))
        _write_dead_letters(conn, steps)
        for one in advance_runs(conn, _advancing_runs([*(one for one in graphs if one.parent is None), *steps])):
            ended.setdefault(one.run.run_id, one)
    return list(ended.values())


def _single_task_run_end(over: EndedTask) -> EndedRun:
    return EndedRun(over.run, run_status(over.task.state), over.error, over.at)


def _write_dead_letters(conn: sa.Connection, over: Sequence[EndedTask]) -> None:
    dead = [
        dead_letters.FailedTask(o.task.task_id, o.task.dead_letter, o.error, o.at) for o in over if o.task.dead_letter
    ]
    dead_letters.write(conn, dead)


# ---- steps ---------------------------------------------------------------------------------------


class AdvancingRun(NamedTuple):
    """A run of which something is over, and what it was made from."""

    run: Run
    graph: Workflow
    at: int


def _advancing_runs(over: Sequence[EndedTask]) -> list[AdvancingRun]:
    return [AdvancingRun(one.run, one.task.graph, one.at) for one in over if one.task.graph is not None]


def advance_runs(conn: sa.Connection, going: Sequence[AdvancingRun]) -> list[EndedRun]:
    """The steps whose turn has come have tasks. The runs of which no step is left come back."""
    runs = {one.run.run_id: one for one in going if not one.run.over}
    if not runs:
        return []
    tasks: dict[str, list[Task]] = {run_id: [] for run_id in runs}
    for task in map(task_of, bulk.fetch_rows(conn, STEPS, sorted(runs))):
        tasks[task.run_id].append(task)
    moved = [_RunAdvance(one, tasks[run_id]) for run_id, one in runs.items()]
    insert_tasks(conn, [task for one in moved for task in one.made], step_row, NEW_STEP)
    bulk.execute_many(
        conn, _RELEASE, [(WaitReason.READY.value, one.of.at, name) for one in moved for name in one.released]
    )
    if any(one.after.ready or one.after.released for one in moved):
        hint_after_commit(conn, HintTopic.READY)
    ended = [
        EndedRun(one.of.run, one.after.status, one.after.error, one.of.at)
        for one in moved
        if one.after.status is not None
    ]
    notify_activity(conn, lambda observer: observer.graph_runs_ended([one.run for one in ended]))
    return ended


class _RunAdvance:
    """A run that goes on, or ends, after the end of one of its steps."""

    def __init__(self, of: AdvancingRun, tasks: Sequence[Task]) -> None:
        self.of = of
        place = {step.name: number for number, step in enumerate(topological_order(of.graph))}
        in_line = sorted(tasks, key=lambda task: (task.created_at, place.get(task.step, 0)))
        self._tasks = {task.step: task for task in in_line}
        states = {name: step_state(task) for name, task in self._tasks.items()}
        self.after: GraphProgress = graph_progress(of.graph, states, cancelled=of.run.cancel_requested_at is not None)

    @property
    def made(self) -> Sequence[Task]:
        """The tasks of the steps whose turn has come, and of those that will never have one."""
        run, now, after = self.of.run, self.of.at, self.after
        return (
            *next_tasks(run, after.ready, held=False, now=now),
            *next_tasks(run, after.held, held=True, now=now),
            *(skipped_task(run, one, now=now) for one in after.not_run),
        )

    @property
    def released(self) -> Sequence[TaskId]:
        """The tasks that had to wait for others and no longer do."""
        return [self._tasks[name].task_id for name in self.after.released]


# ---- tasks that no worker has in hand ------------------------------------------------------------


class EngineTaskEnd(NamedTuple):
    """A task that no worker had in hand, and how it ended."""

    task: Task
    run: Run
    graph: Workflow
    outcome: AttemptOutcome
    at: int


def end_engine_tasks(conn: sa.Connection, inner: Sequence[EngineTaskEnd]) -> list[EndedTask]:
    """Their ends are written down. Those that are not tried again come back."""
    if not inner:
        return []
    ends = [(_ending(one), one) for one in inner]
    write_attempt_ends(conn, [AttemptEnd(of.task.state, ended) for ended, of in ends])
    return [EndedTask(ended, of.run, ended.error, of.at, of.task.parent) for ended, of in ends if ended.over]


def _ending(one: EngineTaskEnd) -> TaskCompletion:
    step = one.graph.step(one.task.step) or one.graph.steps[0]
    held = Assignment(task=one.task, run=one.run, workflow=one.graph, step=step, input={})
    made = complete_attempt(held, one.outcome, now=one.at, limits=GiveUpLimits())
    return made if one.run.cancel_requested_at is None else cancel_instead_of_retry(made)


def _count_ended_items(conn: sa.Connection, items: Sequence[EndedTask]) -> list[EngineTaskEnd]:
    """The steps count so many items less, and let as many begin; those whose last one it was are over."""
    by_parent: dict[str, list[EndedTask]] = {}
    for one in items:
        by_parent.setdefault(str(one.parent), []).append(one)
    counts = [(len(ended), sum(map(_failed, ended)), name) for name, ended in sorted(by_parent.items())]
    done = []
    for parent in map(task_of, bulk.execute_returning_rows(conn, _COUNT, counts)):
        ended = by_parent[parent.task_id]
        last = ended[-1]
        graph = last.task.graph
        assert graph is not None  # noqa: S101 - it has items
        if not parent.open_items and parent.state is TaskState.RUNNING:
            done.append(EngineTaskEnd(parent, last.run, graph, fan_out_outcome(conn, parent, last.run), last.at))
        elif _limits_parallelism(graph, parent):
            bulk.execute_statement(conn, _NEXT_ITEMS, last.at, parent.task_id, len(ended))
    return done


def _failed(item: EndedTask) -> bool:
    return item.task.state is not TaskState.SUCCEEDED


def _limits_parallelism(graph: Workflow, parent: Task) -> bool:
    step = graph.step(parent.step)
    return step is not None and step.max_parallel is not None


def fan_out_outcome(conn: sa.Connection, parent: Task, run: Run) -> AttemptOutcome:
    """How a step has ended whose items are all over."""
    [(count, size)] = bulk.fetch_rows(conn, _SIZE_OF_ITEMS, run.run_id, parent.task_id)
    items = ItemTotals(count=count, failed=parent.failed_items, size=int(size))
    read = bulk.fetch_rows(conn, _OF_ITEMS, run.run_id, parent.task_id) if items.joined else ()
    return items_outcome(items, [body for (body,) in read], cancelled=run.cancel_requested_at is not None)


def _end_awaiting_steps(conn: sa.Connection, ended: Sequence[EndedRun]) -> list[EngineTaskEnd]:
    """The steps that waited for these runs."""
    waited_for = {str(one.run.parent_task): one for one in ended if one.run.parent_task is not None}
    if not waited_for:
        return []
    done = []
    for task, run in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, sorted(waited_for))):
        one = waited_for[task.task_id]
        waits = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
        if waits is not None and task.state is TaskState.RUNNING and one.run.run_id == sub_run_id(task):
            done.append(EngineTaskEnd(task, run, waits, sub_run_outcome(conn, one), one.at))
    return done


def sub_run_outcome(conn: sa.Connection, ended: EndedRun) -> AttemptOutcome:
    """How a step has ended that waited for this run."""
    run = replace(ended.run, status=ended.status, error=run_error(ended.run, ended.status, ended.error))
    if run.status is not RunStatus.COMPLETED:
        return run_outcome(run, None, {})
    made_from = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
    found = {step: body for step, body in bulk.fetch_rows(conn, _OF_STEPS, run.run_id)}  # noqa: C416
    in_line = [step.name for step in topological_order(made_from)] if made_from is not None else sorted(found)
    return run_outcome(run, made_from, {name: found[name] for name in in_line if name in found})
