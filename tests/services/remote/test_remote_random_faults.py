"""A fleet on a bus that loses, doubles and shuffles, with workers and servers that die: nothing is lost or doubled."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from gnomon.core.model import Result, Run
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.ports.messaging import RequestHandler
from gnomon.ports.tasks import AttemptRef
from gnomon.services.remote.remote_worker import RemoteWorker
from support.effort import EFFORT
from support.execution import FakeRunner
from support.fleet_harness import FleetHarness
from support.task_steps import workflow

RUNS = 60


class CountingRunner(FakeRunner):
    """Remembers every start of a body, of whichever worker."""

    def __init__(self, starts: "Counter[AttemptRef]") -> None:
        super().__init__()
        self._starts = starts

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._starts.update((one.task.task_id, one.task.fence) for one in assignments)
        super().start(assignments)


class RandomFaults:
    """One history, made by dice."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fleet = FleetHarness(flags={"worker.slots": 15})
        self.starts: Counter[AttemptRef] = Counter()
        self.workers: list[tuple[RemoteWorker, CountingRunner]] = []
        self.born = 0
        self.runs: list[Run] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    async def begin(self, delivery: Delivery) -> None:
        retry = RetryPolicy(max_attempts=50, initial_delay_ms=10)
        job = await self.fleet.job(workflow(retry=retry, delivery=delivery))
        self.runs += [await self.fleet.run(job, f"{number:03}") for number in range(RUNS)]
        await self.fleet.consumer.answer()

    async def turn(self, *, calm: bool) -> None:
        """Something happens to somebody."""
        if not calm:
            self._hurt()
        while len(self.workers) < 2:
            self.born += 1
            remote_runner = CountingRunner(self.starts)
            self.workers.append((self.fleet.new_remote_worker(f"field_{self.born}", remote_runner), remote_runner))
        steps = [self.fleet.dispatcher.step, self.fleet.publisher.step, self.fleet.consumer.step]
        for worker, remote_runner in self.workers:
            for held in list(remote_runner.started):
                if calm or self.chance(0.5):
                    remote_runner.end(held, Result.FAILED if self.chance(0.1) and not calm else Result.SUCCEEDED)
            steps += [worker.heartbeat.send, worker.pull, worker.step]
        self.rng.shuffle(steps)
        answer = self.fleet.bus.grants
        if answer is not None and self.chance(0.5):
            self.fleet.bus.grants = self._slow(answer)
        await asyncio.gather(*(step() for step in steps))
        self.fleet.bus.grants = answer
        if self.chance(0.3):
            await self.fleet.reconciler.step()
        self.fleet.clock.advance(self.rng.choice((10, 500, 3_000)))

    def _slow(self, answer: RequestHandler) -> RequestHandler:
        """Until a wish is answered, others do something."""
        turns = self.rng.randrange(1, 50)

        async def slow(sender: str, body: bytes) -> bytes:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await answer(sender, body)

        return slow

    def _hurt(self) -> None:
        bus, rng = self.fleet.bus, self.rng
        bus.away = self.chance(0.15)
        if self.chance(0.1):
            # The worker is dead, and what it has begun never ends.
            del self.workers[rng.randrange(2) :]
        if self.chance(0.1):
            self.fleet.publisher, self.fleet.consumer = self.fleet.new_server()
        for stream in (bus.reports, *bus.work.values()):
            for number, message in list(stream.messages.items()):
                if self.chance(0.1):
                    # It is delivered again, though somebody has it.
                    message.visible_at = 0
                elif self.chance(0.02):
                    del stream.messages[number]
            shuffled = list(stream.messages.items())
            rng.shuffle(shuffled)
            stream.messages = dict(shuffled)


@pytest.mark.req("R-17")
@pytest.mark.guarantee("C1", "C5", "S4", "S5", "S7", "S9")
@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("seed", range(12 * EFFORT))
async def test_under_random_faults_of_the_bus_every_start_has_a_reason_and_every_run_an_end(
    seed: int, delivery: Delivery
) -> None:
    chaos = RandomFaults(seed)
    await chaos.begin(delivery)
    for _ in range(60):
        await chaos.turn(calm=False)
    chaos.fleet.bus.away = False
    await chaos.fleet.consumer.answer()
    for _ in range(400):
        await chaos.turn(calm=True)
        if all([(await chaos.fleet.now(run)).over for run in chaos.runs]):
            break

    await chaos.fleet.check_runs(chaos.runs, chaos.starts, delivery)
