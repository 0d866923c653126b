"""Who must be looked at when. Looking at what is due costs nothing for what is not."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """Items by instant. Most share theirs, the beginning of a minute, so instants are sorted and items are not."""

    def __init__(self) -> None:
        self._items: dict[int, list[T]] = {}
        self._instants: list[int] = []

    def put(self, item: T, at: int) -> None:
        """The item will be taken at `at`."""
        items = self._items.get(at)
        if items is None:
            items = self._items[at] = []
            heappush(self._instants, at)
        items.append(item)

    def take(self, now: int) -> Iterator[T]:
        """The items whose instant has come. They are on the agenda no more."""
        while self._instants and self._instants[0] <= now:
            yield from self._items.pop(heappop(self._instants))

    @property
    def next_at(self) -> int | None:
        """The earliest instant on it."""
        return self._instants[0] if self._instants else None
