"""Writes to a pipe from an event loop, however slowly its reader reads."""

import asyncio
import os
from contextlib import suppress


class PipeWriter:
    """Keeps what the pipe does not take yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._pending = bytearray()
        os.set_blocking(descriptor, False)

    @property
    def waiting(self) -> int:
        """How many bytes the pipe has not taken yet."""
        return len(self._pending)

    def write(self, data: bytes) -> None:
        """Write the data after everything before it; drop it if the reader has gone."""
        if self._descriptor is None:
            return
        waits = bool(self._pending)
        self._pending += data
        if not waits:
            self._flush()
            if self._pending and self._descriptor is not None:
                self._loop.add_writer(self._descriptor, self._flush)

    def close(self) -> None:
        """Close the pipe, and drop what it has not taken."""
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        self._pending.clear()

    def _flush(self) -> None:
        if self._descriptor is None:
            return
        with suppress(BlockingIOError):
            try:
                while self._pending:
                    del self._pending[: os.write(self._descriptor, self._pending)]
            except BrokenPipeError:
                self.close()
                return
        if not self._pending and self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
