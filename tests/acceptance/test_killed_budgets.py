"""Schedulers that are killed between a reservation and its settlement: no part of a budget leaks or counts twice."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.policy.budgets import BudgetWindow
from gnomon.services.operations.launcher import Launcher
from support.fleet_processes import wait_until
from support.gnomon_processes import up
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.witness import read_witness

pytestmark = [pytest.mark.req("R-02"), pytest.mark.guarantee("S9"), pytest.mark.timeout(180)]

JOBS = """
jobs:
  - name: pay
    function: witness/thread
    input: {seconds: 0.3}
    overlap: allow
    retry: {max_attempts: 20, initial_delay: 10ms}
"""
LIMIT, RUNS = 8, 14
#: The longest window, so that the test sees only one.
POLICY = f"""
default_decision: allow
budgets:
  - {{id: payments, limit: {LIMIT}, per: 366d}}
"""
QUICK = {
    "GNOMON_WORKER__SLOTS": "2",
    "GNOMON_WORKER__LEASE": "1s",
    "GNOMON_RECONCILER__POLL": "200ms",
    "GNOMON_POLICY__REFRESH": "100ms",
}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        file = tmp_path / "gnomon.db"
        new_sqlite_file(file)
        yield f"sqlite:///{file}"
    else:
        async with postgres(18).database() as address:
            yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


async def test_a_budget_counts_each_attempt_once_however_often_its_scheduler_is_killed(
    url: str, store: SqlStore, witness: Path, tmp_path: Path
) -> None:
    file, clock = tmp_path / "jobs.yaml", SystemClock()
    file.write_text(JOBS)
    await store.policies.add(POLICY, author="ada", now=clock.now())

    async def window() -> BudgetWindow:
        [found] = await store.budget_windows.page(now=clock.now(), limit=10)
        return found.window

    async def started(count: int) -> bool:
        return len(starts(witness)) >= count

    async def spent_to_the_end() -> bool:
        return await window() == BudgetWindow(spent=LIMIT, reserved=0)

    with up(url, "--jobs", str(file), environment=QUICK) as first:
        launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, RandomIds())
        for _ in range(RUNS):
            await launcher.trigger("pay", actor="test")
        await wait_until(lambda: started(1))
        first.kill()
    held = await window()
    assert held.reserved, "it was killed while attempts held their parts"
    seen = len(starts(witness))
    with up(url, environment=QUICK) as second:
        await wait_until(lambda: started(seen + 1))
        second.kill()
    with up(url, environment=QUICK):
        await wait_until(spent_to_the_end)

    attempts = await rows(store, "SELECT result, count(*) FROM attempt GROUP BY 1")
    never_ran = attempts.pop("never_started", 0)
    assert sum(attempts.values()) == LIMIT, (attempts, never_ran)
    assert len(starts(witness)) <= LIMIT
    assert attempts["lost"] >= 1
    assert await rows(store, "SELECT 'left', count(*) FROM budget_reservation") == {"left": 0}
    waiting = await rows(store, "SELECT wait_reason, count(*) FROM task WHERE state = 'PENDING' GROUP BY 1")
    assert waiting == {"policy": RUNS - attempts["succeeded"]}


def starts(witness: Path) -> list[str]:
    return [run for what, _, run, *_ in read_witness(witness) if what == "start"] if witness.exists() else []


async def rows(store: SqlStore, query: str) -> Counter[str]:
    def read(conn: sa.Connection) -> Counter[str]:
        return Counter({str(name): count for name, count in conn.execute(sa.text(query))})

    return await store.transactions.read(read)
