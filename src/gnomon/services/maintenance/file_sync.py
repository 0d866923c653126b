"""The keeper of a jobs file: what the file says is registered, and said again whenever the file changes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from gnomon.core.jobs.job import Job
from gnomon.core.runs.routing import Pools
from gnomon.errors import Unavailable, UsageError
from gnomon.ports.runtime import Events
from gnomon.services.execution.router import Router
from gnomon.services.loop import Backoff
from gnomon.services.operations.job_changes import JobChange
from gnomon.services.operations.jobs import ApplyResult, JobService

#: What may become of a job of a watched file: nothing in it removes one.
_REPORTED_CHANGES = (JobChange.CREATED, JobChange.CHANGED, JobChange.UNCHANGED)
#: How often the file is looked at.
_POLL_SECONDS = 1.0


Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """A file that people write, and how it stood when it was last read. It is read on a thread, beside all else."""

    def __init__(
        self,
        name: str,
        *,
        stamp: Callable[[], object],
        digest: Callable[[], object],
        read: Callable[[], Content],
    ) -> None:
        self.name = name
        #: Something cheap that changes whenever the file is written, and something that changes with what it says.
        self._stamp, self._digest = stamp, digest
        self._read = read
        self._seen: object = None
        self._known: object = None

    async def read(self) -> Content:
        """What the file says now; UsageError if it is wrong."""
        self._seen, self._known = self._stamp(), None
        digest = await asyncio.to_thread(self._digest)
        found = await asyncio.to_thread(self._read)
        if self._stamp() == self._seen:
            # Else it was written in between, and which of the two was read is not known.
            self._known = digest
        return found

    async def changed(self) -> bool:
        """Whether it says something else than when it was last read. One that could not be read is new when written."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        if self._known is None or await asyncio.to_thread(self._digest) != self._known:
            return True
        self._seen = stamp
        return False

    def mark_changed(self) -> None:
        """It counts as changed, since what it says did not come to stand."""
        self._seen = self._known = None


class JobsFileSync:
    """Applies a file whole or not at all; a broken one is reported and what was registered stays as it is."""

    def __init__(self, file: WatchedFile[list[Job]], book: JobService, events: Events, *, actor: str) -> None:
        self._file = file
        self._job_service = book
        self._events = events
        self._actor = actor
        self._backoff = Backoff(events, "jobs_keeper")

    def announce(self, applied: Iterable[ApplyResult]) -> None:
        """Say what became of the jobs of the file."""
        changes = Counter(one.change for one in applied)
        self._events.emit(
            "jobs_applied", file=self._file.name, **{kind.value: changes[kind] for kind in _REPORTED_CHANGES}
        )

    async def step(self) -> float:
        """One look at the file. Returns how many seconds to wait before the next."""
        if not await self._file.changed():
            return _POLL_SECONDS
        try:
            self.announce(await self._apply())
        except UsageError as error:
            # Until it changes again there is nothing more to say about it.
            self._events.emit("jobs_refused", file=self._file.name, error=str(error))
        except Unavailable as error:
            return self._backoff.failed(error)
        self._backoff.worked()
        return _POLL_SECONDS

    async def _apply(self) -> list[ApplyResult]:
        jobs = await self._file.read()
        try:
            return await self._job_service.apply(jobs, actor=self._actor)
        except UsageError:
            raise
        except Exception:
            self._file.mark_changed()
            raise


def reject_duplicate_jobs(jobs: Mapping[str, Sequence[Job]]) -> None:
    """UsageError if a job stands in two places, with both."""
    found: dict[str, str] = {}
    for place, some in jobs.items():
        for job in some:
            first = found.setdefault(job.name, place)
            if first != place:
                raise UsageError(f"the job {job.name!r} stands in {first} and in {place}")


class PoolsFileSync:
    """A file that is broken is reported, and what it said before goes on counting."""

    def __init__(
        self, file: WatchedFile[Pools], router: Router, events: Events, *, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when the router uses other pools than before."""
        self._file = file
        self._router = router
        self._events = events
        self._on_change = on_change

    async def read(self) -> None:
        """What the file says counts from now on; UsageError if it is wrong."""
        found = await self._file.read()
        self._router.use_pools(found)
        self._on_change()
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
        return _POLL_SECONDS
