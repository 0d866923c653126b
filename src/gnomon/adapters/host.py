"""The host system: garbage collection, load, clocks, random ids and the time zone database."""

import asyncio
import gc
import importlib.metadata
import os
import shutil
import subprocess
import threading
import time
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon.ports.tasks import HostLoad


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, for work that allocates many objects and no cycles.

    Each collection stops every thread, and takes longer the more objects there are.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


#: Files in which drivers publish the load of a graphics card, in percent.
_CARDS = Path("/sys/class/drm")
_BUSY = "card*/device/gpu_busy_percent"
#: The command for cards whose driver publishes no such file.
_GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class LoadSampler:
    """Measures the load without waiting: a slow command is started, and its output is used at the next call."""

    def __init__(self, cards: Path = _CARDS) -> None:
        self._cards = cards
        self._program = shutil.which(_GPU_QUERY[0])
        self._gpu_process: subprocess.Popen[str] | None = None
        self._last_gpu: int | None = None

    def load(self) -> HostLoad:
        """The current load in percent: 100 is one runnable thread per core, or a fully busy graphics card."""
        return HostLoad(cpu=self._cpu(), gpu=self._gpu())

    def close(self) -> None:
        """Stop the command if it is still running."""
        if self._gpu_process is not None:
            self._gpu_process.kill()
            self._gpu_process.communicate()
            self._gpu_process = None

    def _cpu(self) -> int | None:
        try:
            return round(os.getloadavg()[0] / (os.cpu_count() or 1) * 100)
        except OSError:
            return None

    def _gpu(self) -> int | None:
        found = []
        for file in self._cards.glob(_BUSY):
            with suppress(OSError, ValueError):
                found.append(int(file.read_text()))
        if not found and self._program is not None:
            return self._query_gpu(self._program)
        return max(found, default=None)

    def _query_gpu(self, program: str) -> int | None:
        """The last output of the program; start it again once it has ended."""
        if self._gpu_process is not None:
            if self._gpu_process.poll() is None:
                return self._last_gpu
            self._last_gpu = _highest(self._gpu_process.communicate()[0])
        try:
            command = (program, *_GPU_QUERY[1:])
            self._gpu_process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - a fixed command
        except OSError:
            self._gpu_process = None
        return self._last_gpu


def _highest(output: str) -> int | None:
    return max((int(line) for line in output.split() if line.isdigit()), default=None)


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        """See Clock.now."""
        return time.time_ns() // 1_000_000

    def until(self, at: int) -> float:
        """See Clock.until."""
        return at / 1000 - time.time()

    def elapsed(self) -> float:
        """See Clock.elapsed."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        await asyncio.sleep(seconds)


class RandomIds:
    """UUIDv7 under a prefix: 48 bits of time, then random bits. Within one millisecond each id grows by a random step.

    So every index keeps ids in the order in which they were made, also those of the same millisecond.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1, 0

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        with self._lock:
            before, number = self._last
            if before == at:
                number += 1 + int.from_bytes(os.urandom(4), "big")
            else:
                # The top bits are zero, so that later ids of the millisecond do not overflow.
                number = int.from_bytes(os.urandom(10), "big") >> 7
            self._last = at, number
        # Version 7 and variant 2 where RFC 9562 has them: 12 bits, then 62.
        high, low = divmod(number & (1 << 74) - 1, 1 << 62)
        return f"{prefix}_{at & (1 << 48) - 1:012x}7{high:03x}{(0x2 << 62) | low:016x}"


def tzdata_version() -> str:
    """The version of the time zone database that schedules are computed with."""
    for folder in zoneinfo.TZPATH:
        listing = Path(folder, "tzdata.zi")
        if listing.is_file():
            with listing.open() as lines:
                return lines.readline().removeprefix("# version").strip()
    return importlib.metadata.version("tzdata")
