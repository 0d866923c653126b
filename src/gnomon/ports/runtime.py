"""The only door through which time enters."""

from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting for it to pass."""

    def now(self) -> int:
        """The present instant: milliseconds since 1970, UTC. It may be set forwards and back."""
        ...

    def until(self, at: int) -> float:
        """Seconds from now to an instant, as exactly as the clock can say; negative if it is over."""
        ...

    def elapsed(self) -> float:
        """Seconds since some fixed moment. Never goes back, whatever is done to the wall clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has elapsed."""
        ...


class Events(Protocol):
    """Where services announce what happened. Announcing never fails and never waits."""

    def emit(self, name: str, **facts: object) -> None:
        """Something of that name happened."""
        ...


class Ids(Protocol):
    """A source of names that are never given twice."""

    def new(self, prefix: str, at: int) -> str:
        """`prefix_` and a name that sorts by `at`."""
        ...


class PingSender(Protocol):
    """Who calls."""

    async def send(self, url: str, *, timeout_ms: int) -> None:
        """The address was called and answered well; PingFailed, which does not tell the address, if not in time."""
        ...
