"""Measures how long one callback holds an event loop, in processor time, and how long one thread holds the interpreter.

Processor time of the thread of the loop does not depend on the load of the machine. The interpreter may also be held by
another thread, in a call that does not release it; that is seen from the time that passes, as far as the process worked
in it: in the rest it waited for a processor. A measurement is repeated, and the shortest counts.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, process_time, thread_time
from typing import Any
from unittest import mock

_PROBE_SECONDS = 0.001


@dataclass
class LoopHolds:
    """The longest holds so far."""

    callback_seconds: float = 0.0
    #: The callback that took longest.
    callback: str = ""
    interpreter_seconds: float = 0.0

    def reset(self) -> None:
        """Forget what was measured."""
        self.callback_seconds, self.callback, self.interpreter_seconds = 0.0, "", 0.0


@contextmanager
def measured_loop_holds(thread: str) -> Iterator[LoopHolds]:
    """Measure the callbacks of every event loop on the thread of that name."""
    holds, stop = LoopHolds(), threading.Event()
    run = asyncio.Handle._run  # noqa: SLF001 - the loop has no other place to measure

    def measured(handle: Any) -> None:  # noqa: ANN401 - the handle of a callback
        if threading.current_thread().name != thread:
            return run(handle)
        began = thread_time()
        try:
            return run(handle)
        finally:
            took = thread_time() - began
            if took > holds.callback_seconds:
                holds.callback_seconds, holds.callback = took, repr(handle)

    def probe() -> None:
        last, worked = monotonic(), process_time()
        while not stop.wait(_PROBE_SECONDS):
            now, working = monotonic(), process_time()
            held = min(now - last, working - worked)
            holds.interpreter_seconds = max(holds.interpreter_seconds, held)
            last, worked = now, working

    prober = threading.Thread(target=probe, daemon=True)
    prober.start()
    try:
        with mock.patch.object(asyncio.Handle, "_run", measured):
            yield holds
    finally:
        stop.set()
        prober.join()
