"""The message bus in memory keeps the contract."""

from collections.abc import Sequence

import pytest

from contracts.messaging import ACK_WAIT_MS, MAX_DELIVER, DeadMessages, LetPass, MessagingContract
from gnomon.errors import Unavailable
from gnomon.testing.clock import VirtualClock
from support.memory_bus import MemoryBroker, MemoryServerBus, MemoryWorkerBus


class TestMemoryQueue(MessagingContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(0)

    @pytest.fixture
    def bus(self, clock: VirtualClock) -> MemoryBroker:
        return MemoryBroker(clock.now, ack_wait_ms=ACK_WAIT_MS, max_deliver=MAX_DELIVER)

    @pytest.fixture
    def server(self, bus: MemoryBroker) -> MemoryServerBus:
        return MemoryServerBus(bus)

    @pytest.fixture
    def worker(self, bus: MemoryBroker) -> MemoryWorkerBus:
        return MemoryWorkerBus(bus)

    @pytest.fixture
    def other(self, bus: MemoryBroker) -> MemoryWorkerBus:
        return MemoryWorkerBus(bus, worker="worker_2", pool="gpu")

    @pytest.fixture
    def passing(self, clock: VirtualClock) -> LetPass:
        async def passing(ms: int) -> None:
            clock.advance(ms)

        return passing

    @pytest.fixture
    def dead(self, bus: MemoryBroker) -> DeadMessages:
        async def dead() -> Sequence[bytes]:
            return [body for _, body, _ in bus.dead]

        return dead

    async def test_while_it_is_away_everybody_learns_so(self, bus: MemoryBroker, worker: MemoryWorkerBus) -> None:
        bus.away = True
        with pytest.raises(Unavailable):
            await worker.pull(limit=1, wait_ms=1)
