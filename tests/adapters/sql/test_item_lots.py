"""Steps with many items on SQLite: the first items are added when the step starts, the others in lots as items end."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from contracts.store import NOON
from gnomon.adapters.payload_cipher import AesGcmCipher
from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.adapters.sql.connect import PayloadAccess
from gnomon.adapters.sql.item_lots import LOT_ITEMS
from gnomon.core.model import Result, Run, RunStatus
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.sqlite_files import new_sqlite_file

#: More than the first items and one lot.
MANY = 3 * LOT_ITEMS + 200


class LargeStep:
    """A run whose first step has many items, on a file."""

    def __init__(self, path: Path, store: SqlStore) -> None:
        self.path = path
        self.harness = ExecutionHarness(store=store, clock=VirtualClock(NOON))
        self.run: Run

    async def start(self, count: int, limit: int | None = None) -> None:
        """Start a run, as far as the items of its step."""
        each = Step(name="each", function="reports.make", foreach=list(range(count)), max_parallel=limit)
        after = Step(name="after", function="reports.make", depends_on=("each",))
        definition = Workflow(workflow_id="report", version=1, steps=(each, after))
        self.run = await self.harness.run(await self.harness.job(definition), first_steps=definition.first_steps)
        await self.harness.dispatcher.step()

    def rows(self) -> tuple[int, int]:
        """How many items there are, and how many lots are to come."""
        with closing(sqlite3.connect(self.path)) as file:
            [items] = file.execute("SELECT count(*) FROM task WHERE parent IS NOT NULL").fetchone()
        return items, len(self.stored_lots())

    def stored_lots(self) -> list[bytes]:
        """The lots that are to come, as the file has them."""
        with closing(sqlite3.connect(self.path)) as file:
            return [body for (body,) in file.execute("SELECT body FROM payload WHERE kind LIKE 'items.%'")]

    async def counts(self) -> dict[TaskState, int]:
        return dict((await self.harness.store.run_tasks.item_counts(self.run.run_id))["each"])

    async def items_done(self, *, most: int) -> list[int]:
        """Run everything; return the items that were started, of which at most so many at once."""
        runner, found = self.harness.runner, list[int]()
        while set(await self.counts()) != {TaskState.SUCCEEDED}:
            await self.harness.run_until_idle()
            found += [one.input["item"] for one in runner.started.values()]
            assert len(runner.started) <= most
            assert sum((await self.counts()).values()) == MANY
            runner.end_all(output=b"1")
            await self.harness.worker.step()
        return found


@pytest.fixture
async def large(tmp_path: Path) -> AsyncIterator[LargeStep]:
    path = new_sqlite_file(tmp_path / "gnomon.db")
    store = await open_sqlite(str(path), now=lambda: NOON)
    yield LargeStep(path, store)
    await store.close()


async def test_a_step_with_twenty_thousand_items_adds_a_thousand_in_one_transaction(large: LargeStep) -> None:
    await large.start(20_000)

    assert large.rows() == (2 * LOT_ITEMS, 38)
    assert sum((await large.counts()).values()) == 20_000


@pytest.mark.parametrize("limit", [None, 600])
async def test_each_item_runs_once_with_its_own_input(large: LargeStep, limit: int | None) -> None:
    await large.start(MANY, limit)

    found = await large.items_done(most=limit or 2 * LOT_ITEMS)

    assert sorted(found) == list(range(MANY))
    assert large.rows() == (MANY, 0)
    assert await large.counts() == {TaskState.SUCCEEDED: MANY}
    steps = {one.step: one for one in await large.harness.store.run_tasks.steps([large.run.run_id])}
    assert (steps["each"].state, steps["each"].open_items) == (TaskState.SUCCEEDED, 0)
    assert (
        await large.harness.store.executions.payload(steps["each"].task_id, "output")
        == b"[" + b",".join([b"1"] * MANY) + b"]"
    )


async def test_after_a_restart_the_other_lots_come_also_encrypted(tmp_path: Path) -> None:
    path, payloads = new_sqlite_file(tmp_path / "gnomon.db"), PayloadAccess(cipher=AesGcmCipher([os.urandom(32)]))
    before = LargeStep(path, await open_sqlite(str(path), now=lambda: NOON, payloads=payloads))
    await before.start(MANY)
    stored = before.stored_lots()
    await before.harness.store.close()

    again = LargeStep(path, await open_sqlite(str(path), now=lambda: NOON, payloads=payloads))
    again.run = before.run
    found = await again.items_done(most=2 * LOT_ITEMS)
    await again.harness.store.close()

    assert sorted(found) == list(range(MANY))
    assert stored
    assert not [body for body in stored if b'"index":' in body]


async def test_a_run_that_is_cancelled_gets_no_more_lots(large: LargeStep) -> None:
    await large.start(MANY)
    await large.harness.run_until_idle()

    await large.harness.store.runs.cancel(large.run.run_id, reason="enough", now=NOON)
    large.harness.runner.end_all(Result.CANCELLED)
    await large.harness.run_until_idle()

    assert large.rows()[0] == 2 * LOT_ITEMS
    assert (await large.harness.now(large.run)).status is RunStatus.CANCELLED
    assert set(await large.counts()) == {TaskState.CANCELLED}
