"""Reports that were read from the bus and wait to be written, in turns by worker."""

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import chain

from gnomon.core.worker_ids import identity_of
from gnomon.ports.messaging import InboundMessage

#: How many bytes may wait here, and what each message counts beside its body. The bus keeps the others.
_MOST_BYTES, _MESSAGE_BYTES = 32 << 20, 8 << 10


class ReportTurns:
    """Messages by sender. Each sender has its turn, so that one with many messages delays another by its turns only.

    The bus delivers messages in the order in which they arrived. To find those of others behind the many of one
    sender, the messages in front have to be read first.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        #: The messages of each sender, in the order of the next turns.
        self._waiting: dict[str, deque[InboundMessage]] = {}
        self._keys: set[Hashable] = set()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, messages: Sequence[InboundMessage]) -> None:
        """Let these wait for their turn. One that waits already was delivered again meanwhile, and counts once."""
        for one in messages:
            key = _key(one)
            if key not in self._keys:
                self._keys.add(key)
                self._bytes += _size(one)
                self._waiting.setdefault(identity_of(one.sender), deque()).append(one)

    def take(self, limit: int) -> list[InboundMessage]:
        """Remove up to so many messages: one of each sender in turn, those of a sender in their order."""
        taken = list[InboundMessage]()
        while self._waiting and len(taken) < limit:
            taken.append(self._next())
        return taken

    def take_excess(self) -> list[InboundMessage]:
        """Remove messages if too much waits: those whose turn is last, until half of what may wait is left."""
        if self._bytes <= self._most_bytes:
            return []
        kept, size = list[InboundMessage](), 0
        while self._waiting and 2 * size < self._most_bytes:
            kept.append(self._next())
            size += _size(kept[-1])
        excess = list(chain.from_iterable(self._waiting.values()))
        self._waiting, self._keys, self._bytes = {}, set(), 0
        self.add(kept)
        return excess

    def _next(self) -> InboundMessage:
        sender = next(iter(self._waiting))
        messages = self._waiting.pop(sender)
        one = messages.popleft()
        if messages:
            self._waiting[sender] = messages
        self._keys.discard(_key(one))
        self._bytes -= _size(one)
        return one


def _key(one: InboundMessage) -> Hashable:
    """The identity of a message, whenever it is delivered. Its sender may leave out the name, or take any other."""
    return (one.sender, one.name) if one.name else id(one)


def _size(one: InboundMessage) -> int:
    return len(one.body) + _MESSAGE_BYTES
