"""Reports that another server is said to be processing, and how long this may be believed."""

from gnomon.ports.coordination import PROCESSED_MS
from gnomon.ports.runtime import Clock

#: How many of them are remembered.
_MOST = 10_000


class BusyReports:
    """Since when reports were found in flight. The mark of a server that has died ends by itself; a false one may not.

    Time decides, not how often a report came: that depends on the pause between two deliveries and on the load. The
    number of deliveries counts only for reports that this server saw for too short a time, because others got them, or
    that are too many to be remembered.
    """

    def __init__(self, clock: Clock, *, in_flight_ms: int, retry_ms: int, most: int = _MOST) -> None:
        """`in_flight_ms`: how long a server may process a report; `retry_ms`: the pause between two deliveries."""
        self._clock = clock
        self._longest = in_flight_ms / 1000
        #: A report that comes again later than this has been processed by another server.
        self._remembered = (in_flight_ms + PROCESSED_MS) / 1000
        self._most_tries = in_flight_ms // retry_ms + 2
        self._most = most
        #: When each was first found in flight, the earliest first.
        self._since: dict[str, float] = {}

    def is_overdue(self, report: str, tries: int) -> bool:
        """Whether no server can still be processing this report, which is in flight and was delivered so often."""
        now = self._clock.elapsed()
        self._forget_old(now)
        if report not in self._since and len(self._since) < self._most:
            self._since[report] = now
        return tries > self._most_tries or now - self._since.get(report, now) >= self._longest

    def forget(self, report: str) -> None:
        """The report is not in flight at another server."""
        self._since.pop(report, None)

    def _forget_old(self, now: float) -> None:
        while self._since:
            report = next(iter(self._since))
            if now - self._since[report] < self._remembered:
                return
            del self._since[report]
