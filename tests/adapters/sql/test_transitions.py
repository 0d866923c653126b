"""Statements that write task states: what the builder makes and refuses, and that no other module makes any."""

import ast
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

import gnomon
from contracts.store import NOON, minutely
from gnomon.adapters.sql import SqlStore, open_sqlite, schema
from gnomon.adapters.sql.transitions import StateChange, insert_tasks, state_update, transition, write_changes
from gnomon.core.model import Overlap, RunId, RunSource, Task
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import INITIAL, TRANSITIONS, TaskState
from gnomon.errors import IllegalTransition
from support.sqlite_files import new_sqlite_file

SOURCE = Path(gnomon.__file__).parent
EDGES = {(before, after) for before, exits in TRANSITIONS.items() for after in exits}
WRITE = state_update()

pytestmark = [pytest.mark.req("R-01"), pytest.mark.guarantee("S6")]


# ---- the builder ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), list(product(TaskState, TaskState)))
def test_a_statement_exists_for_every_edge_and_for_no_other_pair(before: TaskState, after: TaskState) -> None:
    if (before, after) in EDGES:
        made = transition([before], after)
        assert f"SET state = '{after}'" in made.sqlite
        assert f"AND task.state || '' = '{before}'" in made.sqlite
    else:
        with pytest.raises(IllegalTransition, match=f"^a statement cannot go from {before} to {after}$"):
            transition([before], after)


def test_a_statement_for_several_states_names_them_all() -> None:
    made = transition([TaskState.RUNNING, TaskState.DISPATCHED], TaskState.FAILED, also="note = NULL")

    assert made.postgresql == (
        "UPDATE task SET state = 'FAILED', note = NULL WHERE task_id = ANY ($1::text[])"
        " AND task.state || '' IN ('DISPATCHED', 'RUNNING')"
    )


def test_one_edge_that_is_missing_refuses_the_whole_statement() -> None:
    with pytest.raises(IllegalTransition):
        transition([TaskState.PENDING, TaskState.RUNNING], TaskState.OUTPUT_QUARANTINED)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))
    yield store
    await store.close()


async def tasks_in(store: SqlStore, states: list[TaskState]) -> list[Task]:
    """New tasks, inserted as PENDING and then written into these states."""
    owner = minutely(overlap=Overlap.ALLOW)
    await store.schedules.add([owner], actor="ada", tzdata="")
    runs = [new_requested_run(RunId(f"run_{n:03}"), owner, source=RunSource.API, now=NOON) for n in range(len(states))]
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
    tasks = sorted(await store.history.tasks(runs), key=lambda task: task.run_id)
    await set_states(store, tasks, states)
    return tasks


async def set_states(store: SqlStore, tasks: list[Task], states: list[TaskState]) -> None:
    """Write the states past the builder."""

    def write(conn: sa.Connection) -> None:
        for task, state in zip(tasks, states, strict=True):
            conn.execute(sa.update(schema.task).where(schema.task.c.task_id == task.task_id).values(state=state.value))

    await store.transactions.write(write)


async def states_of(store: SqlStore, tasks: list[Task]) -> list[TaskState]:
    query = sa.select(schema.task.c.task_id, schema.task.c.state)
    rows = await store.transactions.read(lambda conn: conn.execute(query).all())
    found = {task_id: TaskState(state) for task_id, state in rows}
    return [found[task.task_id] for task in tasks]


async def test_a_task_that_has_moved_on_is_left_alone(store: SqlStore) -> None:
    tasks = await tasks_in(store, list(TaskState))
    for before, after in sorted(EDGES):
        changes = [StateChange(task.task_id, before, after, ()) for task in tasks]

        await store.transactions.write(partial(write_changes, update=WRITE, changes=changes))

        assert await states_of(store, tasks) == [after if state is before else state for state in TaskState]
        await set_states(store, tasks, list(TaskState))


async def test_one_change_that_is_refused_keeps_all_others_from_being_written(store: SqlStore) -> None:
    tasks = await tasks_in(store, [TaskState.PENDING, TaskState.SUCCEEDED])
    changes = [
        StateChange(tasks[0].task_id, TaskState.PENDING, TaskState.SCHEDULED, ()),
        StateChange(tasks[1].task_id, TaskState.SUCCEEDED, TaskState.PENDING, ()),
    ]

    with pytest.raises(IllegalTransition, match=f"^{tasks[1].task_id} cannot go from SUCCEEDED to PENDING$"):
        await store.transactions.write(lambda conn: write_changes(conn, WRITE, changes))

    assert await states_of(store, tasks) == [TaskState.PENDING, TaskState.SUCCEEDED]


