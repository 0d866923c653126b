"""What operators and tests want to hear about."""

from typing import Protocol


class Events(Protocol):
    """Where services announce what happened. Announcing never fails and never waits."""

    def emit(self, name: str, **facts: object) -> None:
        """Something of that name happened."""
        ...
