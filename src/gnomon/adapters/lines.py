"""Lines for a reader who may be slow, or gone: whoever writes them neither fails nor waits."""

import atexit
import os
import queue
import threading
from contextlib import suppress
from typing import TextIO

#: How many lines may wait for the reader.
_MOST = 1000
#: How long the end of the program waits for the reader.
_LAST_SECONDS = 1.0


class Lines:
    """A stream behind a queue and a thread of its own. What cannot be written is dropped and counted."""

    def __init__(self, stream: TextIO, *, most: int = _MOST) -> None:
        self._stream = stream
        self._waiting: queue.Queue[str | threading.Event] = queue.Queue(most)
        self._writer: threading.Thread | None = None
        #: How many lines could not be written.
        self.lost = 0

    def add(self, line: str) -> bool:
        """Whether the line will be written, or at least tried; False if too many wait already."""
        if self._writer is None:
            self._begin()
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            return False
        return True

    def flush(self, seconds: float) -> bool:
        """Whether all lines so far were written, or lost; False if that would take longer."""
        if self._writer is None:
            return True
        reached = threading.Event()
        try:
            self._waiting.put(reached, timeout=seconds)
        except queue.Full:
            return False
        return reached.wait(seconds)

    def _begin(self) -> None:
        self._writer = threading.Thread(target=self._write_on, name="gnomon-lines", daemon=True)
        self._writer.start()
        atexit.register(self.flush, _LAST_SECONDS)

    def _write_on(self) -> None:
        while True:
            next_one = self._waiting.get()
            if isinstance(next_one, threading.Event):
                next_one.set()
                continue
            try:
                self._write(next_one)
            except (OSError, ValueError):  # the disk is full, the reader has left, the stream is closed
                self.lost += 1

    def _write(self, line: str) -> None:
        file = self._descriptor()
        if file is None:
            self._stream.write(line)
            self._stream.flush()
            return
        # Past the stream's buffer: what stays in there would fail, or wait, once more when the program ends.
        rest = line.encode(self._stream.encoding, "replace")
        while rest:
            rest = rest[os.write(file, rest) :]

    def _descriptor(self) -> int | None:
        with suppress(OSError, AttributeError):  # a stream in memory
            return self._stream.fileno()
        return None
