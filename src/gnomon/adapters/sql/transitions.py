"""Writes of task states: the only module that makes statements which set `task.state` or insert tasks.

Every statement is made from the states that a task may be in and the state that it gets. An edge that the table of
transitions lacks raises IllegalTransition: when the module that declares the statement is imported, or, if the next
state is computed for each task, before the row is written. Every statement also has the state that the task must be in
in its WHERE clause. A task that another transaction has moved on meanwhile is left alone, as with any compare-and-set.

Without the check a mistake in a service could revive a task that is over; without the condition so could a report that
comes too late. A test in `tests/adapters/sql/test_transitions.py` fails if another module writes a state.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import task_row
from gnomon.core.model import Task
from gnomon.core.runs.states import TaskState, check_initial, check_transition


def transition_sql(
    before: Collection[TaskState], after: TaskState, *, where: str, also: str = "", by_state: bool = False
) -> str:
    """The UPDATE that moves the tasks of the condition to a state, and sets other columns with them.

    `by_state` lets the database find the tasks by an index on their state. It is off for tasks that are found by their
    ids: without statistics PostgreSQL would read all SCHEDULED tasks to find the few that a worker takes.
    """
    for state in before:
        check_transition("a statement", state, after)
    columns = f"state = '{after}'" + (f", {also}" if also else "")
    condition = state_in(before, "task.state" if by_state else "task.state || ''")
    return f"UPDATE task SET {columns} WHERE {where} AND {condition}"  # noqa: S608 - our own names


def state_in(states: Collection[TaskState], column: str = "task.state") -> str:
    """The condition that a task is in one of the states."""
    names = ", ".join(f"'{state}'" for state in sorted(states))
    return f"{column} = {names}" if len(states) == 1 else f"{column} IN ({names})"


def transition(before: Collection[TaskState], after: TaskState, *, also: str = "") -> bulk.Statement:
    """The statement that moves tasks to a state; its parameter is the list of their ids."""
    return bulk.statement(transition_sql(before, after, where="task_id IN KEYS", also=also))


class StateChange(NamedTuple):
    """A task, the state in which it was read, its next state, and the values of the columns set with it."""

    task_id: str
    before: TaskState
    after: TaskState
    values: tuple[object, ...]


class StateUpdate(NamedTuple):
    """The statement for tasks whose next states differ. Only `write_changes` executes it."""

    rows: bulk.BulkUpdate


def state_update(*also: str) -> StateUpdate:
    """The statement that sets the state and these columns of tasks that are still in the state they were read in."""
    return StateUpdate(
        bulk.update_statement(schema.task, ("state", *also), by=("task_id", "state"), unindexed=("state",))
    )


def write_changes(conn: sa.Connection, update: StateUpdate, changes: Sequence[StateChange]) -> None:
    """Write the changes; IllegalTransition, and no write at all, if the table of transitions lacks one of them."""
    for one in changes:
        check_transition(one.task_id, one.before, one.after)
    rows = [(one.after._value_, *one.values, one.task_id, one.before._value_) for one in changes]
    bulk.execute_many(conn, update.rows, rows)


def insert_tasks(
    conn: sa.Connection,
    tasks: Sequence[Task],
    row_of: Callable[[Task], tuple[Any, ...]] = task_row,
    columns: tuple[str, ...] = (),
) -> None:
    """Insert new tasks, each as the row that `row_of` makes of it; those with deadlines in a statement of their own."""
    for task in tasks:
        check_initial(task.task_id, task.state)
    bulk.insert_rows(conn, schema.task, [row_of(task) for task in tasks if task.deadline_at is None], columns)
    limited = [(*row_of(task), task.deadline_at) for task in tasks if task.deadline_at is not None]
    if limited:
        names = columns or tuple(column.name for column in schema.task.columns)[: len(limited[0]) - 1]
        bulk.insert_rows(conn, schema.task, limited, (*names, "deadline_at"))
