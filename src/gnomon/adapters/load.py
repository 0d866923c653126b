"""How busy this machine is."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from gnomon.ports.tasks import Load

#: Where drivers say how busy a graphics card is, in percent.
_CARDS = Path("/sys/class/drm")
_BUSY = "card*/device/gpu_busy_percent"
#: What says it for cards whose driver does not.
_ASK = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class LoadMeter:
    """Measures without waiting: what takes long is asked for, and told the next time."""

    def __init__(self, cards: Path = _CARDS) -> None:
        self._cards = cards
        self._program = shutil.which(_ASK[0])
        self._asked: subprocess.Popen[str] | None = None
        self._told: int | None = None

    def load(self) -> Load:
        """How busy it is now: 100 is one task waiting for each core, and a graphics card that never rests."""
        return Load(cpu=self._cpu(), gpu=self._gpu())

    def close(self) -> None:
        """Nobody is asked any more."""
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()
            self._asked = None

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
            return self._asked_for(self._program)
        return max(found, default=None)

    def _asked_for(self, program: str) -> int | None:
        """What the program said last, while it is asked again."""
        if self._asked is not None:
            if self._asked.poll() is None:
                return self._told
            self._told = _highest(self._asked.communicate()[0])
        try:
            asking = (program, *_ASK[1:])
            self._asked = subprocess.Popen(asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - our own words
        except OSError:
            self._asked = None
        return self._told


def _highest(said: str) -> int | None:
    return max((int(line) for line in said.split() if line.isdigit()), default=None)
