"""Writes rows into any store that no service would write."""

from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import SqlStore, schema
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.model import RunStatus, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.ports.store import Store

#: Changes a column of a table where another one has a value, or deletes the row if there is no column.
EditRow = Callable[[str, str, str, str | None, object], Awaitable[None]]
#: Writes the state of a task, as the store itself does: the task, its state before, and after.
WriteState = Callable[[TaskId, TaskState, TaskState], Awaitable[None]]
_KINDS: dict[str, Any] = {"state": TaskState, "status": RunStatus}


def memory_row_editor(store: MemoryStore) -> EditRow:
    """Edits rows of a store in memory."""

    async def plant(table: str, key: str, name: str, column: str | None, value: object) -> None:
        rows: dict[Any, Any] = getattr(store.state, f"{table}s")
        for held, row in list(rows.items()):
            if getattr(row, key) != name:
                continue
            if column is None:
                del rows[held]
                continue
            changed = replace(row, **{column: _KINDS[column](value) if column in _KINDS else value})
            if table == "task":
                store.state.tasks._put(changed)  # noqa: SLF001 - past the check of transitions
            else:
                rows[held] = changed

    return plant


def memory_state_writer(store: MemoryStore) -> WriteState:
    """Write a state as the store itself does."""

    async def write(task_id: TaskId, before: TaskState, after: TaskState) -> None:
        tasks = store.state.tasks
        assert tasks[task_id].state is before
        tasks[task_id] = replace(tasks[task_id], state=after)

    return write


def transactions_of(store: Store) -> Transactions:
    """The transactions of a store on SQL."""
    assert isinstance(store, SqlStore)
    return store.transactions


def sql_row_editor(store: Store) -> EditRow:
    """Edits rows of a store on SQL."""

    async def plant(table: str, key: str, name: str, column: str | None, value: object) -> None:
        found = schema.metadata.tables[table]
        here = found.c[key] == name
        change = (
            sa.delete(found).where(here) if column is None else sa.update(found).where(here).values({column: value})
        )
        await transactions_of(store).write(lambda conn: conn.execute(change))

    return plant


_WRITE_STATE = state_update()


def sql_state_writer(store: SqlStore) -> WriteState:
    """Write a state as the store itself does."""

    async def write(task_id: TaskId, before: TaskState, after: TaskState) -> None:
        change = StateChange(task_id, before, after, ())
        await store.transactions.write(lambda conn: write_changes(conn, _WRITE_STATE, [change]))

    return write