async def test_a_statement_for_tasks_that_change_alike_is_compiled_once(store: SqlStore) -> None:
    """A plain comparison of the state with a parameter concerns partial indexes: SQLite would plan it every time."""
    tasks = await tasks_in(store, [TaskState.PENDING] * 8)
    changes = [StateChange(task.task_id, TaskState.PENDING, TaskState.PENDING, ()) for task in tasks]

    def compiled(conn: sa.Connection) -> list[int]:
        driver = conn.connection.dbapi_connection
        assert driver is not None
        actions: list[int] = []

        def authorize(action: int, *_: object) -> int:
            actions.append(action)
            return sqlite3.SQLITE_OK

        # SQLite asks the authorizer when it compiles a statement. To set one expires the statements compiled before.
        driver.set_authorizer(authorize)
        try:
            write_changes(conn, WRITE, changes)
            assert sqlite3.SQLITE_UPDATE in actions
            actions.clear()
            write_changes(conn, WRITE, changes)
        finally:
            driver.set_authorizer(None)
        return actions

    assert sqlite3.SQLITE_UPDATE not in await store.transactions.write(compiled)


def test_tasks_that_change_alike_are_not_searched_by_their_state() -> None:
    # Without current statistics PostgreSQL would read all SCHEDULED tasks to cancel a few of them.
    assert WRITE.rows.alike.postgresql == (
        "UPDATE task SET state = $1 WHERE task_id = ANY ($2::text[]) AND state || '' = $3"
    )


@pytest.mark.parametrize("state", list(TaskState))
async def test_a_task_is_inserted_in_an_initial_state_only(store: SqlStore, state: TaskState) -> None:
    [task] = await tasks_in(store, [TaskState.PENDING])
    new = replace(task, task_id=f"{task.task_id}_2", state=state)
    if state in INITIAL:
        await store.transactions.write(lambda conn: insert_tasks(conn, [new]))
        assert await states_of(store, [new]) == [state]
    else:
        with pytest.raises(IllegalTransition, match=f"cannot be created as {state}$"):
            await store.transactions.write(lambda conn: insert_tasks(conn, [new]))


# ---- no other module writes states ---------------------------------------------------------------

_SETS_STATE = re.compile(r"\bUPDATE\s+(?:OR\s+\w+\s+)?task\b\s+SET\b(?:(?!\bWHERE\b).)*?\bstate\s*=", re.DOTALL)
_MAY_WRITE = re.compile(r"\b(UPDATE|INTO|schema\.task)\b")
_INSERTS_TASK = re.compile(r"\bINTO\s+task\b")


def texts(tree: ast.AST) -> Iterator[str]:
    """All strings of a module; what an f-string computes is left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def writes(source: str) -> list[str]:
    """The places of a module that may write a task state or insert a task."""
    tree = ast.parse(source)
    found = [text for text in texts(tree) if _SETS_STATE.search(text) or _INSERTS_TASK.search(text)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(ast.unparse(one) == "schema.task" for one in node.args):
            name = ast.unparse(node.func).rsplit(".", 1)[-1]
            inserts = name in ("insert", "update", "insert_statement", "insert_rows")
            if inserts or (name == "update_statement" and not _leaves_state_alone(node)):
                found.append(ast.unparse(node))
    return found


def _leaves_state_alone(call: ast.Call) -> bool:
    columns = call.args[1]
    if not isinstance(columns, ast.Tuple):
        return False
    return all(isinstance(one, ast.Constant) and one.value != "state" for one in columns.elts)


@pytest.mark.parametrize(
    "source",
    [
        "x = \"UPDATE task SET state = 'RUNNING' WHERE task_id IN KEYS\"",
        'x = f"WITH a AS (UPDATE task SET note = NULL, state = $1 WHERE {those})"',
        'x = "UPDATE OR FAIL task SET fence = 1,\\n state=?"',
        'x = "INSERT INTO task (task_id) VALUES (?)"',
        'x = bulk.update_statement(schema.task, ("state", "note"), by=("task_id",))',
        'x = bulk.update_statement(schema.task, _COLUMNS, by=("task_id",))',
        "bulk.insert_rows(conn, schema.task, rows)",
        "sa.update(schema.task).values(state=1)",
    ],
)
def test_a_write_of_a_state_is_seen_in_every_spelling(source: str) -> None:
    assert writes(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = \"UPDATE task SET note = ? WHERE state = 'PENDING'\"",
        'x = "UPDATE task_log SET state = ?"',
        'x = bulk.update_statement(schema.task, ("note",), by=("task_id",))',
    ],
)
def test_other_writes_are_not_taken_for_one(source: str) -> None:
    assert not writes(source)


def test_no_module_but_the_builder_writes_task_states() -> None:
    # Migrations change the tables, and the declarative library has a table of its own with the same name.
    paths = [path for path in SOURCE.rglob("*.py") if not {"migrations", "declarative"} & set(path.parts)]
    candidates = {path.name: text for path in paths if _MAY_WRITE.search(text := path.read_text())}

    assert [name for name, text in candidates.items() if writes(text)] == ["transitions.py"]
