"""The stream of pages: tells a browser which topics have changed, so that it asks again for the parts that show them.

A message names topics only: the browser asks for their rows as a part of a page, with the roles of the session. Each
has the number of the newest change that it tells of as its id. A page has the number that counted before it was made,
so that the browser knows whether it has missed a change before the first message.
"""

from math import inf

import msgspec

from gnomon.api.event_stream import event
from gnomon.ports.change_log import LOG_CHANGE
from gnomon.ports.runtime import Clock
from gnomon.services.observability.change_stream import StreamedChange
from gnomon.ui.requests import segment

#: In seconds: how often a browser is told.
_PAUSE_SECONDS = 1.0
#: With more jobs or executions in one message, it names all of them at once.
_MOST_NAMES = 50
_STILL_HERE = b": still here\n\n"
#: The topics of single objects, and the facts of a change that name them. Lines of a log change nothing else.
_SINGLE = {"job": "job", "execution": "execution_id"}
_SINGLE_LOG = {"log": "execution_id"}


class StaleTopics:
    """Implements EventWriter: at most one message a second, with the topics that have changed since the last one.

    A topic is a kind of changes (`tick`), a job (`job:NAME`), an execution (`execution:ID`) or the log of one
    (`log:ID`); `job:*` is every job.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: set[str] = set()
        self._names: dict[str, set[str]] = {subject: set() for subject in (*_SINGLE, *_SINGLE_LOG)}
        self._send_at = clock.elapsed()
        self._count, self._number = "", 0

    def greeting(self, count: str, number: int) -> bytes:
        """See EventWriter.greeting."""
        self._count, self._number = count, number
        return self._id() + event("listening", b"{}")

    def chunk(self, change: StreamedChange | None) -> bytes:
        """See EventWriter.chunk."""
        if change is not None:
            self._add(change)
            if self._clock.elapsed() < self._send_at:
                return b""
        return self._message() if self._kinds else _STILL_HERE

    def patience(self) -> float:
        """See EventWriter.patience."""
        return max(0.0, self._send_at - self._clock.elapsed()) if self._kinds else inf

    def _add(self, change: StreamedChange) -> None:
        self._number = change.number
        self._kinds.add(change.kind)
        for subject, fact in (_SINGLE_LOG if change.kind == LOG_CHANGE else _SINGLE).items():
            name, names = change.facts.get(fact), self._names[subject]
            if name is not None and len(names) <= _MOST_NAMES:
                names.add(str(name))

    def _message(self) -> bytes:
        topics = sorted(self._kinds)
        for subject, names in self._names.items():
            topics += (
                [f"{subject}:*"] if len(names) > _MOST_NAMES else [f"{subject}:{segment(one)}" for one in sorted(names)]
            )
            names.clear()
        self._kinds.clear()
        self._send_at = self._clock.elapsed() + _PAUSE_SECONDS
        return self._id() + event("stale", msgspec.json.encode(topics))

    def _id(self) -> bytes:
        return f"id: {position(self._count, self._number)}\n".encode()


def position(count: str, number: int) -> str:
    """A number of a count of changes, as pages and their stream have it."""
    return f"{count}.{number}"
