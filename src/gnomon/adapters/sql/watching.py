"""Noticing that someone has written to a database file, another process included."""

import sqlite3
from pathlib import Path


class FileWatch:
    """Asks SQLite whether anyone has committed since the last time of asking. That costs microseconds."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(
            Path(path).absolute().as_uri() + "?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._seen = self._version()

    def _version(self) -> int:
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

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
