"""Runs, tasks and attempts: rows to values and back.

Every run is read and written several times, so nothing here is general: a value is made of the columns one by one.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.sql import tables
from gnomon.core.model import Attempt, DeadLetter, Result, Run, RunStatus, Source, Task
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.states import TaskState, WaitReason

#: Whatever a driver gives for a row; its types are those of the columns.
Row = Sequence[Any]
E = TypeVar("E", bound=StrEnum)


def _columns(table: sa.Table, kind: type[Struct]) -> tuple[sa.Column[Any], ...]:
    """The columns of a value, in the order of its fields, whatever their order in the table."""
    return tuple(table.c[name] for name in kind.__struct_fields__)


RUN = _columns(tables.run, Run)
TASK = _columns(tables.task, Task)
ATTEMPT = _columns(tables.attempt, Attempt)
DEAD_LETTER = _columns(tables.dead_letter, DeadLetter)
_TASK_ENDS = len(TASK)
_RUN_ENDS = _TASK_ENDS + len(RUN)


def named(columns: Iterable[sa.Column[Any]], table: str | None = None) -> str:
    """The columns as they stand in a statement of text, under another name of their table if it has one there."""
    return ", ".join(f"{table or column.table.name}.{column.name}" for column in columns)


def _by_value(kind: type[E]) -> dict[str, E]:
    return {one.value: one for one in kind}


_SOURCES, _STATUSES = _by_value(Source), _by_value(RunStatus)
_STATES, _WAITS = _by_value(TaskState), _by_value(WaitReason)


# ---- runs ----------------------------------------------------------------------------------------

#: What a new run says; all else comes later.
NEW_RUN = tuple(column.name for column in RUN[: Run.__struct_fields__.index("started_at")])
#: What a run says besides, if somebody wanted it.
WANTED_RUN = (*NEW_RUN, "idempotency_key", "replay_of", "parent_task", "depth")


def run_row(run: Run) -> tuple[Any, ...]:
    """A new run as a row of NEW_RUN, which is how its table begins."""
    return (
        run.run_id,
        run.tenant,
        run.schedule_uid,
        run.schedule_id,
        run.workflow_id,
        run.workflow_version,
        run.user_id,
        run.source.value,
        run.status.value,
        run.queued,
        run.planned_at,
        run.fire_at,
        run.created_at,
    )


def wanted_row(run: Run) -> tuple[Any, ...]:
    """A new run as a row of WANTED_RUN."""
    return (*run_row(run), run.idempotency_key, run.replay_of, run.parent_task, run.depth)


def run_of(row: Row) -> Run:
    """The run that stands in a row of RUN."""
    run_id, tenant, schedule_uid, schedule_id, workflow_id, workflow_version, user_id, source, status, queued = row[:10]
    planned_at, fire_at, created_at, started_at, completed_at, cancel_requested_at, error, key, replay_of = row[10:19]
    parent_task, depth = row[19:]
    return Run(
        run_id=run_id,
        tenant=tenant,
        schedule_uid=schedule_uid,
        schedule_id=schedule_id,
        workflow_id=workflow_id,
        workflow_version=workflow_version,
        user_id=user_id,
        source=_SOURCES[source],
        status=_STATUSES[status],
        # SQLite has no truth values, only numbers.
        queued=bool(queued),
        planned_at=planned_at,
        fire_at=fire_at,
        created_at=created_at,
        started_at=started_at,
        completed_at=completed_at,
        cancel_requested_at=cancel_requested_at,
        error=error,
        idempotency_key=key,
        replay_of=replay_of,
        parent_task=parent_task,
        depth=depth,
    )


# ---- tasks ---------------------------------------------------------------------------------------


def task_row(task: Task) -> tuple[Any, ...]:
    """The task as its table begins: before its first attempt there is no more to say."""
    return (
        task.task_id,
        task.tenant,
        task.run_id,
        task.step,
        task.state.value,
        task.wait_reason.value,
        task.available_at,
        task.created_at,
    )


#: What a new task says if it has a place in a graph: most have none.
NEW_STEP = (*(column.name for column in TASK[:8]), "note", "skipped", "upstream_failed")
NEW_ITEM = (*(column.name for column in TASK[:8]), "parent", "item", "has_input")
#: What the rest of a row of TASK says if the task has no place in a graph.
_NO_PLACE = (None, None, False, False, 0, 0)


def step_row(task: Task) -> tuple[Any, ...]:
    """The task of a step of a run that goes on as a row of NEW_STEP."""
    return (*task_row(task), task.note, task.skipped, task.upstream_failed)


def item_row(task: Task) -> tuple[Any, ...]:
    """The task of an item as a row of NEW_ITEM. What each is given is kept for it."""
    return (*task_row(task), task.parent, task.item, True)


def task_of(row: Row) -> Task:
    """The task that stands in a row of TASK."""
    task_id, tenant, run_id, step, state, wait_reason, available_at, created_at = row[:8]
    attempts, fence, losses, routings, note = row[8:13]
    task = Task(
        task_id=task_id,
        tenant=tenant,
        run_id=run_id,
        step=step,
        state=_STATES[state],
        wait_reason=_WAITS[wait_reason],
        available_at=available_at,
        created_at=created_at,
        attempts=attempts,
        fence=fence,
        losses=losses,
        routings=routings,
        note=note,
    )
    return task if row[13:] == _NO_PLACE else _placed(task, row[13:])


def _placed(task: Task, row: Row) -> Task:
    parent, item, skipped, upstream_failed, open_items, failed_items = row
    return replace(
        task,
        parent=parent,
        item=item,
        skipped=bool(skipped),
        upstream_failed=bool(upstream_failed),
        open_items=open_items,
        failed_items=failed_items,
    )


def task_and_run_of(row: Row) -> tuple[Task, Run]:
    """The task and the run that stand in a row of TASK and RUN."""
    return task_of(row[:_TASK_ENDS]), run_of(row[_TASK_ENDS:_RUN_ENDS])


def waiting_of(row: Row) -> Waiting:
    """What stands in a row of TASK, RUN, the input of the run and that of the task itself."""
    task, run = task_and_run_of(row)
    return Waiting(task=task, run=run, input=row[_RUN_ENDS], own_input=row[_RUN_ENDS + 1])


# ---- attempts and dead letters -------------------------------------------------------------------


def attempt_of(row: Row) -> Attempt:
    """The attempt that stands in a row of ATTEMPT."""
    task_id, number, worker, lease_until, dispatched_at, started_at, ended_at, result, error = row
    return Attempt(
        task_id=task_id,
        number=number,
        worker=worker,
        lease_until=lease_until,
        dispatched_at=dispatched_at,
        started_at=started_at,
        ended_at=ended_at,
        result=None if result is None else Result(result),
        error=error,
    )


def dead_letter_row(letter: DeadLetter) -> tuple[Any, ...]:
    """The dead letter as a row."""
    return msgspec.structs.astuple(letter)


def dead_letter_of(row: Row) -> DeadLetter:
    """The dead letter that stands in a row of DEAD_LETTER."""
    return DeadLetter(**dict(zip(DeadLetter.__struct_fields__, row, strict=True)))
