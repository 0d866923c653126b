"""Stores in memory with one defect: rules of their own, or one part replaced."""

from collections.abc import Callable
from functools import partial

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.schedules import MemoryJobs, MemorySchedules
from gnomon.adapters.memory.state import MemoryTables

#: Makes a store on a clock.
StoreFactory = Callable[[Callable[[], int]], MemoryStore]


def with_rules(rules: type[MemoryRules]) -> StoreFactory:
    """Stores with these rules."""
    return partial(MemoryStore, rules=rules)


def with_part(name: str, part: Callable[[MemoryTables, MemoryRules], object]) -> StoreFactory:
    """Stores whose part of that name is another."""

    def make(now: Callable[[], int]) -> MemoryStore:
        store = MemoryStore(now)
        setattr(store, name, part(store.state, store.rules))
        return store

    return make


def with_schedules(schedules: type[MemorySchedules]) -> StoreFactory:
    """Stores with these schedules, also when jobs change them."""

    def make(now: Callable[[], int]) -> MemoryStore:
        store = MemoryStore(now)
        store.schedules = schedules(store.state, store.rules)
        store.jobs = MemoryJobs(store.state, store.schedules)
        return store

    return make
