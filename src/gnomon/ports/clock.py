"""The only door through which time enters."""

from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting for it to pass."""

    def now(self) -> int:
        """The present instant: milliseconds since 1970, UTC. It may be set forwards and back."""
        ...

    def elapsed(self) -> float:
        """Seconds since some fixed moment. Never goes back, whatever is done to the wall clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has elapsed."""
        ...
