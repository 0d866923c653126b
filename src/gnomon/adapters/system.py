"""Time and chance of the machine we run on."""

import asyncio
import importlib.metadata
import os
import threading
import time
import zoneinfo
from pathlib import Path


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
