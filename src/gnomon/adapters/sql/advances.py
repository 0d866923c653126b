"""The decision how a run goes on, with what the rows of its items and of its sub-runs say.

It only reads. `graph.py` writes what follows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.payloads import unsealed
from gnomon.adapters.sql.rows import RUN, TASK, column_list, load_workflow, run_of, task_of
from gnomon.core.ids import task_id
from gnomon.core.model import ENGINE, Run, RunId, Task, TaskId
from gnomon.core.runs.advance import (
    RunAdvance,
    advance_run,
    may_roll_back,
    next_compensation,
    next_undone,
    rolled_back,
)
from gnomon.core.runs.launch import keyed_run_id, sub_run_ids
from gnomon.core.runs.rollback import UNDOABLE, RollbackStatus, UndoFact, is_compensation, undo_fact, undone_step
from gnomon.core.runs.workflow import COMPENSATION, Step, Workflow

#: The tasks of runs without those of items.
STEPS = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE run_id IN KEYS AND parent IS NULL")  # noqa: S608 - our own names, here and below
#: The runs of these in which a function has given up; a fan-out ends the same way if its items have failed.
_GAVE_UP = bulk.statement(
    "SELECT DISTINCT task.run_id FROM task JOIN attempt ON attempt.task_id = task.task_id"  # noqa: S608 - our own
    f" WHERE task.run_id IN KEYS AND task.state = 'FAILED' AND task.step NOT LIKE '{COMPENSATION}%'"
    f" AND attempt.result = 'gave_up' AND attempt.worker <> '{ENGINE}'"
)
_FAILED = bulk.statement(
    "SELECT run_id, task_id, tenant, fence FROM task WHERE run_id IN KEYS AND state = 'FAILED'"  # noqa: S608 - our own
    f" AND step NOT LIKE '{COMPENSATION}%'"
)
_RECORD = bulk.statement("SELECT owner_id, body FROM payload WHERE owner_id IN KEYS AND kind = 'compensation'")
_ORDER = bulk.statement("SELECT body FROM payload WHERE owner_id IN KEYS AND kind = 'rollback'")
_STEP_OF = bulk.statement("SELECT step FROM task WHERE task_id IN KEYS")
_UNDOABLE_STATES = ", ".join(f"'{state.value}'" for state in UNDOABLE)
_ITEMS = bulk.statement(
    "SELECT item, task_id, fence FROM task WHERE run_id = ? AND parent = ?"  # noqa: S608 - our own
    f" AND state IN ({_UNDOABLE_STATES}) ORDER BY item"
)
_ALL_ITEMS = bulk.statement("SELECT item, task_id, fence FROM task WHERE run_id = ? AND parent = ? ORDER BY item")
_UNDONE_ITEMS = bulk.statement(
    "SELECT item, step FROM task WHERE run_id = ? AND parent IS NOT NULL AND state = 'SUCCEEDED'"  # noqa: S608 - our own
    f" AND step LIKE '{COMPENSATION}%'"
)
_RUNS = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS")  # noqa: S608


class AdvancingRun(NamedTuple):
    """A run of which a step has ended, with its workflow."""

    run: Run
    graph: Workflow
    at: int
    #: The task of the step; None if it is not known.
    ended: TaskId | None = None


def decide_advance(conn: sa.Connection, of: AdvancingRun, tasks: Sequence[Task], *, gave_up: bool) -> RunAdvance:
    """The changes of one run, whose steps and compensations have these tasks. Nothing is read without need."""
    facts: dict[str, UndoFact] = {}
    while True:
        after = advance_run(of.run, of.graph, tasks, gave_up=gave_up, facts=facts, now=of.at)
        if after.asks is None:
            return after
        facts[after.asks] = _undo_fact(conn, of, tasks, after.asks)


def decide_next_undo(conn: sa.Connection, of: AdvancingRun) -> RunAdvance | None:
    """The next compensation of a run with many steps that is being rolled back, from its order; None: look at all."""
    run = of.run
    if of.ended is None or run.rollback is not RollbackStatus.RUNNING or not of.ended.startswith("comp-"):
        return None
    rows = bulk.fetch_rows(conn, _ORDER, [run.run_id])
    ended = bulk.fetch_rows(conn, _STEP_OF, [of.ended])
    if not rows or not ended or not is_compensation(ended[0][0]):
        return None
    body = unsealed(conn, run.run_id, "rollback", rows[0][0])
    stored = msgspec.json.decode(body, type=_UndoOrder) if body is not None else None
    if stored is None or stored.number != run.rollback_number:
        return None
    step = next_undone(run, of.graph, stored.steps, undone_step(ended[0][0]))
    if step is None:
        return None
    owner = task_id(run.run_id, step.name)
    records = [unsealed(conn, owner, "compensation", row[1]) for row in bulk.fetch_rows(conn, _RECORD, [owner])]
    if undo_fact(step, records) is not UndoFact.READY:
        return None
    return next_compensation(run, of.graph, step, of.at)


class _UndoOrder(Struct, frozen=True):
    """The order of a rollback, as it is stored."""

    number: int
    steps: list[str]


def stored_order(after: RunAdvance) -> bytes:
    """The order of a rollback that begins, to be stored."""
    return msgspec.json.encode(_UndoOrder(after.rollback_number, list(after.undo_order)))


def begun_rollback(conn: sa.Connection, begun: Run, now: int) -> tuple[AdvancingRun, RunAdvance] | None:
    """The first changes of a run whose rollback begins on request; None if there is nothing to undo."""
    workflow = load_workflow(conn, begun.tenant, begun.workflow_id, begun.workflow_version)
    if workflow is None or not workflow.may_be_undone:
        return None
    of = AdvancingRun(begun, workflow, now)
    after = decide_advance(conn, of, list(map(task_of, bulk.fetch_rows(conn, STEPS, [begun.run_id]))), gave_up=False)
    return (of, after) if after.made else None


def runs_that_gave_up(
    conn: sa.Connection, advancing: Iterable[AdvancingRun], tasks: Mapping[str, Sequence[Task]]
) -> Collection[str]:
    """The runs that may be rolled back in which a function has given up for good, or in one of their sub-runs."""
    asked = [
        one for one in advancing if one.graph.may_be_undone and may_roll_back(one.run, tasks.get(one.run.run_id, ()))
    ]
    found: set[str] = set()
    tops: dict[str, str] = {one.run.run_id: one.run.run_id for one in asked}
    nested = {one.run.run_id for one in asked if one.graph.runs_others}
    while tops:
        found |= {tops[name] for (name,) in bulk.fetch_rows(conn, _GAVE_UP, sorted(tops))}
        above = sorted(name for name, top in tops.items() if top in nested and top not in found)
        failed = bulk.fetch_rows(conn, _FAILED, above) if above else ()
        tops = {keyed_run_id(tenant, task, str(fence)): tops[run_id] for run_id, task, tenant, fence in failed if fence}
    return found


# ---- what there is to undo -----------------------------------------------------------------------


def _undo_fact(conn: sa.Connection, of: AdvancingRun, tasks: Sequence[Task], name: str) -> UndoFact:
    """The answer to the question what the undoing of the step finds."""
    step = of.graph.step(name)
    task = next((one for one in tasks if one.step == name), None)
    if step is None or task is None:
        return UndoFact.NOTHING
    if step.compensate is None:
        return UndoFact.READY if _has_runs_to_undo(conn, step, task, of.at) else UndoFact.NOTHING
    owners = _effects(conn, step, task)
    rows = bulk.fetch_rows(conn, _RECORD, owners) if owners else ()
    records = {owner: unsealed(conn, owner, "compensation", body) for owner, body in rows}
    return undo_fact(step, [records.get(owner) for owner in owners])


def _effects(conn: sa.Connection, step: Step, task: Task) -> list[str]:
    """The tasks of the step that have left an effect, and a record of its compensation."""
    if step.foreach is None:
        return [task.task_id] if task.state in UNDOABLE else []
    rows = {item: owner for item, owner, _ in bulk.fetch_rows(conn, _ITEMS, task.run_id, task.task_id)}
    return [rows[number] for number in sorted(rows.keys() - _undone_items(conn, task.run_id, step.name))]


def _undone_items(conn: sa.Connection, run_id: RunId, step: str) -> set[int]:
    """The items of the step that a compensation has undone, in any of the rollbacks of its run."""
    return {item for item, name in bulk.fetch_rows(conn, _UNDONE_ITEMS, run_id) if undone_step(name) == step}


def items_of_undone_step(conn: sa.Connection, run_id: RunId, step: Step) -> tuple[list[int], set[int]]:
    """The items of the step of which an effect may be left, and those that are undone.

    `step` is the compensation. Of runs that items have started, those that failed may have left an effect, too.
    """
    undone = undone_step(step.name)
    query = _ITEMS if step.workflow is None else _ALL_ITEMS
    found = [item for item, _, _ in bulk.fetch_rows(conn, query, run_id, task_id(run_id, undone))]
    return found, _undone_items(conn, run_id, undone)


def _has_runs_to_undo(conn: sa.Connection, step: Step, task: Task, now: int) -> bool:
    if step.foreach is None:
        return next_run_to_undo(conn, task, now) is not None
    rows = bulk.fetch_rows(conn, _ALL_ITEMS, task.run_id, task.task_id)
    items = {owner: replace(task, task_id=TaskId(owner), fence=fence) for _, owner, fence in rows}
    started = {name: one for one in items.values() for name in sub_run_ids(one)}
    # All runs at once: most have nothing to undo, and their workflows say so.
    versions: dict[tuple[str, str, int], bool] = {}
    for run in _found_runs(conn, list(started)).values():
        version = run.tenant, run.workflow_id, run.workflow_version
        if version not in versions:
            workflow = load_workflow(conn, *version)
            versions[version] = workflow is not None and workflow.may_be_undone
        if versions[version] and next_run_to_undo(conn, started[run.run_id], now) is not None:
            return True
    return False


class RunToUndo(NamedTuple):
    """A run of a step that is to be rolled back, and how that begins; None if that has begun."""

    run: Run
    advance: tuple[AdvancingRun, RunAdvance] | None


def runs_of(conn: sa.Connection, task: Task) -> list[Run]:
    """The runs that the attempts of a step have started, the last one first."""
    names = sub_run_ids(task)
    found = _found_runs(conn, names)
    return [found[name] for name in names if name in found]


def _found_runs(conn: sa.Connection, names: Sequence[RunId]) -> Mapping[RunId, Run]:
    rows = bulk.fetch_rows(conn, _RUNS, list(names)) if names else ()
    return {run.run_id: run for run in map(run_of, rows)}


def next_run_to_undo(
    conn: sa.Connection, task: Task, now: int, *, undoing: TaskId | None = None, after: RunId | None = None
) -> RunToUndo | None:
    """The next run of the step's task that is to be rolled back, the last one first.

    `undoing` is the compensation that will wait for it; `after` is the run for which it has waited before.
    """
    runs = runs_of(conn, task)
    names = [run.run_id for run in runs]
    for run in runs[names.index(after) + 1 :] if after in names else runs:
        if run.rollback is RollbackStatus.RUNNING:
            return RunToUndo(replace(run, parent_task=undoing or run.parent_task), None)
        if not run.over or run.rollback is RollbackStatus.COMPLETE:
            continue
        reason = "with the execution that it is a part of"
        begun = rolled_back(run, reason=reason, parent=undoing or task.task_id)
        found = begun_rollback(conn, begun, now)
        if found is not None:
            return RunToUndo(begun, found)
    return None
