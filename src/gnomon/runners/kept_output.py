"""The output of a command that is kept: its beginning and its end, without secrets."""

from collections.abc import Callable
from typing import NamedTuple

from gnomon.runners.child_process import CHUNK, LineSplitter
from gnomon.runners.logs import Redact, storable
from gnomon.runners.secrets import Redactor

#: The bytes of each stream that are kept, the marker of those in the middle included.
MOST_BYTES = 16_384
#: A byte with these two highest bits continues a character.
_CONTINUES, _CONTINUED = 0b1100_0000, 0b1000_0000


class KeptText(NamedTuple):
    """The kept parts of an output, without secrets."""

    head: str
    #: Empty if the head is all of it.
    tail: str
    #: How many bytes between them were dropped.
    dropped: int

    def shortened(self, most: int) -> tuple[str, bool]:
        """The text with at most so many bytes, cut in the middle, and whether it was cut."""
        head, tail = self.head.encode(), self.tail.encode()
        if not self.dropped and len(head) + len(tail) <= most:
            return self.head + self.tail, False
        longest = len(_marker(self.dropped + len(head) + len(tail)))
        half = max(0, most - longest) // 2
        # Without a tail, both halves are of the head.
        first, last = (head, tail) if tail else (head[:half], head[half:])
        first, last = first[:half], last[-half:] if half else b""
        marker = _marker(self.dropped + len(head) + len(tail) - len(first) - len(last))
        return f"{first.decode(errors='ignore')}{marker}{last.decode(errors='ignore')}", True


def _marker(left_out: int) -> str:
    return f"\n...[{left_out} bytes left out]...\n"


class KeptOutput(LineSplitter):
    """Splits output into lines, and keeps its first and its last bytes."""

    def __init__(self, on_line: Callable[[bytes, bool], None]) -> None:
        super().__init__(CHUNK, on_line)
        self._head, self._tail = bytearray(), bytearray()
        self._dropped = 0

    def feed(self, piece: bytes) -> None:
        """See LineSplitter.feed."""
        missing = MOST_BYTES - len(self._head)
        self._head += piece[:missing]
        self._tail += piece[missing:]
        if (more := len(self._tail) - MOST_BYTES) > 0:
            del self._tail[:more]
            self._dropped += more
        super().feed(piece)

    def text(self, redact: Redact) -> KeptText:
        """The output without secrets and without line ends at its end."""
        if not self._dropped:
            return KeptText(_clean(self._head + self._tail, redact).rstrip("\n"), "", 0)
        tail = self._tail
        while tail and tail[0] & _CONTINUES == _CONTINUED:
            tail = tail[1:]
        head, tail_text = _clean(self._head, redact), _clean(tail, redact).rstrip("\n")
        if isinstance(redact, Redactor):
            head, tail_text = redact.without_beginnings(head), redact.without_endings(tail_text)
        return KeptText(head, tail_text, self._dropped)


def _clean(raw: bytearray, redact: Redact) -> str:
    return storable(redact(raw.decode(errors="replace")))
