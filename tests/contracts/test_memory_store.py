"""The store in memory keeps the contract."""

from collections.abc import Callable

import pytest

from contracts.audit import AuditContract
from contracts.events import EventContract
from contracts.store import NOON, StoreContract
from contracts.work import WorkContract
from gnomon.adapters.memory import MemoryStore


class HandClock:
    def __init__(self) -> None:
        self.now = NOON

    def advance(self, by: int) -> None:
        self.now += by


class TestMemoryStore(StoreContract, WorkContract, EventContract, AuditContract):
    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def store(self, clock: HandClock) -> MemoryStore:
        return MemoryStore(lambda: clock.now)

    @pytest.fixture
    def advance(self, clock: HandClock) -> Callable[[int], None]:
        return clock.advance
