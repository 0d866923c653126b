"""Graph completion: everything that follows from the end of tasks, in the transaction that ends them.

The consequences of an end:

- A task that failed for good leaves a dead letter.
- An item of a fan-out is counted off its step. If the step limits its parallelism, the next item is released, and if
  it has more items than were added at first, the next lot is added (`item_lots.py`). With the last item the step itself
  ends.
- A step makes its successors ready. The graph decides which steps get a task, which waiting tasks are released, and
  which steps will never run; the last are recorded as skipped.
- A run whose last step has ended is announced. It ends, or goes on until the announcement is over. At its end its slot
  in the schedule goes to the next queued run, a one-shot schedule is retired, and the dead letter that the run replays
  is resolved.
- The end of a run ends the step of the parent run that waited for it, and so on upwards. `cascade_run_ends` repeats all
  of this until a round ends nothing more.

One transaction. The ends and their consequences are committed together. If a second transaction wrote the successors, a
crash between the two would leave a run that nothing advances: it has no open attempt, so no lease expires and no worker
reports. Only the repair of stuck runs (`invariants.py`) would find it, minutes later.

One set of statements. A round takes a batch of ends, which may belong to thousands of runs, and issues the same few
statements for all of them: one SELECT for the steps of all runs, one INSERT for all new tasks, one UPDATE for all
released ones. The number of round trips grows with the depth of nesting, not with the number of runs. Only fan-outs,
one-shot schedules and replays cost statements of their own. The decision itself (`core/runs/dag.graph_progress`) is
pure; it is made for each run from the rows that the SELECT returned.

Locks. Two reports may end two steps of one run at the same moment. Without locks each would see the other step running,
neither would make their common successor ready, and the run would hang. Every caller therefore locks the counters of
all schedules that it may touch, those of parent runs included (`lock_counters`), and then the tasks and their runs, in
the order of their ids (`LOCKED_TASKS`). The second transaction waits, and then reads the rows that the first one wrote.
All callers lock in this order, so that they cannot deadlock. Items are counted by an UPDATE that returns the new count:
exactly one transaction sees zero and ends the step. SQLite has one writer at a time and needs none of these locks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import announcements, bulk, dead_letters, schema
from gnomon.adapters.sql.advances import (
    STEPS,
    AdvancingRun,
    RunToUndo,
    decide_advance,
    decide_next_undo,
    next_run_to_undo,
    runs_of,
    runs_that_gave_up,
    stored_order,
)
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity, notify_runs
from gnomon.adapters.sql.completion import (
    AttemptEnd,
    ConcurrencyCounters,
    EndedRun,
    end_runs,
    insert_payloads,
    write_attempt_ends,
)
from gnomon.adapters.sql.item_lots import add_due_lots
from gnomon.adapters.sql.payloads import unsealed
from gnomon.adapters.sql.rows import NEW_STEP, RUN, TASK, column_list, load_workflow, step_row, task_and_run_of, task_of
from gnomon.adapters.sql.transitions import insert_tasks
from gnomon.core.ids import undone_task_id
from gnomon.core.model import Run, RunId, RunStatus, ScheduleUid, Task, TaskId
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.advance import RunAdvance
from gnomon.core.runs.dag import ItemTotals, items_outcome, run_outcome, topological_order, undone_runs_outcome
from gnomon.core.runs.deadlines import OverdueEnd
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.outcomes import (
    Assignment,
    AttemptOutcome,
    GiveUpLimits,
    TaskCompletion,
    cancel_instead_of_retry,
    complete_attempt,
    outcome_by_deadline,
    run_error,
    run_status,
)
from gnomon.core.runs.rollback import COMPENSATION_UNREADABLE, RollbackStatus, is_compensation
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.coordination import HintTopic

_RELEASE = bulk.update_statement(schema.task, ("wait_reason", "available_at"), by=("task_id",))
_COUNTED = "open_items = open_items - {}, failed_items = failed_items + {}"
_COUNT = bulk.Statement(
    f"UPDATE task SET {_COUNTED.format('?', '?')} WHERE task_id = ? RETURNING {column_list(TASK)}",  # noqa: S608 - our own names, here and below
    f"UPDATE task SET {_COUNTED.format('v.done', 'v.failed')}"  # noqa: S608
    " FROM unnest($1::integer[], $2::integer[], $3::text[]) AS v (done, failed, name)"
    f" WHERE task.task_id = v.name RETURNING {column_list(TASK)}",
)
_NEXT = "UPDATE task SET wait_reason = 'ready', available_at = ? WHERE task_id IN (SELECT task_id FROM task WHERE"
_NEXT_ITEMS = bulk.statement(f"{_NEXT} parent = ? AND {schema.HELD} ORDER BY item LIMIT ?)")
#: Items are undone from the last to the first.
_NEXT_ITEMS_TO_UNDO = bulk.statement(f"{_NEXT} parent = ? AND {schema.HELD} ORDER BY item DESC LIMIT ?)")
_OUTPUTS = "LEFT JOIN payload ON payload.owner_id = task.task_id AND payload.kind = 'output'"
_OF_ITEMS = bulk.statement(
    f"SELECT task.task_id, payload.body FROM task {_OUTPUTS}"  # noqa: S608
    " WHERE task.run_id = ? AND task.parent = ? ORDER BY task.item"
)
_SIZE_OF_ITEMS = bulk.statement(
    "SELECT count(*), coalesce(sum(length(payload.body)), 0)"  # noqa: S608
    f" FROM task {_OUTPUTS} WHERE task.run_id = ? AND task.parent = ?"
)
_OF_STEPS = bulk.statement(
    f"SELECT task.step, task.task_id, payload.body FROM task {_OUTPUTS} WHERE task.run_id = ? AND task.parent IS NULL"  # noqa: S608
)
_ROLLBACK = ("rollback", "rollback_cause", "rollback_number", "cancel_requested_at")
_SET_ROLLBACK = bulk.update_statement(schema.run, _ROLLBACK, by=("run_id",))
_REOPENED = (
    "status", "completed_at", "error", "cancel_requested_at", "parent_task", "rollback", "rollback_cause",
    "rollback_number",
)  # fmt: skip
_REOPEN = bulk.update_statement(schema.run, _REOPENED, by=("run_id",))
_WITH_RUNS = f"""
SELECT {column_list(TASK)}, {column_list(RUN)} FROM task JOIN run ON run.run_id = task.run_id WHERE task.task_id IN KEYS
"""  # noqa: S608
#: Tasks with their runs, both locked until the end of the transaction. In the order of runs: two transactions that end
#: different steps of the same runs do not deadlock.
LOCKED_TASKS = bulk.Statement(
    bulk.statement(_WITH_RUNS).sqlite,
    bulk.statement(f"{_WITH_RUNS} ORDER BY task.run_id, task.task_id FOR UPDATE").postgresql,
)
_TASK = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE task_id IN KEYS")  # noqa: S608
_SET_PARENT = bulk.update_statement(schema.run, ("parent_task",), by=("run_id",))
_ABOVE = bulk.statement(
    "WITH RECURSIVE above (parent_task, schedule_uid) AS ("
    "SELECT parent_task, schedule_uid FROM run WHERE run_id IN KEYS AND parent_task IS NOT NULL"
    " UNION SELECT run.parent_task, run.schedule_uid FROM above JOIN task ON task.task_id = above.parent_task"
    " JOIN run ON run.run_id = task.run_id)"
    " SELECT schedule_uid FROM above WHERE schedule_uid IS NOT NULL"
)


class EndedTask(NamedTuple):
    """A task that has ended, with its run as it was before."""

    task: TaskCompletion | Admission | OverdueEnd
    run: Run
    error: str | None
    at: int
    #: The task of which it is an item.
    parent: TaskId | None = None


def lock_counters(conn: sa.Connection, ends: Iterable[tuple[RunId, ScheduleUid | None]]) -> ConcurrencyCounters:
    """Lock the counters of every schedule that the end of tasks of these runs may touch.

    A run without a schedule may be a sub-run: the schedules of its parents are locked too. On SQLite no other
    transaction writes, so the counters are read when they are needed.
    """
    runs = list(ends)
    unscheduled: list[str] = sorted({run_id for run_id, uid in runs if uid is None})
    above = bulk.fetch_rows(conn, _ABOVE, unscheduled) if unscheduled and conn.dialect.name != "sqlite" else ()
    return ConcurrencyCounters(conn, (*(uid for _, uid in runs), *(uid for (uid,) in above)))


def end_tasks(conn: sa.Connection, over: Sequence[EndedTask], counters: ConcurrencyCounters) -> None:
    """Write all that follows from the end of these tasks. Their own rows are written before."""
    cascade_run_ends(conn, _ended_runs(conn, over), counters)


def cascade_run_ends(conn: sa.Connection, ended: Sequence[EndedRun], counters: ConcurrencyCounters) -> None:
    """End the runs, the steps that wait for them, and the runs that end with those steps.

    Their announcements are written first. A run that waits for one of these continues.
    """
    while ended := announcements.write_run_ends(conn, ended):
        end_runs(conn, ended, counters)
        steps, begun = _end_awaiting_steps(conn, ended)
        ended = [*_ended_runs(conn, end_engine_tasks(conn, steps)), *begun]


def _ended_runs(conn: sa.Connection, over: Sequence[EndedTask]) -> Sequence[EndedRun]:
    """Advance the runs of these tasks; return the runs that end."""
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
    return EndedRun(over.run, run_status(over.task.state), over.error, over.at, over.task.announce)


def _write_dead_letters(conn: sa.Connection, over: Sequence[EndedTask]) -> None:
    dead = [
        dead_letters.FailedTask(o.task.task_id, o.task.dead_letter, o.error, o.at) for o in over if o.task.dead_letter
    ]
    dead_letters.write(conn, dead)


# ---- steps ---------------------------------------------------------------------------------------


def _advancing_runs(over: Sequence[EndedTask]) -> list[AdvancingRun]:
    return [
        AdvancingRun(one.run, one.task.graph, one.at, one.task.task_id) for one in over if one.task.graph is not None
    ]


def advance_runs(conn: sa.Connection, advancing: Sequence[AdvancingRun]) -> list[EndedRun]:
    """Add the tasks of steps that became ready, and release waiting ones; return the runs without any step left."""
    runs = {one.run.run_id: one for one in advancing if not one.run.over}
    if not runs:
        return []
    known = {name: after for name, one in runs.items() if (after := decide_next_undo(conn, one)) is not None}
    tasks: dict[str, list[Task]] = {run_id: [] for run_id in runs if run_id not in known}
    for task in map(task_of, bulk.fetch_rows(conn, STEPS, sorted(tasks)) if tasks else ()):
        tasks[task.run_id].append(task)
    others = [runs[name] for name in runs if name not in known]
    gave_up = runs_that_gave_up(conn, others, tasks)
    moved = [(runs[name], after) for name, after in known.items()]
    for one in others:
        run_id = one.run.run_id
        moved.append((one, decide_advance(conn, one, tasks[run_id], gave_up=run_id in gave_up)))
    return write_advances(conn, moved)


def write_advances(conn: sa.Connection, moved: Sequence[tuple[AdvancingRun, RunAdvance]]) -> list[EndedRun]:
    """Write the changes of these runs; return the runs that end."""
    insert_tasks(conn, [task for _, after in moved for task in after.made], step_row, NEW_STEP)
    bulk.execute_many(
        conn, _RELEASE, [(WaitReason.READY.value, of.at, name) for of, after in moved for name in after.released]
    )
    if any(after.starts for _, after in moved):
        hint_after_commit(conn, HintTopic.READY)
    _write_rollbacks(conn, moved)
    ended = [
        EndedRun(of.run, after.status, after.error, of.at, of.graph.announce)
        for of, after in moved
        if after.status is not None
    ]
    notify_activity(conn, lambda observer: observer.graph_runs_ended([one.run for one in ended]))
    return ended


def _write_rollbacks(conn: sa.Connection, moved: Sequence[tuple[AdvancingRun, RunAdvance]]) -> None:
    """Write which runs are rolled back from now on, how rollbacks ended, and what could not be undone."""
    dead_letters.write(
        conn,
        [
            dead_letters.FailedTask(task.task_id, COMPENSATION_UNREADABLE, task.note, of.at)
            for of, after in moved
            for task in after.unreadable
        ],
    )
    insert_payloads(conn, [(of.run.run_id, "rollback", stored_order(after)) for of, after in moved if after.undo_order])
    begun = sum(after.rollback is RollbackStatus.RUNNING for _, after in moved)
    unreadable = sum(len(after.unreadable) for _, after in moved)
    ended_ms = [after.rollback_ms for _, after in moved if after.rollback_ms is not None]
    if begun or unreadable or ended_ms:
        notify_runs(conn, lambda observer: observer.rolled_back(begun, unreadable, ended_ms))
    for of, after in moved:
        if after.rollback is RollbackStatus.COMPLETE and after.rollback_number > 1:
            names = dead_letters.of_compensations(conn, of.run.run_id)
            dead_letters.resolve(conn, of.run.tenant, names, f"rollback {after.rollback_number}", of.at)
    # A run that is cancelled may still be rolled back: its compensations are not cancelled.
    bulk.execute_many(
        conn,
        _SET_ROLLBACK,
        [
            (after.rollback.value, after.rollback_cause, after.rollback_number, None, of.run.run_id)
            for of, after in moved
            if after.rollback is not None
        ],
    )


def begin_rollback(conn: sa.Connection, begun: AdvancingRun, after: RunAdvance) -> list[EndedRun]:
    """Write that a run which has ended is rolled back; return it if that is the end of it again."""
    bulk.execute_many(conn, _REOPEN, [_reopened_row(begun.run)])
    notify_runs(conn, lambda observer: observer.rolled_back(1, 0, ()))
    return write_advances(conn, [(begun, after)])


def _reopened_row(run: Run) -> tuple[object, ...]:
    return (
        run.status.value,
        run.completed_at,
        run.error,
        run.cancel_requested_at,
        run.parent_task,
        run.rollback,
        run.rollback_cause,
        run.rollback_number,
        run.run_id,
    )


def begin_next_rollback(
    conn: sa.Connection, compensation: Task, now: int, *, after: RunId | None = None
) -> list[EndedRun] | None:
    """Roll back the next run that the compensation undoes; None if there is none.

    `after` is the run whose rollback has ended. The runs are returned that are over at once.
    """
    [undone] = map(task_of, bulk.fetch_rows(conn, _TASK, [undone_task_id(compensation)]))
    found = next_run_to_undo(conn, undone, now, undoing=compensation.task_id, after=after)
    return None if found is None else _begin(conn, found)


def _begin(conn: sa.Connection, found: RunToUndo) -> list[EndedRun]:
    if found.advance is not None:
        return begin_rollback(conn, *found.advance)
    bulk.execute_many(conn, _SET_PARENT, [(found.run.parent_task, found.run.run_id)])
    return []


def undone_runs(conn: sa.Connection, compensation: Task) -> AttemptOutcome:
    """The outcome of a compensation that has waited for runs, none of which is left to be rolled back."""
    [undone] = map(task_of, bulk.fetch_rows(conn, _TASK, [undone_task_id(compensation)]))
    return undone_runs_outcome(runs_of(conn, undone))


# ---- tasks of the engine -------------------------------------------------------------------------


class EngineTaskEnd(NamedTuple):
    """The end of a task that the engine executed: a fan-out, a sub-run or a step without work."""

    task: Task
    run: Run
    graph: Workflow
    outcome: AttemptOutcome
    at: int


def end_engine_tasks(conn: sa.Connection, ended_tasks: Sequence[EngineTaskEnd]) -> list[EndedTask]:
    """Write the ends of these tasks; return the tasks that are not retried."""
    if not ended_tasks:
        return []
    ends = [(_completion(one), one) for one in ended_tasks]
    write_attempt_ends(conn, [AttemptEnd(of.task.state, ended) for ended, of in ends])
    return [EndedTask(ended, of.run, ended.error, of.at, of.task.parent) for ended, of in ends if ended.over]


def _completion(one: EngineTaskEnd) -> TaskCompletion:
    step = one.graph.step(one.task.step) or one.graph.steps[0]
    held = Assignment(task=one.task, run=one.run, workflow=one.graph, step=step, input={})
    outcome = outcome_by_deadline(one.task, one.outcome, now=one.at)
    completion = complete_attempt(held, outcome, now=one.at, limits=GiveUpLimits())
    return completion if one.run.cancel_requested_at is None else cancel_instead_of_retry(completion)


def _count_ended_items(conn: sa.Connection, items: Sequence[EndedTask]) -> list[EngineTaskEnd]:
    """Count the ended items off their steps and release as many others; return the steps whose last item has ended."""
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
            continue
        limited = _limits_parallelism(graph, parent)
        add_due_lots(conn, parent, last.run, ended=len(ended), limited=limited, now=last.at)
        if limited:
            following = _NEXT_ITEMS_TO_UNDO if is_compensation(parent.step) else _NEXT_ITEMS
            bulk.execute_statement(conn, following, last.at, parent.task_id, len(ended))
    return done


def _failed(item: EndedTask) -> bool:
    return item.task.state is not TaskState.SUCCEEDED


def _limits_parallelism(graph: Workflow, parent: Task) -> bool:
    step = graph.step(parent.step)
    return step is not None and step.max_parallel is not None


def fan_out_outcome(conn: sa.Connection, parent: Task, run: Run) -> AttemptOutcome:
    """The outcome of a step whose items have all ended."""
    [(count, size)] = bulk.fetch_rows(conn, _SIZE_OF_ITEMS, run.run_id, parent.task_id)
    items = ItemTotals(count=count, failed=parent.failed_items, size=int(size))
    found = bulk.fetch_rows(conn, _OF_ITEMS, run.run_id, parent.task_id) if items.joined else ()
    outputs = [unsealed(conn, task_id, "output", body) for task_id, body in found]
    return items_outcome(items, outputs, cancelled=run.cancel_requested_at is not None)


def _end_awaiting_steps(conn: sa.Connection, ended: Sequence[EndedRun]) -> tuple[list[EngineTaskEnd], list[EndedRun]]:
    """The ends of the steps that waited for these runs; and of runs whose rollback began instead, and is over."""
    by_parent = {str(one.run.parent_task): one for one in ended if one.run.parent_task is not None}
    done, over = list[EngineTaskEnd](), list[EndedRun]()
    for task, run in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, sorted(by_parent)) if by_parent else ()):
        one = by_parent[task.task_id]
        workflow = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
        if workflow is None or task.state is not TaskState.RUNNING:
            continue
        if is_compensation(task.step):
            begun = begin_next_rollback(conn, task, one.at, after=one.run.run_id)
            if begun is None:
                done.append(EngineTaskEnd(task, run, workflow, undone_runs(conn, task), one.at))
            else:
                over += begun
        elif one.run.run_id == sub_run_id(task):
            done.append(EngineTaskEnd(task, run, workflow, sub_run_outcome(conn, one), one.at))
    return done, over


def sub_run_outcome(conn: sa.Connection, ended: EndedRun) -> AttemptOutcome:
    """The outcome of the step that waited for this run."""
    run = replace(ended.run, status=ended.status, error=run_error(ended.run, ended.status, ended.error))
    if run.status is not RunStatus.COMPLETED:
        return run_outcome(run, None, {})
    workflow = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
    rows = bulk.fetch_rows(conn, _OF_STEPS, run.run_id)
    found = {step: unsealed(conn, task_id, "output", body) for step, task_id, body in rows}
    order = [step.name for step in topological_order(workflow)] if workflow is not None else sorted(found)
    return run_outcome(run, workflow, {name: found[name] for name in order if name in found})
