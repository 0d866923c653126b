"""Tools for testing schedules and schedulers: virtual time, a simulator with faults, and a checker of histories.

The modules are imported on first use, because `gnomon simulate` needs one of them and should start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.adapters.memory import MemoryStore
    from gnomon.core.model import Result
    from gnomon.testing.checker import check
    from gnomon.testing.clock import DrivenClock, VirtualClock
    from gnomon.testing.faults import FaultProbabilities
    from gnomon.testing.scheduler import VirtualScheduler
    from gnomon.testing.simulation import Simulation

__all__ = [
    "DrivenClock",
    "FaultProbabilities",
    "MemoryStore",
    "Result",
    "Simulation",
    "VirtualClock",
    "VirtualScheduler",
    "check",
]

_MODULES = {
    "DrivenClock": "gnomon.testing.clock",
    "FaultProbabilities": "gnomon.testing.faults",
    "MemoryStore": "gnomon.adapters.memory",
    "Result": "gnomon.core.model",
    "VirtualScheduler": "gnomon.testing.scheduler",
    "Simulation": "gnomon.testing.simulation",
    "VirtualClock": "gnomon.testing.clock",
    "check": "gnomon.testing.checker",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'gnomon.testing' has no attribute {name!r}")
