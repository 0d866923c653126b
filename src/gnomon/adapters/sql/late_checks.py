"""Checks of outputs that are stored: what follows if one may not stay, in one transaction.

Every copy that the engine itself has made goes with the output: a step with items has the outputs of all of them, and a
step that waits for a run has those of its last steps. Both are made again from what is left. The stored inputs of steps
that have read it go, too, once they are over. The results of these steps stay, and the record names them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, dead_letters, output_rulings
from gnomon.adapters.sql.advances import STEPS, AdvancingRun
from gnomon.adapters.sql.after_commit import notify_runs
from gnomon.adapters.sql.completion import EndedRun, insert_payloads
from gnomon.adapters.sql.graph import (
    LOCKED_TASKS,
    advance_runs,
    cascade_run_ends,
    fan_out_outcome,
    lock_counters,
    sub_run_outcome,
)
from gnomon.adapters.sql.rows import RUN, TASK, column_list, load_workflow, run_of, task_and_run_of, task_of
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.model import Run, Task
from gnomon.core.output_policy.late import (
    LateCheck,
    LateResult,
    has_read,
    is_last_step,
    is_under_way,
    late_note,
    late_record,
    needs_stored_input,
    reader_name,
    referring_tasks,
    runs_with_input_of,
    steps_to_decide_again,
)
from gnomon.core.output_policy.ruling import OUTPUT_QUARANTINED, OutputDecision
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Workflow

_WITH_RUN = f"{column_list(TASK)}, {column_list(RUN)}"
_OLDEST = bulk.statement(
    f"SELECT output_check.added_at, {_WITH_RUN} FROM output_check"  # noqa: S608 - our own names, here and below
    " JOIN task ON task.task_id = output_check.task_id JOIN run ON run.run_id = task.run_id"
    " ORDER BY output_check.added_at, output_check.task_id LIMIT ?"
)
_SETTLE = bulk.statement("DELETE FROM output_check WHERE task_id = ? RETURNING task_id")
_TASK = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE task_id = ?")  # noqa: S608
_RUN = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id = ?")  # noqa: S608
_RUNS = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id")  # noqa: S608
_OF_RUN = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE run_id = ?")  # noqa: S608
_FORGET = bulk.statement("DELETE FROM task WHERE task_id IN KEYS")
_DROP_OUTPUT = bulk.statement("DELETE FROM payload WHERE owner_id = ? AND kind = 'output'")
_DROP_INPUTS = bulk.statement("DELETE FROM payload WHERE owner_id IN KEYS AND kind = 'input'")
_DROP_LETTER_INPUTS = bulk.statement("UPDATE dead_letter SET input = NULL WHERE dead_letter_id IN KEYS")
_HOLD_BACK = state_update("note")


def oldest(conn: sa.Connection, limit: int) -> Sequence[LateCheck]:
    """See LateChecks.oldest."""
    found = []
    for at, *row in bulk.fetch_rows(conn, _OLDEST, limit):
        task, run = task_and_run_of(row)
        found.append(LateCheck(task=task, run=run, added_at=at))
    return found


def settle(conn: sa.Connection, check: LateCheck, result: LateResult, now: int) -> bool:
    """See LateChecks.settle."""
    run_id, task_id = check.run.run_id, check.task.task_id
    counters = lock_counters(conn, [(run_id, check.run.schedule_uid)])
    locked = [task_and_run_of(row) for row in bulk.fetch_rows(conn, LOCKED_TASKS, [task_id])]
    if not list(bulk.fetch_rows(conn, _SETTLE, task_id)):
        return False
    notify_runs(conn, lambda observer: observer.checked_late([result]))
    ruling = result.ruling
    if ruling is None or not result.changes_output or not locked or locked[0][0].state is not TaskState.SUCCEEDED:
        return True
    [(task, run)] = locked
    held = ruling.decision is OutputDecision.QUARANTINE
    bulk.execute_statement(conn, _DROP_OUTPUT, task_id)
    if held:
        note = late_note(ruling)
        change = StateChange(task_id, task.state, TaskState.OUTPUT_QUARANTINED, (note,))
        write_changes(conn, _HOLD_BACK, [change])
        dead_letters.write(conn, [dead_letters.FailedTask(task_id, OUTPUT_QUARANTINED, note, now)])
    elif ruling.redacted is not None:
        insert_payloads(conn, [(task_id, "output", ruling.redacted)])
    referring = [one for place in _places(conn, task, run) for one in _referring(conn, place)]
    _drop_inputs(conn, referring)
    names = [reader_name(one, run) for one in referring if has_read(one)]
    record = late_record(LateCheck(task=task, run=run, added_at=check.added_at), ruling, names, now=now)
    output_rulings.write_late(conn, record, result.held)
    if held and result.workflow is not None and task.parent is None and not is_compensation(task.step):
        cascade_run_ends(conn, _decided_again(conn, task, run, result.workflow, now), counters)
    return True


class _Place(NamedTuple):
    """A step whose output is the one in question, or holds a copy of it."""

    run: Run
    step: str


def _places(conn: sa.Connection, task: Task, run: Run) -> list[_Place]:
    """The step of the task, and all those above it; the outputs of these are made again."""
    found = [_Place(run, task.step)]
    while True:
        above = _task(conn, task.parent or run.parent_task)
        if above is None:
            return found
        [above_run] = map(run_of, bulk.fetch_rows(conn, _RUN, above.run_id))
        if above.state is not TaskState.SUCCEEDED or is_compensation(above.step):
            return found
        if task.parent is None and not is_last_step(_workflow(conn, run), task.step):
            return found
        if task.parent is not None:
            output = fan_out_outcome(conn, above, above_run).output
        else:
            output = sub_run_outcome(conn, EndedRun(run, run.status, run.error, run.completed_at or 0)).output
        bulk.execute_statement(conn, _DROP_OUTPUT, above.task_id)
        insert_payloads(conn, [(above.task_id, "output", output)] if output is not None else [])
        task, run = above, above_run
        found.append(_Place(run, task.step))


def _task(conn: sa.Connection, name: str | None) -> Task | None:
    return None if name is None else next(map(task_of, bulk.fetch_rows(conn, _TASK, name)), None)


def _drop_inputs(conn: sa.Connection, tasks: Sequence[Task]) -> None:
    """Delete the stored inputs that no task still needs."""
    if names := [one.task_id for one in tasks if not needs_stored_input(one)]:
        bulk.execute_statement(conn, _DROP_INPUTS, names)


def _referring(conn: sa.Connection, place: _Place) -> list[Task]:
    """The tasks that refer to the output of the step, and all of the runs that got it with their input."""
    run = place.run
    workflow = _workflow(conn, run)
    tasks = map(task_of, bulk.fetch_rows(conn, _OF_RUN, run.run_id))
    found = referring_tasks(workflow, place.step, tasks)
    started = runs_with_input_of(workflow, found)
    while started:
        below = list(map(run_of, bulk.fetch_rows(conn, _RUNS, started)))
        started = []
        for one in below:
            tasks_below = [task_of(row) for row in bulk.fetch_rows(conn, _OF_RUN, one.run_id)]
            if one.over:
                _forget_input(conn, one, tasks_below)
            started += runs_with_input_of(_workflow(conn, one), tasks_below)
            found += tasks_below
    return found


def _forget_input(conn: sa.Connection, run: Run, tasks: Sequence[Task]) -> None:
    """Delete the input of a run, and the copies in the dead letters of its tasks."""
    bulk.execute_statement(conn, _DROP_INPUTS, [run.run_id])
    bulk.execute_statement(conn, _DROP_LETTER_INPUTS, [dead_letter_id(one.task_id) for one in tasks])


def _workflow(conn: sa.Connection, run: Run) -> Workflow | None:
    return load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)


def _decided_again(conn: sa.Connection, task: Task, run: Run, workflow: Workflow, now: int) -> Sequence[EndedRun]:
    """Let the run go on as if the step had failed; return it if that was its last step."""
    if workflow.is_single_step:
        return []
    steps = list(map(task_of, bulk.fetch_rows(conn, STEPS, [run.run_id])))
    if not is_under_way(run, steps):
        return []
    if names := steps_to_decide_again(workflow, task.step, steps):
        bulk.execute_statement(conn, _FORGET, names)
    return advance_runs(conn, [AdvancingRun(run, workflow, now)])
