"""Noticing what others do to a database file: that they have written to it, or taken it away."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from gnomon.ports.runtime import Events

#: How soon a write by another process is noticed.
_NOTICED_SECONDS = 0.1
#: How often to look whether the file is still there.
_LOOK_SECONDS = 1.0


class FileWatch:
    """Asks SQLite whether anyone has committed since the last time of asking. That costs microseconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._told: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self.changed()

    def _version(self) -> int:
        if self._connection is None:
            self._connection = sqlite3.connect(
                Path(self._path).absolute().as_uri() + "?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return found

    def changed(self) -> bool:
        """Whether there was a commit since the last time of asking; True, too, if that cannot be said."""
        try:
            version = self._version()
        except sqlite3.Error:
            return True
        before, self._seen = self._seen, version
        return version != before

    async def tell(self, told: Callable[[], None], stop: asyncio.Event) -> None:
        """Whoever wants to know is told of every change soon, and once at first, until told to stop."""
        self._told = told
        told()
        self._look_again()
        try:
            await stop.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.close()

    def _look_again(self) -> None:
        # A bare timer: a process that has nothing to do spends most of its time here.
        self._timer = asyncio.get_running_loop().call_later(_NOTICED_SECONDS, self._look)

    def _look(self) -> None:
        self._look_again()
        if self.changed():
            self._told()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()


class FileGuard:
    """Says once that the path no longer leads to the file that it led to at first, and again if that recurs.

    Whoever has such a file open goes on writing to what nobody will find again.
    """

    def __init__(self, path: str, events: Events) -> None:
        self._path = os.path.realpath(path)
        self._events = events
        self._first = _identity(self._path)
        self._gone = False

    async def step(self) -> float:
        """One look. Returns how many seconds to wait before the next."""
        gone = _identity(self._path) != self._first
        if gone and not self._gone:
            self._events.emit("database_gone", path=self._path)
        self._gone = gone
        return _LOOK_SECONDS


def _identity(path: str) -> tuple[int, int] | None:
    """Which file the path leads to; None if to none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each second, and there is nothing to gain from an object
    except OSError:
        return None
    return found.st_dev, found.st_ino
