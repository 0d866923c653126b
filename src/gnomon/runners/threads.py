"""Threads for functions that are not coroutines.

They are daemons, unlike those of the standard library's pools: a function that never returns must not keep the program
from ending.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """At most so many threads, made when they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[[], object]) -> None:
        """Have it called as soon as a thread is free."""
        with self._lock:
            self._work.put(work)
            self._waiting += 1
            self._grow()

    def widen(self) -> None:
        """One thread is stuck: another may take its place."""
        with self._lock:
            self._limit += 1
            self._grow()

    def narrow(self) -> None:
        """It is no longer stuck."""
        with self._lock:
            self._limit -= 1
            if self._alive > self._limit:
                self._work.put(None)

    def close(self) -> None:
        """Threads end when they have nothing more to do."""
        with self._lock:
            self._closed = True
            for _ in range(self._alive):
                self._work.put(None)

    def _grow(self) -> None:
        """One more thread, if there is work that the existing ones may not get to."""
        if self._alive < min(self._limit, self._waiting) and not self._closed:
            self._alive += 1
            threading.Thread(target=self._serve, name=f"gnomon-function-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                with self._lock:
                    self._waiting -= 1
        with self._lock:
            self._alive -= 1
