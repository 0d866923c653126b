"""Where names come from that must not follow from anything."""

from typing import Protocol


class Ids(Protocol):
    """A source of names that are never given twice."""

    def new(self, prefix: str, at: int) -> str:
        """`prefix_` and a name that sorts by `at`."""
        ...
