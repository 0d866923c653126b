"""What is asked for often is read off an index, however long the history is and however many schedules there are."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from contracts.store import EVERYTHING, MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore, book, history, ledger, open_sqlite, runs
from gnomon.adapters.sql.unreadable import MOST, Unreadable
from gnomon.core.keys import SHARDS
from gnomon.core.model import Overlap, RunStatus
from gnomon.core.plan import plan

SOME = frozenset(range(100))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(str(tmp_path / "gnomon.db"))
    await store.add([minutely(overlap=Overlap.REPLACE)], actor="ada", tzdata="")
    terms = await store.claim("node", ttl_ms=1000, limit=SHARDS)
    for minute in (1, 2):
        found = await store.find("default", "report")
        assert found is not None
        await store.decide([plan(found, now=NOON + minute * MINUTE)], now=NOON + minute * MINUTE, terms=terms)
    yield store
    await store.close()


UID = minutely().uid
READABLE = Unreadable()


def _some_unreadable() -> Unreadable:
    unreadable = Unreadable()
    unreadable.pairs = frozenset((f"sch_{number}", 1) for number in range(MOST))
    return unreadable


QUERIES: dict[str, Callable[[sa.Connection], Any]] = {
    "due": lambda conn: ledger.due(conn, NOON, EVERYTHING, 10, READABLE),
    "due of some shards": lambda conn: ledger.due(conn, NOON, SOME, 10, READABLE),
    "next due": lambda conn: ledger.next_due_at(conn, EVERYTHING, READABLE),
    "next due of some shards": lambda conn: ledger.next_due_at(conn, SOME, READABLE),
    "due but for unreadable ones": lambda conn: ledger.due(conn, NOON, SOME, 10, _some_unreadable()),
    "next due but for unreadable ones": lambda conn: ledger.next_due_at(conn, EVERYTHING, _some_unreadable()),
    "terms": lambda conn: ledger.terms_of(conn, [1, 2]),
    "find": lambda conn: book.find(conn, "default", "report"),
    "page": lambda conn: book.page(conn, "default", "", 10, READABLE),
    "ticks": lambda conn: history.ticks(conn, UID, NOON * 2, 10),
    "runs": lambda conn: history.runs(conn, UID, NOON * 2, 10),
    "tasks": lambda conn: history.tasks(conn, history.runs(conn, UID, NOON * 2, 10)),
    "revisions": lambda conn: history.revisions(conn, UID),
    "pauses": lambda conn: history.pauses(conn, UID),
    "finish": lambda conn: [
        runs.finish(conn, run.run_id, RunStatus.COMPLETED, NOON) for run in history.runs(conn, UID, NOON * 2, 10)
    ],
    "supersede": lambda conn: runs.supersede(conn, [UID], NOON),
}


@pytest.mark.parametrize("asked", QUERIES.values(), ids=QUERIES)
async def test_no_query_walks_through_a_table_or_sorts(store: SqlStore, asked: Callable[[sa.Connection], Any]) -> None:
    plans: list[str] = []

    def explained(conn: sa.Connection) -> None:
        @sa.event.listens_for(conn, "before_cursor_execute")
        def explain(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:  # noqa: ANN401
            if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE")) and not isinstance(parameters, list):
                cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans.extend(f"{row[3]} <- {statement}" for row in cursor.fetchall())

        asked(conn)

    await store.transactions.write(explained)

    assert plans
    assert [step for step in plans if "TEMP B-TREE" in step or _walks(step)] == []


def _walks(step: str) -> bool:
    """A scan is a walk through all of it, but for an index that is read in order until enough is found."""
    return step.startswith("SCAN") and "USING" not in step and "CONSTANT ROWS" not in step
