"""The locks of jobs are shown to other programs while their runs are active, and no failure of that costs anything."""

import pytest

from gnomon.core.model import Overlap, RunId
from gnomon.core.runs.job_lock import RunLock
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import Unavailable
from gnomon.services.coordination import AlwaysHeldSingleton, Singleton
from gnomon.services.maintenance.lock_publisher import LockPublisher
from support.execution import ExecutionHarness

pytestmark = pytest.mark.req("H-06")
MINUTE = 60_000


class LocksInMemory:
    """Published locks, and how often each was written."""

    def __init__(self) -> None:
        self.away = False
        self.shown: dict[str, RunLock] = {}
        self.writes = 0

    async def publish(self, lock: RunLock) -> None:
        self._answer()
        self.shown[lock.published_key] = lock
        self.writes += 1

    async def withdraw(self, lock: RunLock) -> None:
        self._answer()
        if self.shown.get(lock.published_key) == lock:
            del self.shown[lock.published_key]

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("away")


class NotOurs(AlwaysHeldSingleton):
    retry_seconds = 2.5

    async def ours(self) -> bool:
        return False


class Publishing:
    """A lock publisher beside the services that execute."""

    def __init__(self, lease: Singleton | None = None) -> None:
        self.harness = ExecutionHarness()
        self.locks = LocksInMemory()
        self.publisher = self.new_publisher(lease)

    def new_publisher(self, lease: Singleton | None = None) -> LockPublisher:
        harness = self.harness
        return LockPublisher(
            harness.store.executions,
            harness.workflow_cache,
            self.locks,
            harness.clock,
            harness.events,
            lease=lease or AlwaysHeldSingleton(),
            default_timeout_ms=5 * MINUTE,
        )

    async def start(self, name: str, *, lock: bool = True, timeout_ms: int | None = None) -> RunId:
        step = Step(name="main", function="reports.make", timeout_ms=timeout_ms)
        definition = Workflow(workflow_id=name, version=1, steps=(step,), lock=lock)
        job = await self.harness.job(definition, name=name, workflow_id=name, overlap=Overlap.SKIP)
        run = await self.harness.run(job, name)
        await self.harness.run_until_idle()
        return run.run_id

    async def end_all(self) -> None:
        self.harness.runner.end_all()
        await self.harness.run_until_idle()

    async def after(self, seconds: float) -> None:
        self.harness.clock.advance(round(seconds * 1000))
        await self.publisher.step()


async def test_a_lock_is_published_while_its_run_is_active() -> None:
    publishing = Publishing()
    run_id = await publishing.start("report", timeout_ms=10 * MINUTE)
    await publishing.start("open", lock=False)

    assert await publishing.publisher.step() == 1.0

    [lock] = publishing.locks.shown.values()
    assert (lock.published_key, lock.execution_id, lock.ttl_ms) == ("scheduler.lock.report", run_id, 11 * MINUTE)
    await publishing.end_all()
    await publishing.after(1)
    assert publishing.locks.shown == {}


async def test_a_lock_is_written_again_before_it_expires_and_not_in_every_step() -> None:
    publishing = Publishing()
    await publishing.start("long", timeout_ms=10 * MINUTE)
    await publishing.start("short", timeout_ms=1)
    await publishing.publisher.step()
    assert publishing.locks.writes == 2

    await publishing.after(19)
    assert publishing.locks.writes == 2
    # A third of its minute has passed for one, and half a minute for the other.
    await publishing.after(1.1)
    assert publishing.locks.writes == 3
    await publishing.after(10)
    assert publishing.locks.writes == 4


async def test_during_an_outage_of_the_lock_server_work_continues_and_the_lock_is_published_afterwards() -> None:
    publishing = Publishing()
    publishing.locks.away = True
    await publishing.start("report")

    for _ in range(5):
        await publishing.after(1)
    assert [facts["what"] for name, facts in publishing.harness.events.seen if name == "degraded"] == ["locks"]
    publishing.locks.away = False
    await publishing.after(3)

    assert list(publishing.locks.shown) == ["scheduler.lock.report"]
    assert "degraded_no_more" in publishing.harness.events.names()


async def test_a_lock_that_could_not_be_withdrawn_is_withdrawn_later() -> None:
    publishing = Publishing()
    await publishing.start("report")
    await publishing.publisher.step()
    publishing.locks.away = True
    await publishing.end_all()
    await publishing.after(1)
    assert publishing.locks.shown

    publishing.locks.away = False
    await publishing.after(3)

    assert publishing.locks.shown == {}


async def test_only_the_holder_of_the_lease_publishes_and_its_successor_continues() -> None:
    publishing = Publishing(NotOurs())
    await publishing.start("report")
    assert await publishing.publisher.step() == 2.5
    assert publishing.locks.shown == {}

    # Another process, which knows nothing of what was published before.
    publishing.publisher = publishing.new_publisher()
    await publishing.after(1)

    assert list(publishing.locks.shown) == ["scheduler.lock.report"]
