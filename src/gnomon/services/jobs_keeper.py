"""The keeper of a jobs file: what the file says is registered, and said again whenever the file changes."""

from collections import Counter
from collections.abc import Callable, Sequence

from gnomon.core.jobs import Job
from gnomon.errors import Unavailable, UsageError
from gnomon.ports.events import Events
from gnomon.services.applying import Change
from gnomon.services.jobs import JobBook
from gnomon.services.patience import Backoff

#: How often the file is looked at.
_LOOK_SECONDS = 1.0


class JobsKeeper:
    """Applies a file whole or not at all; a broken one is reported and what was registered stays as it is."""

    def __init__(
        self,
        file: str,
        stamp: Callable[[], object],
        read: Callable[[], Sequence[Job]],
        book: JobBook,
        events: Events,
        *,
        actor: str,
    ) -> None:
        self._file = file
        #: Something that changes when the file does.
        self._stamp = stamp
        self._read = read
        self._book = book
        self._events = events
        self._actor = actor
        self._applied: object = None
        self._backoff = Backoff(events, "jobs_keeper")

    async def apply(self) -> None:
        """What the file says is registered, or UsageError."""
        stamp = self._stamp()
        applied = await self._book.apply(self._read(), actor=self._actor)
        self._applied = stamp
        changes = Counter(one.change for one in applied)
        self._events.emit("jobs_applied", file=self._file, **{kind.value: changes[kind] for kind in Change})

    async def step(self) -> float:
        """One look at the file. Returns how many seconds to wait before the next."""
        if self._stamp() == self._applied:
            return _LOOK_SECONDS
        try:
            await self.apply()
        except UsageError as error:
            # Until it changes again there is nothing more to say about it.
            self._applied = self._stamp()
            self._events.emit("jobs_refused", file=self._file, error=str(error))
        except Unavailable as error:
            return self._backoff.failed(error)
        self._backoff.worked()
        return _LOOK_SECONDS
