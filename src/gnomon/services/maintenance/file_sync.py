"""Watched files: jobs files are applied, and the pools file is read, whenever they change."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from gnomon.core import component_names
from gnomon.core.jobs.job import Job, warnings
from gnomon.core.jobs.origins import origin_text
from gnomon.core.runs.routing import Pools
from gnomon.errors import ChangesRefused, Unavailable, UsageError
from gnomon.ports.runtime import Events
from gnomon.services.execution.router import Router
from gnomon.services.loop import Backoff
from gnomon.services.operations.job_changes import Declaration, JobChange
from gnomon.services.operations.jobs import ApplyResult, JobService

#: The changes of the jobs in a watched file.
_REPORTED_CHANGES = (JobChange.CREATED, JobChange.CHANGED, JobChange.UNCHANGED)
#: How many jobs an event names.
_NAMED = 10
#: How often a file is checked.
_POLL_SECONDS = 1.0


Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """A file and its state when it was last read. It is read in a thread, so that the event loop goes on."""

    def __init__(
        self,
        name: str,
        *,
        stamp: Callable[[], object],
        digest: Callable[[], object],
        read: Callable[[], Content],
    ) -> None:
        self.name = name
        #: A cheap value that changes with every write of the file, and one that changes with its content.
        self._stamp, self._digest = stamp, digest
        self._read = read
        self._seen: object = None
        self._known: object = None

    async def read(self) -> Content:
        """The content of the file; UsageError if it is wrong."""
        self._seen, self._known = self._stamp(), None
        digest, found = await _in_own_thread(lambda: (self._digest(), self._read()))
        if self._stamp() == self._seen:
            # Otherwise it was written in between, and it is not known which content was read.
            self._known = digest
        return found

    async def changed(self) -> bool:
        """Whether the content differs from the last read. An unreadable file has changed once it is written again."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        if self._known is None or await asyncio.to_thread(self._digest) != self._known:
            return True
        self._seen = stamp
        return False

    def mark_changed(self) -> None:
        """Treat the file as changed, since its content could not be applied."""
        self._seen = self._known = None


async def _in_own_thread(call: Callable[[], Content]) -> Content:
    """The result of the call, made in a thread that is gone afterwards.

    A process that starts reads its files first, and may fork only as long as it has no other thread.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="gnomon-file") as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, call)


class JobsFileSync:
    """Applies a jobs file atomically. A broken file is reported, and the registered jobs stay as they are."""

    def __init__(
        self,
        file: WatchedFile[list[Job]],
        jobs: JobService,
        events: Events,
        *,
        actor: str,
        declaration: Declaration | None = None,
    ) -> None:
        """`declaration` names the origin of the jobs in the file."""
        self._file = file
        self._declaration = declaration
        self._job_service = jobs
        self._events = events
        self._actor = actor
        self._backoff = Backoff(events, component_names.JOBS_FILE_WRITES)

    def announce(self, jobs: Iterable[Job], applied: Iterable[ApplyResult]) -> None:
        """Announce how the jobs of the file changed, and the warnings about them."""
        applied = tuple(applied)
        changes = Counter(one.change for one in applied)
        self._events.emit(
            "jobs_applied", file=self._file.name, **{kind.value: changes[kind] for kind in _REPORTED_CHANGES}
        )
        announce_warnings(jobs, applied, self._events)

    async def step(self) -> float:
        """Check the file, and apply it if it has changed. Returns how many seconds to wait before the next step."""
        if not await self._file.changed():
            return _POLL_SECONDS
        try:
            jobs = await self._file.read()
            applied = await self._apply(jobs)
            self.announce(jobs, applied)
            announce_undeclared(applied, self._events)
        except (UsageError, ChangesRefused) as error:
            # The error is reported once, until the file changes again.
            self._events.emit("jobs_refused", file=self._file.name, error=str(error))
        except Unavailable as error:
            return self._backoff.failed(error)
        self._backoff.worked()
        return _POLL_SECONDS

    async def _apply(self, jobs: Sequence[Job]) -> list[ApplyResult]:
        try:
            return await self._job_service.apply(jobs, actor=self._actor, declaration=self._declaration)
        except (UsageError, ChangesRefused):
            raise
        except Exception:
            self._file.mark_changed()
            raise


def announce_warnings(jobs: Iterable[Job], applied: Iterable[ApplyResult], events: Events) -> None:
    """Announce the first warnings about the jobs, and how many more there are."""
    answered = {one.name: one.warnings for one in applied}
    found = [
        (job.name, warning) for job in jobs for warning in dict.fromkeys((*warnings(job), *answered.get(job.name, ())))
    ]
    for job, warning in found[:_NAMED]:
        events.emit("job_warning", job=job, warning=warning)
    if (more := len(found) - _NAMED) > 0:
        events.emit("more_job_warnings", count=more)


def announce_undeclared(applied: Iterable[ApplyResult], events: Events) -> None:
    """Announce the jobs that their file or module does not declare any more, by origin."""
    names: dict[tuple[JobChange, str], list[str]] = {}
    for one in applied:
        if one.change in (JobChange.ORPHANED, JobChange.REMOVED):
            names.setdefault((one.change, one.spec.origin), []).append(one.name)
    for (change, origin), jobs in names.items():
        event = "jobs_pruned" if change is JobChange.REMOVED else "jobs_orphaned"
        events.emit(event, origin=origin_text(origin), count=len(jobs), jobs=", ".join(jobs[:_NAMED]))


def reject_duplicate_jobs(jobs: Mapping[str, Sequence[Job]]) -> None:
    """UsageError if a job is defined in two places; it names both."""
    found: dict[str, str] = {}
    for place, some in jobs.items():
        for job in some:
            first = found.setdefault(job.name, place)
            if first != place:
                raise UsageError(f"the job {job.name!r} stands in {first} and in {place}")


class PoolsFileSync:
    """Gives the pools of a file to the router. A broken file is reported, and the pools before it stay in use."""

    def __init__(
        self, file: WatchedFile[Pools], router: Router, events: Events, *, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when the router uses other pools than before."""
        self._file = file
        self._router = router
        self._events = events
        self._on_change = on_change

    async def read(self) -> None:
        """Use the pools of the file from now on; UsageError if it is wrong."""
        found = await self._file.read()
        self._router.use_pools(found)
        self._on_change()
        pools = {name for names in found.topics.values() for name in names}
        self._events.emit("pools_read", file=self._file.name, topics=len(found.topics), pools=len(pools))

    async def step(self) -> float:
        """Check the file, and apply it if it has changed. Returns how many seconds to wait before the next step."""
        if await self._file.changed():
            try:
                await self.read()
            except UsageError as error:
                # The error is reported once, until the file changes again.
                self._events.emit("pools_refused", file=self._file.name, error=str(error))
        return _POLL_SECONDS
