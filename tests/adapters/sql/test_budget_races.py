"""Two servers admit tasks of the same budget, and of the same breaker, at the same time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.breakers import admission_of, launched
from contracts.budgets import TWO, admit
from contracts.store import NOON
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.core.breakers import BreakerState
from gnomon.core.model import Result, Task
from gnomon.core.named_breakers import BreakerKey
from gnomon.core.runs.states import TaskState
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file
from support.task_steps import LEASE, completion_of, workflow

#: Enough for several conflicts, and quick.
TASKS, LIMIT = 24, 10
Servers = tuple[SqlStore, SqlStore]


@pytest.fixture(params=["sqlite", "postgresql"])
async def servers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Servers]:
    if request.param == "sqlite":
        new_sqlite_file(tmp_path / "gnomon.db")
        stores = [await open_sqlite(str(tmp_path / "gnomon.db")) for _ in range(2)]
        yield stores[0], stores[1]
    else:
        async with postgres(18).database() as url:
            stores = [await open_postgres(url, pool_size=4) for _ in range(2)]
            yield stores[0], stores[1]
            await asyncio.gather(*(store.close() for store in stores))
            return
    await asyncio.gather(*(store.close() for store in stores))


async def tasks_of(store: SqlStore) -> list[Task]:
    return list(await store.history.tasks(await launched(store, TASKS)))


@pytest.mark.req("R-02")
async def test_two_servers_together_let_no_more_start_than_the_limit(servers: Servers) -> None:
    tasks, use = await tasks_of(servers[0]), replace(TWO, limit=LIMIT)

    done = await asyncio.gather(
        *(admit(servers[number % 2], [task], use) for number, task in enumerate(tasks)),
        # The same tasks again, as a second server may have read them.
        *(admit(servers[1 - number % 2], [task], use) for number, task in enumerate(tasks)),
    )

    assert sum(one.state is TaskState.SCHEDULED for found in done for one in found.values()) == LIMIT


@pytest.mark.req("R-02")
async def test_a_reservation_that_one_server_gives_back_is_used_once_by_the_other(servers: Servers) -> None:
    tasks, use = await tasks_of(servers[0]), replace(TWO, limit=LIMIT)
    await admit(servers[0], tasks[:LIMIT], use)
    taken = await servers[0].attempts.take("w1", limit=4, lease_ms=LEASE, now=NOON, begin=False)
    unstarted = [completion_of(one, Result.NEVER_STARTED, now=NOON + 1) for one in taken]

    reporting = asyncio.ensure_future(servers[0].attempts.report(unstarted))
    done = await asyncio.gather(*(admit(servers[1], [task], use) for task in tasks[LIMIT:]))
    await reporting
    after = [await admit(servers[1], [task], use) for task in tasks[LIMIT:]]

    started = [one for found in (*done, *after) for one in found.values() if one.state is TaskState.SCHEDULED]
    assert len(started) == 4


@pytest.mark.req("R-12")
async def test_two_servers_together_let_one_task_try_a_half_open_breaker(servers: Servers) -> None:
    runs = await launched(servers[0], 8)
    found = {task.run_id: task for task in await servers[0].history.tasks(runs)}
    asked = [admission_of(run, found[run.run_id].task_id) for run in runs]
    breaker = asked[0].breaker
    assert breaker is not None
    await servers[0].tasks.admit(asked[:2], now=NOON)
    taken = await servers[0].attempts.take("w1", limit=2, lease_ms=LEASE, now=NOON)
    definition = workflow("pay", breaker=None)
    failed = [
        replace(completion_of(one, Result.FAILED, now=NOON, definition=definition), breaker=use.breaker)
        for one, use in zip(taken, asked, strict=False)
    ]
    await asyncio.gather(*(servers[number].attempts.report([one]) for number, one in enumerate(failed)))
    opened = await servers[1].breakers.find(BreakerKey("default", "stripe"))
    assert opened is not None
    assert opened.state(NOON) is BreakerState.OPEN

    done = await asyncio.gather(
        *(servers[number % 2].tasks.admit([one], now=NOON + 10_000) for number, one in enumerate(asked[2:]))
    )

    assert sum(one.state is TaskState.SCHEDULED for found in done for one in found.values()) == 1
