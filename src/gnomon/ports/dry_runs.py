"""Dry runs of definitions."""

from typing import Protocol


class DryRunner(Protocol):
    """Simulates jobs apart from this process."""

    async def run(self, request: bytes) -> bytes:
        """The report on the request, both as JSON.

        UsageError if it takes too long or too much memory, TooMany if too many run already.
        """
        ...
