"""Time and chance of the machine we run on."""

import asyncio
import importlib.metadata
import os
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
    """UUIDv7 under a prefix: 48 bits of time, then dice."""

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        dice = int.from_bytes(os.urandom(10), "big")
        # Version 7 and variant 2 where RFC 9562 has them.
        dice = dice & ~(0xF << 76) | (0x7 << 76)
        dice = dice & ~(0x3 << 62) | (0x2 << 62)
        return f"{prefix}_{at & (1 << 48) - 1:012x}{dice:020x}"


def tzdata_version() -> str:
    """Which edition of the time zone database decisions are made with."""
    for folder in zoneinfo.TZPATH:
        listing = Path(folder, "tzdata.zi")
        if listing.is_file():
            with listing.open() as lines:
                return lines.readline().removeprefix("# version").strip()
    return importlib.metadata.version("tzdata")
