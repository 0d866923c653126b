"""Real processes on real stores, killed at random moments under load: no tick is lost, none is doubled."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import TickKind
from gnomon.services.operations.schedules import ScheduleService
from support.effort import thorough
from support.postgres_server import postgres

pytestmark = [pytest.mark.guarantee("S1", "S2", "S10", "S15", "E1", "E2", "C1", "C2", "C3"), pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parents[1] / "support" / "node_process.py"
SCHEDULES = 40
FOREVER = 1 << 62
TTL_MS = 1000


class NodeProcess:
    """A node that can be killed."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen([sys.executable, PROGRAM, url, str(TTL_MS)], stdout=subprocess.PIPE, text=True)

    async def ready(self) -> None:
        assert self._process.stdout is not None
        assert await asyncio.to_thread(self._process.stdout.readline) == "ready\n"

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self) -> int:
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(20)


async def started(url: str) -> NodeProcess:
    node = NodeProcess(url)
    await node.ready()
    return node


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'gnomon.db'}"
    else:
        async with postgres(18).database() as address:
            yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


async def registered(store: SqlStore) -> list[str]:
    schedules = ScheduleService(store.schedules, store.history, SystemClock(), RandomIds())
    spec = {"schedule": "* * * * * *", "workflow_id": "work", "overlap": "allow", "catchup": "all"}
    names = [f"job-{number}" for number in range(SCHEDULES)]
    await schedules.upsert_all([spec | {"schedule_id": name} for name in names], actor="test")
    return names


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that the nodes will do: they are other processes, so there is nothing to await."""
    while not await condition():  # noqa: ASYNC110 - what others do sets no event of ours
        await asyncio.sleep(0.05)


async def caught_up(store: SqlStore, names: list[str], moment: int) -> bool:
    marks = [schedule.mark_at for schedule in await store.schedules.page("default", after="", limit=SCHEDULES)]
    return len(marks) == len(names) and min(marks) >= moment


async def assert_every_second_was_decided_once(store: SqlStore) -> None:
    for schedule in await store.schedules.page("default", after="", limit=SCHEDULES):
        ticks = await store.history.ticks(schedule.uid, before=FOREVER, limit=100_000)
        runs = await store.history.runs(schedule.uid, before=FOREVER, limit=100_000)
        first = (schedule.created_at // 1000 + 1) * 1000
        planned = list(range(first, schedule.mark_at + 1, 1000))

        assert sorted(tick.decision.planned_at for tick in ticks) == planned
        assert sorted(run.planned_at for run in runs) == planned
        assert {tick.decision.kind for tick in ticks} == {TickKind.FIRED}
        assert len(await store.history.tasks(runs[:100])) == min(100, len(runs))


@pytest.mark.req("C-02", "C-09")
@pytest.mark.parametrize("url", ["sqlite", thorough("postgresql")], indirect=True)
async def test_a_node_killed_again_and_again_loses_and_doubles_nothing(url: str, store: SqlStore) -> None:
    names = await registered(store)
    rng = random.Random(url[:6])
    for _ in range(4):
        node = await started(url)
        await asyncio.sleep(rng.uniform(0.05, 1.2))  # the moment of death must be any
        node.kill()

    node = await started(url)
    moment = SystemClock().now() + 1000
    await until(lambda: caught_up(store, names, moment))
    assert node.terminate() == 0

    await assert_every_second_was_decided_once(store)


@pytest.mark.req("C-02")
@pytest.mark.parametrize("url", [thorough("sqlite"), "postgresql"], indirect=True)
async def test_of_two_nodes_one_may_die_at_any_time(url: str, store: SqlStore) -> None:
    names = await registered(store)
    survivor, victim = await started(url), await started(url)
    moment = SystemClock().now() + 1000
    await until(lambda: caught_up(store, names, moment))

    victim.kill()
    moment = SystemClock().now() + 2 * TTL_MS + 1000
    await until(lambda: caught_up(store, names, moment))
    assert survivor.terminate() == 0

    await assert_every_second_was_decided_once(store)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_a_node_that_was_stopped_past_its_lease_writes_nothing_when_it_wakes(url: str, store: SqlStore) -> None:
    names = await registered(store)
    sleeper, other = await started(url), await started(url)
    moment = SystemClock().now() + 1000
    await until(lambda: caught_up(store, names, moment))

    sleeper.signal(signal.SIGSTOP)
    moment = SystemClock().now() + 2 * TTL_MS
    await until(lambda: caught_up(store, names, moment))
    sleeper.signal(signal.SIGCONT)
    moment = SystemClock().now() + 2 * TTL_MS
    await until(lambda: caught_up(store, names, moment))
    assert [sleeper.terminate(), other.terminate()] == [0, 0]

    await assert_every_second_was_decided_once(store)


async def test_a_node_that_stops_hands_over_to_its_standby(url: str, store: SqlStore) -> None:
    names = await registered(store)
    first, second = await started(url), await started(url)
    assert first.terminate() == 0

    moment = SystemClock().now() + 1000
    await until(lambda: caught_up(store, names, moment))
    assert second.terminate() == 0

    await assert_every_second_was_decided_once(store)
