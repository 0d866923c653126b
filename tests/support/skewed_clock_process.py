"""`gnomon` on a machine whose clock is wrong: `python skewed_clock_process.py MILLISECONDS server --database ...`.

The clock on the wall is wrong wherever the program asks for it; the one that nobody sets goes on as it does.
"""

import sys
import time

from gnomon.adapters.host import SystemClock
from gnomon.cli import main


def skew(offset_ms: int) -> None:
    """From now on the clock is wrong by so much."""

    class WrongClock(SystemClock):
        def now(self) -> int:
            return time.time_ns() // 1_000_000 + offset_ms

        def until(self, at: int) -> float:
            return at / 1000 - time.time() - offset_ms / 1000

    # Whoever has the name of the clock already would go on with the right one, so the clock itself is made wrong.
    for name in ("now", "until"):
        setattr(SystemClock, name, vars(WrongClock)[name])


if __name__ == "__main__":
    skew(int(sys.argv.pop(1)))
    main()
