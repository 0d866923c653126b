"""The store in memory: for simulations, tests and experiments."""

from gnomon.adapters.memory.store import MemoryStore

__all__ = ["MemoryStore"]
