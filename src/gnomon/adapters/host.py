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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

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
_GPU_QUERY_SECONDS = 5.0


#: The time that all processors have spent on each kind of work, in ticks.
_PROCESSORS = Path("/proc/stat")
#: The control group of this process, as a container sees it: its share of the processors, and the time that it used.
_CONTROL_GROUP = Path("/sys/fs/cgroup")
#: Use of the processors is measured over this time at least.
_SHORTEST_WINDOW_SECONDS = 0.25


class _CpuTime(NamedTuple):
    """Processor time that was used, of the time that was available."""

    used: float
    available: float


class CpuMeter:
    """Measures how busy the processors were since the last measurement, in percent.

    Where the control group limits the processors, it is the use of that limit, if that is more.
    """

    def __init__(
        self,
        elapsed: Callable[[], float] = time.monotonic,
        *,
        processors: Path = _PROCESSORS,
        control_group: Path = _CONTROL_GROUP,
    ) -> None:
        self._elapsed = elapsed
        self._processors, self._control_group = processors, control_group
        self._measured_at, self._last = elapsed(), self._counters()
        self._percent: int | None = None

    def percent(self) -> int | None:
        """The use since the last measurement; None if it cannot be measured, or not yet."""
        now = self._elapsed()
        if now - self._measured_at >= _SHORTEST_WINDOW_SECONDS:
            counters = self._counters()
            shares = [_share(last, current) for last, current in zip(self._last, counters, strict=True)]
            self._percent = max((share for share in shares if share is not None), default=None)
            self._measured_at, self._last = now, counters
        return self._percent

    def _counters(self) -> tuple[_CpuTime | None, _CpuTime | None]:
        return self._machine_time(), self._group_time()

    def _machine_time(self) -> _CpuTime | None:
        try:
            with self._processors.open() as lines:
                # user, nice, system, idle, iowait, irq, softirq, steal; the time of guests is in `user` already
                ticks = [int(word) for word in lines.readline().split()[1:9]]
            return _CpuTime(sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        except (OSError, ValueError, IndexError):
            return None

    def _group_time(self) -> _CpuTime | None:
        """The time that the group used, and the time that it could have used until now, in microseconds."""
        try:
            quota, period = self._control_group.joinpath("cpu.max").read_text().split()
            used = self._control_group.joinpath("cpu.stat").read_text().split()
            available = self._elapsed() * 1_000_000 * int(quota) / int(period)
            return _CpuTime(int(used[used.index("usage_usec") + 1]), available)
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            # No control group, or one without a limit.
            return None


def _share(last: _CpuTime | None, current: _CpuTime | None) -> int | None:
    if last is None or current is None or current.available <= last.available:
        return None
    return min(100, max(0, round((current.used - last.used) / (current.available - last.available) * 100)))


class LoadSampler:
    """Measures the load without waiting: a slow command is started, and its output is used at the next call."""

    def __init__(self, cards: Path = _CARDS, cpu: CpuMeter | None = None) -> None:
        self._cards = cards
        self._cpu = cpu or CpuMeter()
        self._program = shutil.which(_GPU_QUERY[0])
        self._gpu_process: subprocess.Popen[str] | None = None
        self._last_gpu: int | None = None
        self._gpu_asked_at = float("-inf")

    def load(self) -> HostLoad:
        """The current load in percent: 100 is all processors, or a graphics card, busy without a pause."""
        return HostLoad(cpu=self._cpu.percent(), gpu=self._gpu())

    def close(self) -> None:
        """Stop the command if it is still running."""
        if self._gpu_process is not None:
            self._gpu_process.kill()
            self._gpu_process.communicate()
            self._gpu_process = None

    def _gpu(self) -> int | None:
        found = []
        for file in self._cards.glob(_BUSY):
            with suppress(OSError, ValueError):
                found.append(int(file.read_text()))
        if not found and self._program is not None:
            return self._query_gpu(self._program)
        return max(found, default=None)

    def _query_gpu(self, program: str) -> int | None:
        """The last output of the program, which is started again once in a while: it takes longer than a file."""
        if self._gpu_process is not None:
            if self._gpu_process.poll() is None:
                return self._last_gpu
            self._last_gpu = _highest(self._gpu_process.communicate()[0])
            self._gpu_process = None
        if time.monotonic() - self._gpu_asked_at >= _GPU_QUERY_SECONDS:
            self._gpu_asked_at = time.monotonic()
            command = (program, *_GPU_QUERY[1:])
            with suppress(OSError):
                self._gpu_process = subprocess.Popen(  # noqa: S603 - a fixed command
                    command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
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
