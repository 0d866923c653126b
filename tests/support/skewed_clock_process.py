"""`gnomon` on a machine whose clock is wrong: `python skewed_clock_process.py MILLISECONDS server --database ...`.

The wall clock is wrong wherever the program reads it; the monotonic clock is right.
"""

import sys
import time

from gnomon.adapters.host import SystemClock
from gnomon.cli import main


def skew(offset_ms: int) -> None:
    """Make the wall clock wrong by so much."""

    class WrongClock(SystemClock):
        def now(self) -> int:
            return time.time_ns() // 1_000_000 + offset_ms

        def until(self, at: int) -> float:
            return at / 1000 - time.time() - offset_ms / 1000

    # Modules may have imported the clock's name already, so the clock itself is made wrong.
    for name in ("now", "until"):
        setattr(SystemClock, name, vars(WrongClock)[name])


if __name__ == "__main__":
    skew(int(sys.argv.pop(1)))
    main()
