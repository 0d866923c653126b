"""The table of logs of attempts that go on: ends leave nothing in it, and those without kept lines ask for nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from contracts.attempt_progress import AttemptProgressContract, said
from contracts.store import NOON
from gnomon.adapters.sql import SqlStore, schema
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import may_have_kept_log
from support.sqlite_files import open_new_sqlite
from support.task_steps import completion_of

ROWS = sa.select(sa.func.count()).select_from(schema.agent_log)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    made = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: NOON)
    yield made
    await made.close()


async def rows(store: SqlStore) -> int:
    return int(await store.transactions.read(lambda conn: conn.scalar(ROWS) or 0))


@pytest.mark.parametrize(
    ("result", "reported"),
    [
        (Result.SUCCEEDED, {"logs": said("one"), "log_kept": True}),
        (Result.FAILED, {"log_kept": True}),
        (Result.LOST, {}),
    ],
    ids=["with its log", "without a log", "lost"],
)
async def test_the_end_of_an_attempt_removes_the_lines_that_were_kept(
    store: SqlStore, result: Result, reported: dict[str, Any]
) -> None:
    contract = AttemptProgressContract()
    held = await contract.talking(store)
    await contract.keep(store, held, 0, *said("one", "two"))
    assert await rows(store) == 2

    await store.attempts.report([completion_of(held, result, now=NOON, **reported)])

    assert await rows(store) == 0


@pytest.mark.parametrize(
    ("result", "reported", "asks"),
    [
        (Result.SUCCEEDED, {}, False),
        (Result.SUCCEEDED, {"logs": said("one")}, False),
        (Result.FAILED, {}, False),
        (Result.TIMED_OUT, {"logs": said("one")}, False),
        (Result.SUCCEEDED, {"logs": said("one"), "log_kept": True}, True),
        (Result.LOST, {}, True),
    ],
)
async def test_an_end_asks_for_kept_lines_only_if_there_may_be_some(
    store: SqlStore, result: Result, reported: dict[str, Any], *, asks: bool
) -> None:
    held = await AttemptProgressContract().talking(store)
    ending: TaskCompletion = completion_of(held, result, now=NOON, **reported)

    assert may_have_kept_log(ending) is asks
