"""Events as JSON, one object on each line: for those who collect logs."""

import time
from typing import TextIO

import msgspec

from gnomon.adapters.lines import Lines
from gnomon.adapters.logs import WARNINGS
from gnomon.core.instants import instant_of

#: How many lines may wait to be written. Every event is one, and thousands of tasks may end in a second.
_MOST = 10_000


class JsonEvents:
    """Writes a line for each event, and counts what is not taken in time: nobody is waited for."""

    def __init__(self, stream: TextIO, *, most: int = _MOST) -> None:
        self._lines = Lines(stream, most=most)
        self._untold = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if self._untold and self._lines.add(_line("lines_lost", {"count": self._untold})):
            self._untold = 0
        if not self._lines.add(_line(name, facts)):
            self._untold += 1

    def flush(self, seconds: float = 1.0) -> bool:
        """Whether all that was said is written, or was lost; False if that would take longer."""
        return self._lines.flush(seconds)


def _line(name: str, facts: dict[str, object]) -> str:
    said: dict[str, object] = {
        "time": instant_of(time.time_ns() // 1_000_000),
        "level": "warning" if name in WARNINGS else "info",
        "event": name,
    }
    try:
        return msgspec.json.encode({**said, **facts, **said}, enc_hook=str).decode() + "\n"
    except (TypeError, ValueError):  # a fact that is no data at all is told as it looks
        plain = {fact: repr(value) for fact, value in facts.items()}
        return msgspec.json.encode({**said, **plain, **said}).decode("utf-8", "replace") + "\n"
