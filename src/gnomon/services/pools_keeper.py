"""The keeper of a table of pools: what the file says counts, and counts anew whenever the file changes."""

from collections.abc import Callable

from gnomon.core.runs.routing import Pools
from gnomon.errors import UsageError
from gnomon.ports.runtime import Events
from gnomon.services.jobs_keeper import WatchedFile
from gnomon.services.router import Router

#: How often the file is looked at.
_LOOK_SECONDS = 1.0


class PoolsKeeper:
    """A file that is broken is reported, and what it said before goes on counting."""

    def __init__(self, file: WatchedFile[Pools], router: Router, events: Events) -> None:
        self._file = file
        self._router = router
        self._events = events
        #: Called when something else counts than before.
        self.on_change: Callable[[], None] = lambda: None

    async def read(self) -> None:
        """What the file says counts from now on; UsageError if it is wrong."""
        found = await self._file.read()
        self._router.pools = found
        self.on_change()
        pools = {name for names in found.topics.values() for name in names}
        self._events.emit("pools_read", file=self._file.name, topics=len(found.topics), pools=len(pools))

    async def step(self) -> float:
        """One look at the file. Returns how many seconds to wait before the next."""
        if await self._file.changed():
            try:
                await self.read()
            except UsageError as error:
                # Until it changes again there is nothing more to say about it.
                self._events.emit("pools_refused", file=self._file.name, error=str(error))
        return _LOOK_SECONDS
