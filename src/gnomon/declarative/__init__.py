"""The declarative scheduler: a list of tasks, two methods, and a state that survives restarts."""

from gnomon.declarative.event_log import Counters
from gnomon.declarative.events import Event
from gnomon.declarative.registrations import Registration
from gnomon.declarative.repair import UnreadableRecord, repair_state
from gnomon.declarative.scheduler import Scheduler, counters_of
from gnomon.declarative.state import MemoryState, State

__all__ = [
    "Counters",
    "Event",
    "MemoryState",
    "Registration",
    "Scheduler",
    "State",
    "UnreadableRecord",
    "counters_of",
    "repair_state",
]
