"""A registered task in a living scheduler."""

from gnomon.declarative.expression import Occurrences
from gnomon.declarative.records import Record
from gnomon.declarative.registrations import Callback


class Slot:
    """What is kept of a task, and what it takes to run it."""

    __slots__ = ("callback", "number", "occurrences", "owed_at", "owed_since", "record")

    def __init__(self, number: int, record: Record, callback: Callback, occurrences: Occurrences) -> None:
        #: The number of its row.
        self.number = number
        self.record = record
        self.callback = callback
        self.occurrences = occurrences
        #: Where it stands on the agenda.
        self.owed_at = 0
        #: Since when it could have been started: what lateness is counted from.
        self.owed_since = 0
