"""In memory: for simulations, for tests, and for trying things."""

from gnomon.adapters.memory.store import MemoryStore

__all__ = ["MemoryStore"]
