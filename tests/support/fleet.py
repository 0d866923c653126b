"""A server and workers elsewhere on a memory store, a bus in memory, a virtual clock and runners that do as told."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gnomon.adapters.memory.coordination import MemoryGuard
from gnomon.adapters.memory.messaging import MemoryBus, MemoryServerSide, MemoryWorkerSide
from gnomon.config.settings import load
from gnomon.core.model import Attempt, Result, Run, RunStatus, TaskId
from gnomon.core.runs.workflow import Delivery
from gnomon.ports.tasks import Held
from gnomon.services.remote.remote_worker import FieldWorker
from gnomon.services.remote.result_consumer import Collector
from gnomon.services.remote.task_publisher import Courier
from support.crew import Crewed, ToldRunner

#: What lets another attempt of the same task start.
JUSTIFIED = {Result.LOST, Result.NEVER_STARTED, Result.FAILED, Result.INTERRUPTED}


class Fleet(Crewed):
    """The crew's dispatcher and reconciler, and in place of its worker some that know only the bus."""

    def __init__(self, *, flags: Mapping[str, object] | None = None) -> None:
        super().__init__(flags=flags)
        self.flags = dict(flags or {})
        self.bus = MemoryBus(self.clock.now, ack_wait_ms=self.settings.worker.lease_ms)
        self.guard = MemoryGuard(self.clock.now)
        self.courier, self.collector = self.another_server()
        self.hands = ToldRunner()
        self.field = self.field_worker("field_1", self.hands)

    def another_server(self) -> tuple[Courier, Collector]:
        side = MemoryServerSide(self.bus)
        courier = Courier(
            self.store, self.shelf, side, self.clock, self.events, settings=self.settings, courier="courier_1"
        )
        collector = Collector(
            self.store, self.shelf, side, self.gate, self.guard, self.clock, self.events, settings=self.settings
        )
        collector.sent = courier.sent
        collector.on_ended = courier.returned
        collector.on_worker = courier.look
        self.dispatcher.router.on_choosy = courier.choosy
        self.dispatcher.on_scheduled = courier.scheduled
        return courier, collector

    def field_worker(self, name: str, runner: ToldRunner, **said: object) -> FieldWorker:
        settings = load(flags={**self.flags, **{f"worker.{key}": value for key, value in said.items()}})
        side = MemoryWorkerSide(self.bus, worker=name, pool=settings.worker.pool)
        return FieldWorker(side, runner, self.clock, self.events, settings=settings, worker=name)

    async def open(self) -> None:
        """A server answers, and the worker is known."""
        await self.collector.answer()
        await self.field.heart.beat()
        # Longer than clocks may differ: what is sent from now on was sent after it came.
        self.clock.advance(1_001)

    async def send(self) -> None:
        """What is ready is on its way to a worker."""
        while not await self.dispatcher.step():
            pass
        await self.courier.step()

    async def get(self, worker: FieldWorker | None = None) -> None:
        """What is on its way has reached the worker, and is begun."""
        worker = worker or self.field
        await worker.pull()
        while not await worker.step():
            pass

    async def hear(self) -> None:
        """What workers have said is written down."""
        await self.collector.step()

    async def all(self) -> None:
        """Everybody does what there is to do now."""
        await self.send()
        await self.get()
        await self.hear()

    async def judge(self, runs: Iterable[Run], starts: Counter[Held], delivery: Delivery) -> None:
        """Every start of a body has a reason, and every run an end; these were the starts."""
        assert set(starts.values()) <= {1}, "an attempt was begun twice"
        begun = Counter(task_id for task_id, _ in starts)
        for run in runs:
            ended, attempts = await self.now(run), await self.attempts_of(run)
            [task] = await self.store.tasks([run])
            assert ended.over
            assert all(one.result in JUSTIFIED for one in attempts[:-1]), attempts
            if delivery is Delivery.AT_MOST_ONCE:
                assert begun[task.task_id] <= 1
            elif ended.status is RunStatus.COMPLETED:
                assert begun[task.task_id] >= 1
            elif ended.status is not RunStatus.CANCELLED:
                assert [one.result for one in attempts].count(Result.LOST) == 3

    async def attempts_of(self, run: Run) -> list[Attempt]:
        tasks = [TaskId(task.task_id) for task in await self.store.tasks([run])]
        return list(await self.store.attempts(tasks))
