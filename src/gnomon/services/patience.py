"""Waiting for a store or a bus that failed: a little at first, then longer."""

from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.runtime import Events

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


class Backoff:
    """How long a service waits after each failure in a row."""

    def __init__(self, events: Events, service: str) -> None:
        self._events = events
        self._service = service
        self._pause = _FIRST_SECONDS
        #: The last step failed.
        self.failing = False
        #: Why the last failure was one.
        self.error = ""

    def failed(self, error: Unavailable) -> float:
        """Seconds to wait before the next try."""
        self.failing, self.error = True, str(error)
        what = "bus_unavailable" if isinstance(error, BusUnavailable) else "store_unavailable"
        self._events.emit(what, service=self._service, error=self.error)
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_SECONDS)
        return pause

    def worked(self) -> None:
        """The next failure is a first one again."""
        self._pause, self.failing = _FIRST_SECONDS, False
