"""A server and remote workers on a memory store and a memory bus, with a virtual clock and fake runners."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from gnomon.adapters.memory.deduplicator import MemoryDeduplicator
from gnomon.config.settings import load
from gnomon.core.model import Attempt, Result, Run, RunStatus, TaskId
from gnomon.core.runs.workflow import Delivery
from gnomon.ports.coordination import Deduplicator
from gnomon.ports.execution import Gate
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.store import Store
from gnomon.ports.tasks import AttemptRef, HostLoad
from gnomon.services.execution.local_dispatch import LocalDispatch, NoTaker
from gnomon.services.remote.remote_worker import RemoteWorker
from gnomon.services.remote.result_consumer import ResultConsumer
from gnomon.services.remote.task_publisher import TaskPublisher
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.memory_bus import MemoryBroker, MemoryServerBus, MemoryWorkerBus

#: Results that allow another attempt of the same task.
RETRYABLE_RESULTS = {Result.LOST, Result.NEVER_STARTED, Result.FAILED, Result.INTERRUPTED}


class NotifiedPublisher(NoTaker):
    """A publisher that is told of admissions but takes tasks in its own steps only."""

    def __init__(self, publisher: TaskPublisher) -> None:
        super().__init__(publisher.tasks_admitted)
        self._publisher = publisher

    def expect_directed_tasks(self) -> None:
        self._publisher.expect_directed_tasks()


class FleetHarness(ExecutionHarness):
    """The dispatcher and reconciler of an ExecutionHarness, with remote workers that use only the bus."""

    def __init__(
        self,
        *,
        flags: Mapping[str, object] | None = None,
        gate: Gate | None = None,
        clock: VirtualClock | None = None,
        store: Store | None = None,
        output_policy: OutputPolicy | None = None,
    ) -> None:
        super().__init__(flags=flags, gate=gate, clock=clock, store=store)
        self._output_policy = output_policy
        self.flags = dict(flags or {})
        self.bus = MemoryBroker(self.clock.now, ack_wait_ms=self.settings.worker.lease_ms)
        #: The loads that remote workers measure, by worker.
        self.loads: dict[str, HostLoad] = {}
        self.deduplicator: Deduplicator = MemoryDeduplicator(self.clock.now)
        self.publisher, self.consumer = self.new_server()
        self.remote_runner = FakeRunner()
        self.remote_worker = self.new_remote_worker("field_1", self.remote_runner)

    def new_server(self) -> tuple[TaskPublisher, ResultConsumer]:
        side = MemoryServerBus(self.bus)
        publisher = TaskPublisher(
            self.store,
            self.workflow_cache,
            side,
            self.clock,
            self.events,
            settings=self.settings,
            name="courier_1",
            wake_dispatcher=lambda: self.woken.append("publisher"),
        )
        consumer = ResultConsumer(
            self.store,
            self.workflow_cache,
            side,
            self.gate,
            self.deduplicator,
            self.clock,
            self.events,
            settings=self.settings,
            publisher=publisher,
            dispatch=LocalDispatch(wake=lambda: self.woken.append("consumer")),
            on_started=lambda _: None,
            on_workers_changed=lambda: None,
            output_policy=self._output_policy,
        )
        self.taker.connect(NotifiedPublisher(publisher))
        return publisher, consumer

    def new_remote_worker(self, name: str, runner: FakeRunner, **said: object) -> RemoteWorker:
        settings = load(flags={**self.flags, **{f"worker.{key}": value for key, value in said.items()}})
        side = MemoryWorkerBus(self.bus, worker=name, pool=settings.worker.pool)
        return RemoteWorker(
            side,
            runner,
            self.clock,
            self.events,
            settings=settings,
            worker=name,
            wake=asyncio.Event(),
            measure_load=lambda: self.loads.get(name, HostLoad()),
            on_server_time=lambda _theirs_at, _asked_at: None,
        )

    async def open(self) -> None:
        """Start answering requests, and register the worker."""
        await self.consumer.answer()
        await self.remote_worker.heartbeat.send()
        # Longer than clocks may differ: messages sent from now on are newer than the worker.
        self.clock.advance(1_001)

    async def send(self) -> None:
        """Admit ready tasks and publish them."""
        while not await self.dispatcher.step():
            pass
        await self.publisher.step()

    async def get(self, worker: RemoteWorker | None = None) -> None:
        """Let the worker pull and start its tasks."""
        worker = worker or self.remote_worker
        await worker.pull()
        while not await worker.step():
            pass

    async def collect_reports(self) -> None:
        """Store the reports of workers."""
        await self.consumer.step()
        await self.consumer.write_released()

    async def run_cycle(self) -> None:
        """Run all services once."""
        await self.send()
        await self.get()
        await self.collect_reports()

    async def check_runs(self, runs: Iterable[Run], starts: Counter[AttemptRef], delivery: Delivery) -> None:
        """Check that every start has a reason and every run an end; return the starts."""
        assert set(starts.values()) <= {1}, "an attempt was begun twice"
        begun = Counter(task_id for task_id, _ in starts)
        for run in runs:
            ended, attempts = await self.now(run), await self.attempts_of(run)
            [task] = await self.store.history.tasks([run])
            assert ended.over
            assert all(one.result in RETRYABLE_RESULTS for one in attempts[:-1]), attempts
            if delivery is Delivery.AT_MOST_ONCE:
                assert begun[task.task_id] <= 1
            elif ended.status is RunStatus.COMPLETED:
                assert begun[task.task_id] >= 1
            elif ended.status is not RunStatus.CANCELLED:
                assert [one.result for one in attempts].count(Result.LOST) == 3

    async def attempts_of(self, run: Run) -> list[Attempt]:
        tasks = [TaskId(task.task_id) for task in await self.store.history.tasks([run])]
        return list(await self.store.executions.attempts(tasks))
