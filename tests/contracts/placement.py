"""The contract of stores for placement: which worker gets which task, and the registry of workers."""

import asyncio
from typing import Any

import pytest

from contracts.store import NOON, minutely
from contracts.tasks import Advance
from gnomon.core.model import Overlap, Result, RunId, Schedule, Source, Task
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.store import Store
from gnomon.ports.tasks import DEFAULT_TAKE_FILTER, HostLoad, TakeFilter, WorkerInfo
from support.task_steps import LEASE, admission, completion_of

ANYWHERE = Placement()


class PlacementContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when leases expire."""

    @pytest.fixture
    async def owner(self, store: Store) -> Schedule:
        made = minutely(overlap=Overlap.ALLOW)
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def put(self, store: Store, owner: Schedule, name: str, where: Placement | None, **more: Any) -> Task:  # noqa: ANN401 - of an admission
        """An admitted task with that placement."""
        run = new_requested_run(RunId(f"run_{name}"), owner, source=Source.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        await store.tasks.admit([admission(task, schedule_uid=owner.uid, placement=where, **more)], now=NOON)
        return task

    async def handed(
        self, store: Store, worker: str = "w1", reach: TakeFilter = DEFAULT_TAKE_FILTER, limit: int = 10
    ) -> list[str]:
        """The runs whose tasks the worker takes, without the prefix of their ids."""
        taken = await store.attempts.take(worker, limit=limit, lease_ms=LEASE, now=NOON, reach=reach)
        return [one.run.run_id.removeprefix("run_") for one in taken]

    # ---- taking ------------------------------------------------------------------------------

    @pytest.mark.req("R-10")
    async def test_a_worker_is_given_what_was_placed_in_its_pool(self, store: Store, owner: Schedule) -> None:
        for name, where in {"a": None, "b": Placement("gpu"), "c": ANYWHERE}.items():
            await self.put(store, owner, name, where)

        assert sorted(await self.handed(store)) == ["a", "c"]
        assert await self.handed(store, reach=TakeFilter("video")) == []
        assert await self.handed(store, reach=TakeFilter("gpu")) == ["b"]

    @pytest.mark.req("R-10")
    async def test_what_is_directed_at_one_worker_is_given_to_no_other(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "a", Placement("gpu", directed_to="w2"))

        assert await self.handed(store, "w1", TakeFilter("gpu")) == []
        assert await self.handed(store, "w2", TakeFilter("gpu")) == ["a"]

    async def test_what_not_everybody_can_run_is_given_to_who_can(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "a", Placement(function="f"))
        await self.put(store, owner, "b", None)

        assert await self.handed(store, reach=TakeFilter(functions=("g", "h"))) == ["b"]
        assert await self.handed(store, reach=TakeFilter(functions=())) == []
        assert await self.handed(store, reach=TakeFilter(functions=("f", "g"))) == ["a"]

    @pytest.mark.req("R-10")
    async def test_what_is_for_certain_workers_can_be_asked_for_alone(self, store: Store, owner: Schedule) -> None:
        places = {
            "anybody": None,
            "gpu": Placement("gpu"),
            "directed": Placement(directed_to="w1"),
            "directed-elsewhere": Placement(directed_to="w2", rank=1),
            "choosy": Placement(function="f", rank=-1),
            "other-choosy": Placement("gpu", function="g"),
        }
        for name, where in places.items():
            await self.put(store, owner, name, where)

        found = {(one.pool, one.directed_to, one.function) for one in await store.placement.chosen()}

        assert found == {(None, "w1", None), (None, "w2", None), (None, None, "f"), ("gpu", None, "g")}
        assert await self.handed(store, "w3", TakeFilter(functions=("g",), chosen=True)) == []
        assert await self.handed(store, "w1", TakeFilter(functions=("f", "g"), chosen=True)) == ["choosy", "directed"]
        assert await self.handed(store, "w2", TakeFilter(chosen=True)) == ["directed-elsewhere"]
        assert await self.handed(store, "w1", TakeFilter("gpu", ("g",), chosen=True)) == ["other-choosy"]
        assert await store.placement.chosen() in ([], set())
        assert sorted(await self.handed(store)) == ["anybody"]

    async def test_the_lowest_rank_goes_first_and_then_the_earliest(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "late-batch", Placement(rank=1), available_at=NOON + 2)
        await self.put(store, owner, "batch", Placement(rank=1), available_at=NOON)
        await self.put(store, owner, "usual", None, available_at=NOON + 1)
        await self.put(store, owner, "critical", Placement(rank=-1), available_at=NOON + 3)

        assert [await self.handed(store, limit=1) for _ in range(5)] == [
            ["critical"],
            ["usual"],
            ["batch"],
            ["late-batch"],
            [],
        ]

    async def test_a_task_is_placed_anew_each_time(self, store: Store, owner: Schedule) -> None:
        task = await self.put(store, owner, "a", Placement("gpu", 1, "w1", "f"))
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON, reach=TakeFilter("gpu", ("f",)))
        await store.attempts.report([completion_of(taken, Result.INTERRUPTED, now=NOON)])

        await store.tasks.admit([admission(task, schedule_uid=owner.uid, placement=ANYWHERE)], now=NOON)

        assert await store.placement.placements([task.task_id]) == {task.task_id: ANYWHERE}
        assert await self.handed(store, "w2") == ["a"]

    async def test_it_is_known_where_a_task_waits_until_it_is_taken(self, store: Store, owner: Schedule) -> None:
        where = Placement("gpu", -1, "w1", "f")
        task = await self.put(store, owner, "a", where)
        plain = await self.put(store, owner, "b", None)

        found = await store.placement.placements([task.task_id, plain.task_id])
        await self.handed(store, "w1", TakeFilter("gpu"))

        assert found == {task.task_id: where, plain.task_id: ANYWHERE}
        assert await store.placement.placements([task.task_id]) == {}

    async def test_two_who_take_at_once_are_not_given_the_same(self, store: Store, owner: Schedule) -> None:
        for number in range(20):
            await self.put(store, owner, f"{number}", Placement("gpu"))

        ways = [self.handed(store, f"w{number}", TakeFilter("gpu"), limit=7) for number in range(4)]
        given = [name for names in await asyncio.gather(*ways) for name in names]

        assert sorted([*given, *await self.handed(store, "w9", TakeFilter("gpu"), limit=20)]) == sorted(
            map(str, range(20))
        )

    # ---- in flight ---------------------------------------------------------------------------

    async def test_what_is_on_its_way_is_counted_by_who_has_it_and_where_it_waits(
        self, store: Store, owner: Schedule
    ) -> None:
        for name, where in {
            "a": None,
            "b": None,
            "c": Placement("gpu"),
            "d": Placement("gpu", directed_to="w2"),
        }.items():
            await self.put(store, owner, name, where)
        await self.handed(store, "w1", limit=1)

        found = await store.placement.in_flight_counts()

        assert (dict(found.in_hand), dict(found.directed)) == ({"w1": 1}, {"w2": 1})
        assert (dict(found.scheduled), dict(found.tenants)) == ({None: 1, "gpu": 1}, {"default": 4})

    @pytest.mark.req("R-11")
    async def test_nothing_is_let_through_for_which_its_tenant_has_no_room(self, store: Store, owner: Schedule) -> None:
        names = [f"{number}" for number in range(5)]
        tasks = [await self.put(store, owner, name, None, tenant_limit=("default", 0)) for name in names]
        admissions = [admission(task, schedule_uid=owner.uid, tenant_limit=("default", 3)) for task in tasks]

        done = [await store.tasks.admit(some, now=NOON) for some in (admissions[:2], admissions)]

        assert [len(one) for one in done] == [2, 1]
        assert len(await self.handed(store)) == 3
        assert await store.tasks.admit(admissions, now=NOON) == frozenset()

    @pytest.mark.req("R-11")
    async def test_many_who_let_tasks_through_at_once_keep_to_the_limit(self, store: Store, owner: Schedule) -> None:
        names = [f"{number}" for number in range(12)]
        tasks = [await self.put(store, owner, name, None, tenant_limit=("default", 0)) for name in names]
        ways = [
            store.tasks.admit([admission(task, schedule_uid=owner.uid, tenant_limit=("default", 5))], now=NOON)
            for task in tasks
        ]

        done = await asyncio.gather(*ways)

        assert sum(len(one) for one in done) == 5

    # ---- workers -----------------------------------------------------------------------------

    @pytest.mark.req("R-18")
    async def test_all_that_a_worker_says_of_itself_is_kept(self, store: Store) -> None:
        card = WorkerInfo(
            worker="w1",
            functions=("a", "b/c"),
            slots=7,
            pool="gpu",
            started_at=NOON,
            capabilities=("cuda", "ffmpeg"),
            labels={"node.zone": "eu", "naïve": "'; --"},
            in_hand=3,
            load=HostLoad(cpu=140, gpu=0),
            draining=True,
        )
        await store.workers.register(card, ttl_ms=60_000)

        [found] = await store.workers.alive()

        assert found.seen_at > 0
        assert (found.pool, found.labels, found.capabilities) == ("gpu", card.labels, card.capabilities)
        assert (found.slots, found.in_hand, found.load, found.draining) == (7, 3, card.load, True)

    @pytest.mark.req("R-18")
    async def test_the_store_says_when_a_worker_was_last_heard_of(self, store: Store) -> None:
        card = WorkerInfo(worker="w1", functions=(), slots=1, started_at=NOON, seen_at=1 << 60)
        await store.workers.register(card, ttl_ms=60_000)
        [first] = await store.workers.alive()
        await store.workers.register(card, ttl_ms=60_000)
        [second] = await store.workers.alive()

        assert first.seen_at <= second.seen_at < 1 << 60

    # ---- recall ------------------------------------------------------------------------------

    async def test_what_waits_for_a_worker_that_is_gone_or_stops_is_placed_again(
        self, store: Store, owner: Schedule, advance: Advance
    ) -> None:
        for name, draining in {"silent": False, "stopping": True, "there": False}.items():
            card = WorkerInfo(worker=name, functions=(), slots=1, started_at=NOON, draining=draining)
            await store.workers.register(card, ttl_ms=1000 if name == "silent" else 3_600_000)
        tasks = {
            name: await self.put(store, owner, name, Placement("gpu", 1, name))
            for name in ("silent", "stopping", "there", "never-was")
        }
        anybody = await self.put(store, owner, "anybody", Placement("gpu"))
        advance(1001)

        recalled = [task_id for task_id, _ in await store.placement.recall_stranded()]

        assert sorted(recalled) == sorted(tasks[name].task_id for name in ("silent", "stopping", "never-was"))
        assert set(await store.placement.placements([*(task.task_id for task in tasks.values()), anybody.task_id])) == {
            tasks["there"].task_id,
            anybody.task_id,
        }
        waiting = {one.task.task_id: one.task for one in await store.tasks.waiting(NOON, limit=10)}
        assert {(task.state, task.wait_reason) for task in waiting.values()} == {(TaskState.PENDING, WaitReason.READY)}
        assert await store.placement.recall_stranded() == []

    async def test_what_nobody_of_its_pool_can_run_any_more_is_placed_again(
        self, store: Store, owner: Schedule
    ) -> None:
        card = WorkerInfo(worker="w1", functions=("f",), slots=1, started_at=NOON, pool="gpu")
        await store.workers.register(card, ttl_ms=60_000)
        places = [Placement("gpu", function="f"), Placement("gpu", function="g"), Placement(function="f")]
        tasks = [await self.put(store, owner, f"{number}", where) for number, where in enumerate(places)]

        assert sorted(await store.placement.recall_stranded()) == sorted(
            (task.task_id, task.run_id) for task in tasks[1:]
        )

    async def test_what_was_recalled_has_been_placed_nowhere(self, store: Store, owner: Schedule) -> None:
        task = await self.put(store, owner, "a", Placement("gpu", 1, "gone", "f"))
        await store.placement.recall_stranded()

        await store.tasks.admit([admission(task, schedule_uid=owner.uid)], now=NOON)

        assert await store.placement.placements([task.task_id]) == {task.task_id: ANYWHERE}
