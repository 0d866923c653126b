"""The contract of stores for placement: which worker gets which task, and the registry of workers."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from contracts.store import HOUR, NOON, minutely
from contracts.tasks import Advance
from gnomon.core.model import Overlap, Result, RunId, RunSource, Schedule, Task
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.worker_ids import MOST_STARTS
from gnomon.ports.maintenance import StoreStats
from gnomon.ports.store import Store
from gnomon.ports.tasks import DEFAULT_TAKE_FILTER, HostLoad, TakeFilter, WorkerInfo
from support.task_steps import LEASE, admission, admission_request, completion_of

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
        run = new_requested_run(RunId(f"run_{name}"), owner, source=RunSource.API, now=NOON)
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

    async def backlog(self, store: Store, tenant: str, count: int, **more: Any) -> Schedule:  # noqa: ANN401 - of an admission
        """Admit so many tasks of a tenant."""
        owner = minutely(tenant=tenant, overlap=Overlap.ALLOW)
        await store.schedules.add([owner], actor="ada", tzdata="")
        for number in range(count):
            await self.put(store, owner, f"{tenant}_{number}", None, **more)
        return owner

    async def test_a_backlog_of_one_tenant_does_not_delay_another(self, store: Store) -> None:
        await self.backlog(store, "a", 12, available_at=NOON - HOUR)
        await self.backlog(store, "b", 2)

        taken = await self.handed(store, limit=4)

        assert sorted(name[0] for name in taken) == ["a", "a", "b", "b"]

    async def test_the_tenant_with_the_fewest_tasks_in_hand_comes_first(self, store: Store) -> None:
        await self.backlog(store, "a", 6)
        await self.backlog(store, "b", 6)
        shares = TenantShares()
        for _ in range(3):
            shares.started("a")

        taken = await store.attempts.take("w1", limit=5, lease_ms=LEASE, now=NOON, shares=shares)

        assert Counter(one.run.tenant for one in taken) == {"b": 4, "a": 1}

    async def test_tenants_take_turns_for_a_single_slot(self, store: Store) -> None:
        for tenant, count in {"a": 4, "b": 2, "c": 3}.items():
            await self.backlog(store, tenant, count)
        shares, order = TenantShares(), ""
        while taken := await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON, shares=shares):
            [one] = taken
            shares.started(one.run.tenant)
            shares.ended(one.run.tenant)
            order += one.run.tenant

        assert order == "abcabcaca"

    async def test_slots_that_one_tenant_leaves_go_to_the_others(self, store: Store) -> None:
        for tenant, count in {"a": 9, "b": 1, "c": 2, "d": 9}.items():
            await self.backlog(store, tenant, count)

        taken = await store.attempts.take("w1", limit=15, lease_ms=LEASE, now=NOON)
        rest = await store.attempts.take("w1", limit=15, lease_ms=LEASE, now=NOON)

        assert Counter(one.run.tenant for one in taken) == {"a": 6, "b": 1, "c": 2, "d": 6}
        assert Counter(one.run.tenant for one in rest) == {"a": 3, "d": 3}

    async def test_priority_counts_among_the_tasks_of_a_tenant(self, store: Store) -> None:
        of_a = await self.backlog(store, "a", 3)
        await self.backlog(store, "b", 3)
        await self.put(store, of_a, "a_urgent", Placement(rank=-1))

        taken = await self.handed(store, limit=4)

        assert sorted(name[0] for name in taken) == ["a", "a", "b", "b"]
        assert "a_urgent" in taken

    async def test_tasks_that_the_worker_may_not_take_leave_their_share_to_others(self, store: Store) -> None:
        owner = await self.backlog(store, "a", 0)
        for number in range(3):
            await self.put(store, owner, f"a_{number}", Placement(directed_to="w2"))
        await self.backlog(store, "b", 3)

        assert sorted(await self.handed(store, "w1", limit=3)) == ["b_0", "b_1", "b_2"]
        assert sorted(await self.handed(store, "w2", limit=3)) == ["a_0", "a_1", "a_2"]

    async def test_several_workers_take_all_tasks_of_several_tenants_once(self, store: Store) -> None:
        for tenant in "abc":
            await self.backlog(store, tenant, 5)

        batches = await asyncio.gather(*(self.handed(store, f"w{number}", limit=6) for number in range(4)))
        rest = await self.handed(store, limit=15)

        taken = [name for batch in (*batches, rest) for name in batch]
        assert sorted(taken) == sorted(f"{tenant}_{number}" for tenant in "abc" for number in range(5))

    async def test_open_attempts_of_a_tenant_are_counted_by_worker(self, store: Store) -> None:
        for tenant, count in {"a": 3, "b": 2}.items():
            await self.backlog(store, tenant, count)
        ended = await store.attempts.take("w1", limit=2, lease_ms=LEASE, now=NOON)
        await store.attempts.report([completion_of(one, Result.SUCCEEDED, now=NOON) for one in ended])
        await self.handed(store, "w1", limit=2)
        await self.handed(store, "w2", limit=2)

        found = [dict(await store.workers.in_hand_of(tenant)) for tenant in ("a", "b", "c")]

        assert found == [{"w1": 1, "w2": 1}, {"w1": 1}, {}]
        assert (await store.placement.in_flight_counts()).tenants_in_hand == {"a": 2, "b": 1}

    async def test_tenants_have_equal_shares_of_the_tasks_to_be_admitted(self, store: Store) -> None:
        for tenant, count in {"a": 9, "b": 2, "c": 9}.items():
            owner = minutely(tenant=tenant, overlap=Overlap.ALLOW)
            await store.schedules.add([owner], actor="ada", tzdata="")
            for number in range(count):
                # The backlog of the first tenant is older than everything else.
                now = NOON - HOUR + number if tenant == "a" else NOON + number
                run = new_requested_run(RunId(f"run_{tenant}_{number}"), owner, source=RunSource.API, now=now)
                await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=now)

        fair = await store.tasks.waiting(NOON + HOUR, limit=8, in_turns=True)
        earliest = await store.tasks.waiting(NOON + HOUR, limit=8)
        rest = await store.tasks.waiting(NOON + HOUR, limit=30, in_turns=True)

        names = [one.run.run_id.removeprefix("run_") for one in fair]
        assert names[:3] == ["a_0", "a_1", "a_2"]
        assert sorted(names) == ["a_0", "a_1", "a_2", "b_0", "b_1", "c_0", "c_1", "c_2"]
        assert {one.run.tenant for one in earliest} == {"a"}
        assert len(rest) == 20
        assert [one.task.available_at for one in rest] == sorted(one.task.available_at for one in rest)

    async def test_known_tasks_of_several_tenants_are_taken_as_they_are_known(self, store: Store) -> None:
        for tenant in "ab":
            await self.backlog(store, tenant, 2)
        waiting = await store.attempts.take("w0", limit=9, lease_ms=LEASE, now=NOON, begin=False)
        await store.attempts.report([completion_of(one, Result.NEVER_STARTED, now=NOON) for one in waiting])
        again = await store.tasks.waiting(NOON + HOUR, limit=9)
        await store.tasks.admit([admission(one.task) for one in again], now=NOON)
        known = {one.task.task_id: admission_request(one) for one in again[:2]}

        taken = await store.attempts.take("w1", limit=9, lease_ms=LEASE, now=NOON, known=known)

        assert {one.task.task_id for one in taken} == {one.task.task_id for one in again}
        assert {one.task.fence for one in taken} == {2}

    @pytest.mark.req("R-10")
    async def test_a_directed_task_is_given_to_no_other_worker(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "a", Placement("gpu", directed_to="w2"))

        assert await self.handed(store, "w1", TakeFilter("gpu")) == []
        assert await self.handed(store, "w2", TakeFilter("gpu")) == ["a"]

    async def test_tasks_are_given_to_workers_that_have_their_function(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "a", Placement(function="f"))
        await self.put(store, owner, "b", None)

        assert await self.handed(store, reach=TakeFilter(functions=("g", "h"))) == ["b"]
        assert await self.handed(store, reach=TakeFilter(functions=())) == []
        assert await self.handed(store, reach=TakeFilter(functions=("f", "g"))) == ["a"]

    @pytest.mark.req("R-10")
    async def test_directed_tasks_can_be_taken_alone(self, store: Store, owner: Schedule) -> None:
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

    @pytest.mark.req("R-10")
    @pytest.mark.parametrize("pool", [None, "gpu"])
    async def test_a_worker_that_holds_back_gets_only_older_tasks_and_its_own(
        self, store: Store, owner: Schedule, pool: str | None
    ) -> None:
        await self.put(store, owner, "old", Placement(pool), available_at=NOON - 2_000)
        await self.put(store, owner, "new", Placement(pool), available_at=NOON - 1_999)
        await self.put(store, owner, "own", Placement(pool, directed_to="w1"), available_at=NOON)
        held_back = TakeFilter(pool, ("f",), available_by=NOON - 2_000)

        assert sorted(await self.handed(store, "w1", held_back)) == ["old", "own"]
        assert await self.handed(store, "w2", TakeFilter(pool)) == ["new"]

    # ---- in flight ---------------------------------------------------------------------------

    async def test_tasks_in_flight_are_counted_by_worker_and_pool(self, store: Store, owner: Schedule) -> None:
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
    async def test_no_task_is_admitted_beyond_the_limit_of_its_tenant(self, store: Store, owner: Schedule) -> None:
        names = [f"{number}" for number in range(5)]
        tasks = [await self.put(store, owner, name, None, tenant_limit=("default", 0)) for name in names]
        admissions = [admission(task, schedule_uid=owner.uid, tenant_limit=("default", 3)) for task in tasks]

        done = [await store.tasks.admit(some, now=NOON) for some in (admissions[:2], admissions)]

        assert [len(one) for one in done] == [2, 1]
        assert len(await self.handed(store)) == 3
        assert await store.tasks.admit(admissions, now=NOON) == {}

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

    @pytest.mark.req("H-22")
    async def test_one_enrolled_worker_fills_the_registry_with_no_more_than_its_last_starts(self, store: Store) -> None:
        others = ("field_gpu.node-2.1", "field_gpu.node-1x.1", "field_1", "w1")
        for name in (*others, *(f"field_gpu.node-1.{number:03}" for number in range(MOST_STARTS + 3))):
            card = WorkerInfo(worker=name, functions=(), slots=1, pool="gpu", started_at=NOON)
            await store.workers.register(card, ttl_ms=60_000)

        alive = {card.worker for card in await store.workers.alive()}
        assert alive.issuperset(others)
        assert len(alive) == len(others) + MOST_STARTS

    # ---- recall ------------------------------------------------------------------------------

    async def test_tasks_placed_on_a_worker_that_is_gone_or_stops_are_placed_again(
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

    async def test_tasks_that_no_worker_of_their_pool_can_run_are_placed_again(
        self, store: Store, owner: Schedule
    ) -> None:
        card = WorkerInfo(worker="w1", functions=("f",), slots=1, started_at=NOON, pool="gpu")
        await store.workers.register(card, ttl_ms=60_000)
        places = [Placement("gpu", function="f"), Placement("gpu", function="g"), Placement(function="f")]
        tasks = [await self.put(store, owner, f"{number}", where) for number, where in enumerate(places)]

        assert sorted(await store.placement.recall_stranded()) == sorted(
            (task.task_id, task.run_id) for task in tasks[1:]
        )

    async def test_a_recalled_task_has_no_placement(self, store: Store, owner: Schedule) -> None:
        task = await self.put(store, owner, "a", Placement("gpu", 1, "gone", "f"))
        await store.placement.recall_stranded()

        await store.tasks.admit([admission(task, schedule_uid=owner.uid)], now=NOON)

        assert await store.placement.placements([task.task_id]) == {task.task_id: ANYWHERE}

    @pytest.mark.req("R-10")
    @pytest.mark.parametrize("pool", [None, "gpu"])
    async def test_a_worker_that_joins_gets_no_task_whose_function_it_lacks(
        self, store: Store, owner: Schedule, pool: str | None
    ) -> None:
        def card(name: str, *functions: str) -> WorkerInfo:
            return WorkerInfo(worker=name, functions=functions, slots=1, started_at=NOON, pool=pool or "default")

        await store.workers.register(card("w1", "f", "g"), ttl_ms=60_000)
        task = await self.put(store, owner, "a", Placement(pool))
        other = await self.put(store, owner, "b", Placement("other"))
        named = await self.put(store, owner, "c", Placement(pool, function="f"))
        await store.workers.register(card("w2", "f", "g", "h"), ttl_ms=60_000)
        assert task.task_id in await store.placement.placements([task.task_id])

        await store.workers.register(card("w3", "g"), ttl_ms=60_000)

        placed = await store.placement.placements([task.task_id, other.task_id, named.task_id])
        assert set(placed) == {other.task_id, named.task_id}
        [waiting] = await store.tasks.waiting(NOON, limit=10)
        assert (waiting.task.task_id, waiting.task.wait_reason) == (task.task_id, WaitReason.READY)
        # Placed again, with its function; another heartbeat of the same worker changes nothing.
        again = admission(task, schedule_uid=owner.uid, placement=Placement(pool, function="f"))
        await store.tasks.admit([again], now=NOON)
        await store.workers.register(card("w3", "g"), ttl_ms=60_000)
        assert await self.handed(store, "w3", TakeFilter(pool, ("g",))) == []
        assert sorted(await self.handed(store, "w1", TakeFilter(pool, ("f", "g")))) == ["a", "c"]

    # ---- what waits, as statistics show it ---------------------------------------------------

    async def unroutable(self, store: Store, owner: Schedule, name: str, at: int) -> Task:
        """A task that no worker can take, first looked at then, and once more later."""
        run = new_requested_run(RunId(f"run_{name}"), owner, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        later: dict[str, Any] = {
            "state": TaskState.PENDING,
            "wait_reason": WaitReason.ROUTE,
            "note": f"no_workers: for {name}",
        }
        for tries in (1, 2):
            next_at = at + tries * 30_000
            again = admission(task, **later, routings=tries, available_at=next_at, unroutable_since=next_at - 30_000)
            await store.tasks.admit([again], now=at)
        return task

    async def stats(self, store: Store, now: int) -> StoreStats:
        return await store.stats.read(now, overdue_before=now, max_jobs=0)

    @pytest.mark.req("H-15")
    async def test_tasks_that_no_worker_can_take_are_counted_with_the_oldest_first(
        self, store: Store, owner: Schedule
    ) -> None:
        await self.unroutable(store, owner, "late", NOON + 5_000)
        first = await self.unroutable(store, owner, "early", NOON + 1_000)

        found = await self.stats(store, NOON + 9_000)

        assert (found.unroutable, found.unroutable_since_at, found.ready_since_at) == (2, NOON + 1_000, NOON + 1_000)
        assert found.unroutable_reason == "no_workers: for early"

        await store.tasks.admit([admission(first, schedule_uid=owner.uid)], now=NOON + 10_000)
        left = await self.stats(store, NOON + 11_000)
        assert (left.unroutable, left.unroutable_since_at, left.scheduled) == (1, NOON + 5_000, 1)

    @pytest.mark.req("R-19")
    async def test_tasks_that_should_have_been_handled_are_counted_by_state(
        self, store: Store, owner: Schedule, advance: Advance
    ) -> None:
        for name in "abcd":
            run = new_requested_run(RunId(f"run_{name}"), owner, source=RunSource.API, now=NOON)
            await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        tasks = [one.task for one in await store.tasks.waiting(NOON, limit=10)]
        admitted = [admission(task, schedule_uid=owner.uid) for task in tasks[:3]]
        await store.tasks.admit(admitted, now=NOON)
        await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON, begin=False)

        async def stale(before: int) -> list[int]:
            found = (await store.stats.read(NOON, overdue_before=NOON, max_jobs=0, stale_before=before)).stale
            return [found[TaskState(name)] for name in ("PENDING", "SCHEDULED", "DISPATCHED", "RUNNING")]

        assert await stale(NOON - 1) == [0, 0, 0, 0]
        assert await stale(NOON) == [1, 1, 0, 0]
        advance(LEASE + 1)
        assert await stale(NOON) == [1, 1, 1, 1]

    @pytest.mark.req("H-15")
    async def test_a_task_that_was_handed_to_a_lost_worker_waits_for_another_from_its_next_try(
        self, store: Store, owner: Schedule
    ) -> None:
        task = await self.unroutable(store, owner, "lost", NOON)
        await store.tasks.admit([admission(task, schedule_uid=owner.uid)], now=NOON)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON, begin=False)
        await store.attempts.report([completion_of(taken, Result.NEVER_STARTED, now=NOON)])
        [again] = await store.tasks.waiting(NOON + HOUR, limit=1)
        assert (await self.stats(store, NOON)).unroutable == 0

        waits: dict[str, Any] = {"state": TaskState.PENDING, "wait_reason": WaitReason.ROUTE}
        for at in (NOON + 5_000, NOON + 9_000):
            await store.tasks.admit([admission(again.task, **waits, unroutable_since=at)], now=at)

        found = await self.stats(store, NOON + 10_000)
        assert (found.unroutable, found.unroutable_since_at) == (1, NOON + 5_000)

    @pytest.mark.req("H-15")
    async def test_a_task_that_no_dispatcher_admits_waits_from_when_it_was_due(
        self, store: Store, owner: Schedule
    ) -> None:
        run = new_requested_run(RunId("run_late"), owner, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)

        found = await self.stats(store, NOON + 7_000)

        assert (found.ready_since_at, found.scheduled, found.unroutable) == (NOON, 0, 0)

    async def test_a_task_whose_time_has_not_come_does_not_wait(self, store: Store, owner: Schedule) -> None:
        run = new_requested_run(RunId("run_delayed"), owner, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        delayed: dict[str, Any] = {
            "state": TaskState.PENDING,
            "wait_reason": WaitReason.DELAY,
            "available_at": NOON + HOUR,
        }
        await store.tasks.admit([admission(task, **delayed)], now=NOON)

        assert (await self.stats(store, NOON + 7_000)).ready_since_at is None

    async def test_a_task_that_a_worker_may_take_waits_for_one(self, store: Store, owner: Schedule) -> None:
        await self.put(store, owner, "a", None)

        found = await self.stats(store, NOON + 7_000)

        assert (found.scheduled, found.ready_since_at) == (1, NOON)
        await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        assert (await self.stats(store, NOON + 7_000)).ready_since_at is None
