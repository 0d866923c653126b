"""In memory: for simulations, for tests, and for trying things."""

from gnomon.adapters.memory.audit import MemoryStore

__all__ = ["MemoryStore"]
