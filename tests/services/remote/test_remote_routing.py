"""Pools, labels and functions have the same effect over the bus as in the store."""

import pytest

from gnomon.core.model import Result, Run, RunStatus
from gnomon.core.runs.workflow import Priority, RoutingRequirements
from gnomon.ports.tasks import HostLoad
from gnomon.services.remote.remote_worker import RemoteWorker
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness
from support.task_steps import routed_workflow

LEASE_MS = 30_000


@pytest.fixture
async def fleet() -> FleetHarness:
    fleet = FleetHarness(flags={"worker.slots": 2})
    await fleet.open()
    return fleet


async def joined(fleet: FleetHarness, name: str, *functions: str, **said: object) -> tuple[RemoteWorker, FakeRunner]:
    """Another worker, which servers have heard of."""
    remote_runner = FakeRunner(*functions)
    worker = fleet.new_remote_worker(name, remote_runner, **said)
    await worker.heartbeat.send()
    await worker.pull()
    return worker, remote_runner


async def asked(
    fleet: FleetHarness, route: RoutingRequirements | None, *names: str, function: str = "reports.make"
) -> list[Run]:
    job = await fleet.job(routed_workflow(names[0], route, function), name=names[0], workflow_id=names[0])
    return [await fleet.run(job, name) for name in names]


def runs(remote_runner: FakeRunner) -> list[str]:
    return [one.run.run_id.removeprefix("run_") for one in remote_runner.started.values()]


@pytest.mark.req("R-10")
async def test_the_workers_of_a_pool_that_nobody_knew_are_sent_what_is_for_it(fleet: FleetHarness) -> None:
    assert "gpu" not in fleet.bus.work
    worker, remote_runner = await joined(fleet, "field_2", pool="gpu")
    await asked(fleet, RoutingRequirements(pool="gpu"), "a", "b", "c")
    await asked(fleet, None, "d")

    await fleet.send()
    await fleet.get(worker)
    await fleet.get()

    # It has two slots, and what waits for one of them waits in the store.
    assert (runs(remote_runner), runs(fleet.remote_runner)) == (["a", "b"], ["d"])
    assert len(fleet.bus.work["gpu"].messages) == 2


async def test_slots_of_a_pool_are_free_again_when_their_tasks_have_ended(fleet: FleetHarness) -> None:
    worker, remote_runner = await joined(fleet, "field_2", pool="gpu")
    [*_, last] = await asked(fleet, RoutingRequirements(pool="gpu"), "a", "b", "c")
    await fleet.send()
    await fleet.get(worker)
    remote_runner.end_all()
    await worker.step()
    await fleet.collect_reports()

    await fleet.publisher.step()
    await fleet.get(worker)

    assert runs(remote_runner) == [last.run_id.removeprefix("run_")]


@pytest.mark.req("R-10")
async def test_a_task_with_labels_goes_to_a_worker_that_has_them(fleet: FleetHarness) -> None:
    worker, remote_runner = await joined(fleet, "field_2", labels={"node.zone": "eu"})
    [run] = await asked(fleet, RoutingRequirements(labels={"node.zone": "eu"}), "a")

    await fleet.send()
    await fleet.get()
    await fleet.get(worker)
    await fleet.collect_reports()

    assert (runs(fleet.remote_runner), runs(remote_runner)) == ([], ["a"])
    assert [one.worker for one in await fleet.attempts_of(run)] == ["field_2"]
    remote_runner.end_all()
    await worker.step()
    await fleet.collect_reports()
    assert (await fleet.now(run)).status is RunStatus.COMPLETED


@pytest.mark.req("R-10")
async def test_a_worker_that_is_preferred_gets_it(fleet: FleetHarness) -> None:
    worker, remote_runner = await joined(fleet, "field_2")
    await asked(fleet, RoutingRequirements(labels={"preferred_worker_id": "field_2"}), "a", "b")

    await fleet.send()
    await fleet.get()
    await fleet.get(worker)

    assert (runs(fleet.remote_runner), runs(remote_runner)) == ([], ["a", "b"])


async def test_a_directed_task_occupies_a_slot_of_its_pool(fleet: FleetHarness) -> None:
    await asked(fleet, RoutingRequirements(labels={"preferred_worker_id": "field_1"}), "a")
    await fleet.send()
    await asked(fleet, None, "b", "c")

    await fleet.send()

    assert len(fleet.bus.work["default"].messages) == 1


async def test_a_worker_without_room_is_sent_nothing_that_is_for_it_alone() -> None:
    fleet = FleetHarness(flags={"worker.slots": 2, "routing.overload_percent": 100_000})
    await fleet.open()
    await asked(fleet, None, "a", "b")
    await fleet.run_cycle()
    [run] = await asked(fleet, RoutingRequirements(labels={"preferred_worker_id": "field_1"}), "c")
    await fleet.send()
    assert await fleet.attempts_of(run) == []

    fleet.remote_runner.end_all()
    await fleet.remote_worker.step()
    await fleet.collect_reports()
    await fleet.publisher.step()

    assert [one.worker for one in await fleet.attempts_of(run)] == ["field_1"]


async def test_in_a_mixed_pool_a_task_goes_to_a_worker_that_has_the_function(fleet: FleetHarness) -> None:
    worker, remote_runner = await joined(fleet, "field_2", "video.encode", "reports.make")
    await asked(fleet, None, "a", function="video.encode")
    await asked(fleet, None, "b", function="reports.make")

    await fleet.send()
    await fleet.get()
    await fleet.get(worker)

    assert ("a" in runs(remote_runner), runs(fleet.remote_runner)) == (True, ["b"])


