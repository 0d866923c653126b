"""Failed authentications: counted by reason, and announced with the address that they came from."""

from gnomon.errors import Unauthenticated
from gnomon.ports.runtime import Clock, Events
from gnomon.services.observability.metrics import MetricsRecorder

#: How many addresses are named within a second; all others share one name, so that no client can fill log or memory.
_MAX_ADDRESSES = 10
_OTHER_ADDRESSES = "other addresses"
_SECOND = 1.0


class LoginFailures:
    """Counts each failure, and emits `auth_failed`, which `events` throttles by its cause: reason and address."""

    def __init__(self, events: Events, clock: Clock, metrics: MetricsRecorder | None) -> None:
        self._events = events
        self._clock = clock
        self._metrics = metrics
        #: The addresses that were named in the second that began then.
        self._addresses: set[str] = set()
        self._began = clock.elapsed()

    def record(self, error: Unauthenticated, address: str) -> None:
        """Record a request that was refused because its caller could not be identified."""
        reason = error.cause.value
        if self._metrics is not None:
            self._metrics.add("auth_failures", reason)
        shown = self._shown(address)
        self._events.emit("auth_failed", cause=f"{reason} from {shown}", reason=reason, address=shown, error=str(error))

    def _shown(self, address: str) -> str:
        now = self._clock.elapsed()
        if now - self._began >= _SECOND:
            self._addresses.clear()
            self._began = now
        if address not in self._addresses and len(self._addresses) >= _MAX_ADDRESSES:
            return _OTHER_ADDRESSES
        self._addresses.add(address)
        return address
