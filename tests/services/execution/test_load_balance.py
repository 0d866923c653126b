"""Workers that take tasks from the store: the less busy ones come first, and nobody waits for ever."""

import pytest

from gnomon.ports.tasks import HostLoad
from gnomon.services.execution.worker import Worker
from support.execution import ExecutionHarness, FakeRunner

pytestmark = pytest.mark.req("R-10")


class Host:
    """A worker with a load that the test sets."""

    def __init__(self, harness: ExecutionHarness, name: str, cpu: int) -> None:
        self.cpu = cpu
        self.runner = FakeRunner()
        self.worker: Worker = harness.new_worker(name, self.runner, measure_load=lambda: HostLoad(cpu=self.cpu))

    @property
    def tasks(self) -> int:
        return len(self.runner.started)


class Fleet:
    """Two workers beside a dispatcher, on one store."""

    def __init__(self, slots: int, *cpu: int) -> None:
        self.harness = ExecutionHarness(flags={"worker.slots": slots, "worker.poll_secs": 1})
        self.hosts = [Host(self.harness, f"w{number}", one) for number, one in enumerate(cpu)]

    async def admit(self, count: int) -> None:
        job = await self.harness.job()
        for number in range(count):
            await self.harness.run(job, f"{number}")
        while not await self.harness.dispatcher.step():
            pass

    async def work(self, *hosts: Host) -> None:
        """Every worker steps; the first one looks first."""
        for host in hosts or self.hosts:
            while not await host.worker.step():
                pass

    async def work_for(self, ms: int, *hosts: Host) -> None:
        for _ in range(0, ms, 100):
            await self.work(*hosts)
            self.harness.clock.advance(100)
        await self.work(*hosts)


async def joined(slots: int, *cpu: int) -> Fleet:
    """A fleet whose workers know of each other."""
    fleet = Fleet(slots, *cpu)
    await fleet.work()
    fleet.harness.clock.advance(2_000)
    await fleet.work()
    return fleet


async def test_an_overloaded_worker_leaves_tasks_to_one_that_is_not() -> None:
    fleet = await joined(100, 99, 1)
    busy, idle = fleet.hosts
    await fleet.admit(40)

    # The busy one looks first.
    await fleet.work_for(1_000)

    assert (busy.tasks, idle.tasks) == (0, 40)


async def test_the_worker_with_the_lower_score_comes_first() -> None:
    fleet = await joined(100, 70, 1)
    warm, cold = fleet.hosts
    await fleet.admit(40)

    await fleet.work()

    assert (warm.tasks, cold.tasks) == (0, 40)


async def test_tasks_beyond_the_slots_of_the_less_busy_worker_are_taken_by_the_other() -> None:
    fleet = await joined(10, 99, 1)
    busy, idle = fleet.hosts
    await fleet.admit(15)

    await fleet.work()
    assert (busy.tasks, idle.tasks) == (0, 10)
    await fleet.work_for(4_000)

    assert (busy.tasks, idle.tasks) == (5, 10)


async def test_no_task_waits_longer_than_two_seconds_for_a_less_busy_worker_that_does_not_take_it() -> None:
    fleet = await joined(10, 99, 1)
    busy, idle = fleet.hosts
    await fleet.admit(3)

    # It is alive for the others, and does nothing.
    await fleet.work_for(1_500, busy)
    assert busy.tasks == 0
    await fleet.work_for(600, busy)

    assert (busy.tasks, idle.tasks) == (3, 0)


async def test_if_all_are_overloaded_nobody_holds_back() -> None:
    fleet = await joined(10, 99, 95)
    await fleet.admit(3)

    await fleet.work()

    assert sum(host.tasks for host in fleet.hosts) == 3


async def test_a_load_that_changes_is_known_to_the_others_within_seconds() -> None:
    fleet = await joined(10, 1, 1)
    first, second = fleet.hosts
    first.cpu = 99
    await fleet.work_for(2_500)
    await fleet.admit(3)

    await fleet.work_for(500)
    assert (first.tasks, second.tasks) == (0, 3)

    first.cpu, second.cpu = 1, 99
    await fleet.work_for(2_500)
    fleet.harness.runner.end_all()
    await fleet.work_for(100, second)
    assert [card.load.cpu for card in await fleet.harness.store.workers.alive()] == [1, 99]
