"""`gnomon` on a machine whose clock is set while it runs: `python settable_clock_process.py FILE server ...`.

The file holds the offset of the wall clock in milliseconds; without a file the clock is right. The monotonic clock is
always right.
"""

import sys
import time
from pathlib import Path

from gnomon.adapters.host import SystemClock
from gnomon.cli import main


def offset_ms(file: Path) -> int:
    """The offset of the clock now."""
    try:
        return int(file.read_text() or 0)
    except FileNotFoundError:
        return 0


def use(file: Path) -> None:
    """Let the wall clock be wrong by what the file says, wherever the program reads it."""

    class SettableClock(SystemClock):
        def now(self) -> int:
            return time.time_ns() // 1_000_000 + offset_ms(file)

        def until(self, at: int) -> float:
            return (at - offset_ms(file)) / 1000 - time.time()

    # Modules may have imported the clock's name already, so the clock itself is changed.
    for name in ("now", "until"):
        setattr(SystemClock, name, vars(SettableClock)[name])


if __name__ == "__main__":
    use(Path(sys.argv.pop(1)))
    main()
