"""When Python is not to look for garbage."""

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
    """Nobody looks for garbage meanwhile: for work that makes much, and nothing that is part of a cycle.

    Each look stops every thread, and takes the longer the more there is.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


#: Where drivers say how busy a graphics card is, in percent.
_CARDS = Path("/sys/class/drm")
_BUSY = "card*/device/gpu_busy_percent"
#: What says it for cards whose driver does not.
_GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class LoadSampler:
    """Measures without waiting: what takes long is asked for, and told the next time."""

    def __init__(self, cards: Path = _CARDS) -> None:
        self._cards = cards
        self._program = shutil.which(_GPU_QUERY[0])
        self._gpu_process: subprocess.Popen[str] | None = None
        self._last_gpu: int | None = None

    def load(self) -> HostLoad:
        """How busy it is now: 100 is one task waiting for each core, and a graphics card that never rests."""
        return HostLoad(cpu=self._cpu(), gpu=self._gpu())

    def close(self) -> None:
        """Nobody is asked any more."""
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
        """What the program said last, while it is asked again."""
        if self._gpu_process is not None:
            if self._gpu_process.poll() is None:
                return self._last_gpu
            self._last_gpu = _highest(self._gpu_process.communicate()[0])
        try:
            asking = (program, *_GPU_QUERY[1:])
            self._gpu_process = subprocess.Popen(asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - our own words
        except OSError:
            self._gpu_process = None
        return self._last_gpu


def _highest(said: str) -> int | None:
    return max((int(line) for line in said.split() if line.isdigit()), default=None)


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
    """UUIDv7 under a prefix: 48 bits of time, then dice. Those of one millisecond grow, each by a throw of the dice.

    So whatever was made together, in whatever number, stands in every index in the order in which it was made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1, 0

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        with self._lock:
            before, dice = self._last
            if before == at:
                dice += 1 + int.from_bytes(os.urandom(4), "big")
            else:
                # The first of its millisecond leaves room for all others.
                dice = int.from_bytes(os.urandom(10), "big") >> 7
            self._last = at, dice
        # Version 7 and variant 2 where RFC 9562 has them: 12 bits, then 62.
        high, low = divmod(dice & (1 << 74) - 1, 1 << 62)
        return f"{prefix}_{at & (1 << 48) - 1:012x}7{high:03x}{(0x2 << 62) | low:016x}"


def tzdata_version() -> str:
    """Which edition of the time zone database decisions are made with."""
    for folder in zoneinfo.TZPATH:
        listing = Path(folder, "tzdata.zi")
        if listing.is_file():
            with listing.open() as lines:
                return lines.readline().removeprefix("# version").strip()
    return importlib.metadata.version("tzdata")
