"""Calling addresses elsewhere."""

from typing import Protocol


class Sender(Protocol):
    """Who calls."""

    async def send(self, url: str, *, timeout_ms: int) -> None:
        """The address was called and answered well; PingFailed, which does not tell the address, if not in time."""
        ...
