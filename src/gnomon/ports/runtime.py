"""The runtime of services: time, events, ids and pings."""

from typing import Protocol


class Clock(Protocol):
    """The only source of time for services."""

    def now(self) -> int:
        """The current time in milliseconds since 1970, UTC. The clock may be set forwards and back."""
        ...

    def until(self, at: int) -> float:
        """Seconds from now to an instant, as exactly as the clock allows; negative if it is past."""
        ...

    def elapsed(self) -> float:
        """Seconds since a fixed moment. Never goes back, even if the wall clock is set."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this time."""
        ...


class ClockSync(Protocol):
    """Keeps the clock of this process with the clock of the store."""

    async def compare(self) -> None:
        """Correct the clock of this process by the store's; Unavailable if the store does not answer."""
        ...


class Events(Protocol):
    """The sink for events of services. Emitting never fails and never waits."""

    def emit(self, name: str, **facts: object) -> None:
        """Emit an event with this name and these fields."""
        ...


class Ids(Protocol):
    """A source of unique ids."""

    def new(self, prefix: str, at: int) -> str:
        """A new id, `prefix_...`, that sorts by `at`."""
        ...


class PingSender(Protocol):
    """Sends pings to external monitors."""

    async def send(self, url: str, *, timeout_ms: int, configured: bool = False) -> None:
        """Request the URL; PingFailed, without the URL, unless it answers with success in time.

        AddressRefused if it leads to an address that jobs may not reach. A `configured` URL, which the administrator
        has chosen, may lead to any address.
        """
        ...