async def test_a_task_directed_to_a_dead_worker_goes_to_another_after_its_lease(fleet: FleetHarness) -> None:
    await joined(fleet, "field_2", labels={"node.zone": "eu"})
    [run] = await asked(fleet, RoutingRequirements(labels={"node.zone": "eu"}), "a")
    await fleet.send()
    assert [one.worker for one in await fleet.attempts_of(run)] == ["field_2"]
    fleet.clock.advance(LEASE_MS + 1)
    worker, remote_runner = await joined(fleet, "field_3", labels={"node.zone": "eu"})
    await fleet.reconciler.step()
    fleet.clock.advance(LEASE_MS)
    await worker.heartbeat.send()

    await fleet.send()
    await fleet.get(worker)

    assert runs(remote_runner) == ["a"]
    assert [one.result for one in await fleet.attempts_of(run)] == [Result.NEVER_STARTED, None]


@pytest.mark.req("R-11")
async def test_the_lowest_rank_is_sent_first(fleet: FleetHarness) -> None:
    await asked(fleet, RoutingRequirements(priority=Priority.BATCH), "batch", "late")
    await asked(fleet, RoutingRequirements(priority=Priority.CRITICAL), "critical")

    await fleet.send()
    await fleet.get()

    assert runs(fleet.remote_runner) == ["critical", "batch"]


@pytest.mark.req("R-18")
async def test_servers_know_all_that_a_worker_says_of_itself(fleet: FleetHarness) -> None:
    said = {"pool": "gpu", "labels": {"node.zone": "eu"}, "capabilities": ["CUDA"]}
    worker, _ = await joined(fleet, "field_2", **said)
    await asked(fleet, RoutingRequirements(pool="gpu"), "a")
    await fleet.send()
    await fleet.get(worker)
    fleet.clock.advance(LEASE_MS // 3)
    await worker.heartbeat.send()

    [_, card] = await fleet.store.workers.alive()
    assert (card.pool, card.labels, card.capabilities) == ("gpu", {"node.zone": "eu"}, ("cuda",))
    assert (card.in_hand, card.draining, card.seen_at) == (1, False, fleet.clock.now())


async def test_a_worker_that_does_not_take_what_is_for_it_holds_up_nobody(fleet: FleetHarness) -> None:
    await joined(fleet, "field_2", labels={"node.zone": "eu"})
    del fleet.bus.direct["field_2"]
    [stuck] = await asked(fleet, RoutingRequirements(labels={"node.zone": "eu"}), "a")
    await fleet.send()
    [other] = await asked(fleet, None, "b")

    await fleet.run_cycle()

    assert runs(fleet.remote_runner) == ["b"]
    assert [one.started_at for one in await fleet.attempts_of(stuck)] == [None]
    assert (await fleet.now(other)).status is RunStatus.RUNNING


# ---- load ----------------------------------------------------------------------------------------


class Loads:
    """A fleet of a busy and an idle worker whose loads the test sets."""

    def __init__(self, slots: int, busy: int, idle: int) -> None:
        self.fleet = FleetHarness(flags={"worker.slots": slots})
        self.fleet.loads = {"field_busy": HostLoad(cpu=busy), "field_idle": HostLoad(cpu=idle)}
        self.runners = {name: FakeRunner() for name in self.fleet.loads}
        self.workers = {name: self.fleet.new_remote_worker(name, runner) for name, runner in self.runners.items()}

    async def heartbeats(self) -> None:
        """Every worker sends its load and hears from the server."""
        for worker in self.workers.values():
            await worker.heartbeat.send(at_once=True)
        self.fleet.clock.advance(1_001)
        await self.fleet.publisher.step()
        for worker in self.workers.values():
            await worker.heartbeat.send(at_once=True)

    async def give(self, count: int) -> dict[str, int]:
        """Tasks are sent, and every worker gets what it may, the busy one first; how many each has then."""
        await asked(self.fleet, None, *(f"r{number}" for number in range(count)))
        await self.fleet.send()
        for worker in self.workers.values():
            await self.fleet.get(worker)
        return {name: len(runner.started) for name, runner in self.runners.items()}


async def loaded(slots: int, *, busy: int, idle: int) -> Loads:
    loads = Loads(slots, busy, idle)
    await loads.fleet.consumer.answer()
    await loads.heartbeats()
    return loads


@pytest.mark.req("R-10")
async def test_an_overloaded_worker_asks_for_no_task_while_another_has_room() -> None:
    loads = await loaded(50, busy=99, idle=1)

    assert await loads.give(40) == {"field_busy": 0, "field_idle": 40}


@pytest.mark.req("R-10")
async def test_no_more_is_sent_than_workers_that_are_not_overloaded_have_room_for() -> None:
    loads = await loaded(10, busy=99, idle=1)

    assert await loads.give(15) == {"field_busy": 0, "field_idle": 10}
    # The rest waits in the store, where no deadline expires.
    assert len(loads.fleet.bus.work["default"].messages) == 10
    loads.fleet.loads["field_busy"] = HostLoad(cpu=50)
    await loads.heartbeats()
    await loads.fleet.send()
    await loads.fleet.get(loads.workers["field_busy"])
    assert len(loads.runners["field_busy"].started) == 5


@pytest.mark.req("R-10")
async def test_if_all_workers_are_overloaded_all_go_on() -> None:
    loads = await loaded(50, busy=99, idle=95)

    assert sum((await loads.give(40)).values()) == 40
