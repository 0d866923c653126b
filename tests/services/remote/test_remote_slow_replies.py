"""A fleet in which every answer may come late or not at all, and everybody may stand still in the middle of anything.

Unlike on a bus that only loses and doubles, whoever waits for an answer here waits while others act: a worker, a
server, or two servers at once, over the bus and over the store.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

import pytest

from gnomon.adapters.memory import MemoryStore
from gnomon.core.model import Result, Run
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.errors import BusUnavailable, StoreUnavailable, Unavailable
from gnomon.ports.tasks import AttemptRef, HostLoad
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.local_dispatch import LocalDispatch
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.remote.remote_worker import RemoteWorker
from gnomon.services.remote.result_consumer import ResultConsumer
from gnomon.services.remote.task_publisher import TaskPublisher
from support.effort import EFFORT
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness
from support.memory_bus import MemoryServerBus, MemoryWorkerBus
from support.task_steps import workflow

RUNS, SLOTS, MOST_AT_ONCE = 80, 8, 12
#: How many turns there are until all faults are over, and how often everybody gets on in each.
TURNS, YIELDS = 120, 120


class SlowReplies:
    """Something whose answers come late, or never though it was done."""

    def __init__(self, inner: object, trouble: "RandomDelays", failure: type[Unavailable]) -> None:
        self._inner, self._trouble, self._failure = inner, trouble, failure

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as it is there
        found = getattr(self._inner, name)
        if type(found).__module__.startswith("gnomon.adapters.memory"):
            return SlowReplies(found, self._trouble, self._failure)
        # The server that answers is given, not chosen.
        return partial(self._late, found) if iscoroutinefunction(found) and name != "answer" else found

    async def _late(self, asked: Callable[..., Awaitable[Any]], *words: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is there
        await self._trouble.stand_still()
        answer = await asked(*words, **named)
        await self._trouble.stand_still()
        if self._trouble.chance(0.06):
            raise self._failure("the answer was lost")
        return answer


class WatchingRunner(FakeRunner):
    """Remembers every start of a body, of whichever worker, and whether it still had a reason then."""

    def __init__(self, trouble: "RandomDelays") -> None:
        super().__init__()
        self._trouble = trouble

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._trouble.begun(assignments)
        super().start(assignments)


class ServerServices:
    """A publisher, a consumer, a dispatcher and a reconciler in one process."""

    def __init__(self, trouble: "RandomDelays") -> None:
        fleet = trouble.fleet
        store = cast("Any", SlowReplies(fleet.store, trouble, StoreUnavailable))
        side = cast("Any", SlowReplies(MemoryServerBus(fleet.bus), trouble, BusUnavailable))
        workflow_cache, clock, events, settings = fleet.workflow_cache, fleet.clock, fleet.events, fleet.settings
        trouble.born += 1
        name = f"courier_{trouble.born}"
        self.publisher = TaskPublisher(
            store, workflow_cache, side, clock, events, settings=settings, name=name, wake_dispatcher=lambda: None
        )
        self.dispatcher = Dispatcher(
            store,
            workflow_cache,
            fleet.gate,
            clock,
            events,
            settings,
            taker=self.publisher,
            wake=lambda: None,
            ticker_behind=lambda: False,
        )
        self.consumer = ResultConsumer(
            store,
            workflow_cache,
            side,
            fleet.gate,
            fleet.deduplicator,
            clock,
            events,
            settings=settings,
            publisher=self.publisher,
            dispatch=LocalDispatch(wake=lambda: None, write_and_admit=self.dispatcher.write_and_admit),
            on_started=lambda _: None,
            on_workers_changed=lambda: None,
        )
        self.reconciler = Reconciler(
            store,
            workflow_cache,
            clock,
            events,
            settings,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: None,
            await_reports=side.wait_caught_up,
        )
        self.steps = (self.dispatcher.step, self.publisher.step, self.consumer.step, self.reconciler.step)


class WorkerWithRunner:
    """A worker elsewhere, and what it runs."""

    def __init__(self, trouble: "RandomDelays") -> None:
        fleet = trouble.fleet
        trouble.born += 1
        name = f"field_{trouble.born}"
        side = cast("Any", SlowReplies(MemoryWorkerBus(fleet.bus, worker=name), trouble, BusUnavailable))
        self.runner = WatchingRunner(trouble)
        self.worker = RemoteWorker(
            side,
            self.runner,
            fleet.clock,
            fleet.events,
            settings=fleet.settings,
            worker=name,
            wake=asyncio.Event(),
            measure_load=HostLoad,
            on_server_time=lambda _theirs_at, _asked_at: None,
        )
        self.steps = (self.worker.heartbeat.send, self.worker.pull, self.worker.step)


class RandomDelays:
    """One history, made by dice."""

    def __init__(self, seed: int, *, limited: bool) -> None:
        self.rng = random.Random(seed)
        limit = {"routing.default_tenant_limit": MOST_AT_ONCE} if limited else {}
        self.fleet = FleetHarness(flags={"worker.slots": SLOTS, "reconciler.poll_ms": 1_000, **limit})
        self.limited = limited
        self.calm = False
        self.born = 0
        self.starts: Counter[AttemptRef] = Counter()
        self.without_reason: list[AttemptRef] = []
        self.runs: list[Run] = []
        #: Set when the next turn begins.
        self._next = asyncio.Event()
        self._under_way: dict[Callable[[], Awaitable[float]], asyncio.Task[float]] = {}
        self.servers = [ServerServices(self)]
        self.workers: list[WorkerWithRunner] = []

    def chance(self, share: float) -> bool:
        return not self.calm and self.rng.random() < share

    def everybody(self) -> "list[ServerServices | WorkerWithRunner]":
        return [*self.servers, *self.workers]

    async def stand_still(self) -> None:
        """For some turns, or not at all."""
        if self.chance(0.06):
            for _ in range(self.rng.choice((1, 2, 5, 12, 30))):
                if not self.calm:
                    await self._next.wait()

    def begun(self, assignments: Sequence[Assignment]) -> None:
        """Bodies begin, while their attempts are still open."""
        store = self.fleet.store
        assert isinstance(store, MemoryStore)
        for one in assignments:
            held = one.task.task_id, one.task.fence
            self.starts[held] += 1
            if store.state.attempts[held].ended_at is not None:
                self.without_reason.append(held)

    # ---- a turn ------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Everybody goes on, as far as they can; then time passes."""
        if not self.calm:
            await self._hurt()
        while len(self.workers) < 2:
            self.workers.append(WorkerWithRunner(self))
        for remote_runner in self.workers:
            for held in list(remote_runner.runner.started):
                if self.calm or self.chance(0.2):
                    remote_runner.runner.end(held, Result.FAILED if self.chance(0.1) else Result.SUCCEEDED)
        steps = [step for one in self.everybody() for step in one.steps]
        self.rng.shuffle(steps)
        for step in steps:
            if step not in self._under_way:
                self._under_way[step] = asyncio.ensure_future(step())
        await self._yield_to_all()
        self.fleet.clock.advance(self.rng.choice((10, 500, 3_000)))
        this, self._next = self._next, asyncio.Event()
        this.set()

    async def _yield_to_all(self) -> None:
        for _ in range(YIELDS):
            await asyncio.sleep(0)
        for step, task in list(self._under_way.items()):
            if task.done():
                task.result()
                del self._under_way[step]
        if self.limited:
            on_the_way = await self.fleet.store.placement.in_flight_counts()
            assert on_the_way.tenants.get("default", 0) <= MOST_AT_ONCE

    async def _hurt(self) -> None:
        bus, rng = self.fleet.bus, self.rng
        bus.away = self.chance(0.1)
        if self.workers and self.chance(0.06):
            self._die(self.workers.pop(rng.randrange(len(self.workers))))
        if self.chance(0.06):
            # One comes, and one may go: for a while there are two, or one that stands still and comes back.
            self.servers.append(ServerServices(self))
        if len(self.servers) > 1 and self.chance(0.2):
            self._die(self.servers.pop(rng.randrange(len(self.servers))))
        await rng.choice(self.servers).consumer.answer()
        if self.chance(0.1):
            await self.fleet.store.runs.cancel(
                rng.choice(self.runs).run_id, reason="enough", now=self.fleet.clock.now()
            )
        for stream in (bus.reports, *bus.work.values()):
            for message in stream.messages.values():
                if self.chance(0.1):
                    # It is delivered again, though somebody has it.
                    message.visible_at = 0
        if self.chance(0.2):
            for stream in bus.work.values():
                stream.forget()
                stream.forget_message_ids()

    def _die(self, who: ServerServices | WorkerWithRunner) -> None:
        """In the middle of whatever it does."""
        for step in who.steps:
            task = self._under_way.pop(step, None)
            if task is not None:
                task.cancel()

    async def end(self) -> None:
        """All faults are over, and everything that can end has ended."""
        self.calm, self.fleet.bus.away = True, False
        await self.servers[0].consumer.answer()
        for _ in range(400):
            await self.turn()
            if all([(await self.fleet.now(run)).over for run in self.runs]):
                break
        for who in self.everybody():
            self._die(who)


@pytest.mark.req("R-17")
@pytest.mark.guarantee("C1", "C5", "C7", "C8", "S4", "S5", "S7", "S9", "S11")
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("seed", range(5 * EFFORT))
async def test_with_frozen_processes_every_start_has_a_reason_and_every_run_an_end(
    seed: int, delivery: Delivery, *, limited: bool
) -> None:
    trouble = RandomDelays(seed, limited=limited)
    retry = RetryPolicy(max_attempts=50, initial_delay_ms=10)
    job = await trouble.fleet.job(workflow(retry=retry, delivery=delivery))
    trouble.runs = [await trouble.fleet.run(job, f"{number:03}") for number in range(RUNS)]
    for _ in range(TURNS):
        await trouble.turn()
    await trouble.end()

    assert not trouble.without_reason, "an attempt was begun that had ended"
    await trouble.fleet.check_runs(trouble.runs, trouble.starts, delivery)
