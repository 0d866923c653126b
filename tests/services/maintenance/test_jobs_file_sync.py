"""The synchronization of a jobs file: it reads changes off the loop, applies them, and announces the result."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.origins import with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import ChangesRefused, Contended, FieldError, StoreUnavailable, UsageError
from gnomon.services.maintenance.file_sync import JobsFileSync, WatchedFile, reject_duplicate_jobs
from gnomon.services.operations.job_changes import Declaration
from gnomon.services.operations.jobs import ApplyResult, JobService
from gnomon.testing.clock import CountedIds, VirtualClock


def a_job(name: str) -> Job:
    return read_job({"name": name, "function": "f", "schedule": "* * * * *"}, Defaults(), now=NOON)


class InMemoryJobsFile:
    """A jobs file in memory."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.writes = 0
        #: On which threads it was read.
        self.readers: list[str] = []
        self.while_read: Callable[[], None] = lambda: None

    def write(self, *names: str) -> None:
        self.names, self.writes = names, self.writes + 1

    def read(self) -> list[Job]:
        self.readers.append(threading.current_thread().name)
        if "broken" in self.names:
            raise FieldError("name", "broken", "is broken")
        jobs = [a_job(name) for name in self.names]
        self.while_read()
        return jobs

    def watched(self) -> WatchedFile[list[Job]]:
        return WatchedFile("jobs.yaml", stamp=lambda: self.writes, digest=lambda: self.names, read=self.read)


class AnnouncedChanges:
    """The events that were emitted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def emit(self, name: str, **facts: object) -> None:
        self.events.append((name, facts))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


class FailingJobService(JobService):
    """A book that fails as often as it was told to."""

    failures: list[Exception]

    async def apply(self, *given: Any, **said: Any) -> list[ApplyResult]:  # noqa: ANN401 - as it comes
        if self.failures:
            raise self.failures.pop()
        return await super().apply(*given, **said)


@pytest.fixture
def heard() -> AnnouncedChanges:
    return AnnouncedChanges()


@pytest.fixture
def job_service() -> FailingJobService:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    made = FailingJobService(store.jobs, store.schedules, store.history, clock, CountedIds())
    made.failures = []
    return made


@pytest.fixture
def jobs_file() -> InMemoryJobsFile:
    return InMemoryJobsFile("a", "b")


@pytest.fixture
def file_sync(jobs_file: InMemoryJobsFile, job_service: FailingJobService, heard: AnnouncedChanges) -> JobsFileSync:
    return JobsFileSync(jobs_file.watched(), job_service, heard, actor="ada")


async def test_a_file_is_applied_and_what_became_of_it_is_said(
    file_sync: JobsFileSync, heard: AnnouncedChanges
) -> None:
    await file_sync.step()

    assert heard.events == [("jobs_applied", {"file": "jobs.yaml", "created": 2, "changed": 0, "unchanged": 0})]


@pytest.mark.req("Z-10")
async def test_the_first_warnings_about_the_jobs_of_a_file_are_announced(
    job_service: FailingJobService, heard: AnnouncedChanges
) -> None:
    agent = {"agent": {"model": "local:small", "prompt": "Look around."}, "schedule": "* * * * *"}
    jobs = [read_job({"name": f"watch-{number:02}", **agent}, Defaults(), now=NOON) for number in range(12)]
    watched = WatchedFile("jobs.yaml", stamp=lambda: 1, digest=lambda: 1, read=lambda: [a_job("a"), *jobs])
    await JobsFileSync(watched, job_service, heard, actor="ada").step()

    warned = [facts for name, facts in heard.events if name == "job_warning"]
    assert [one["job"] for one in warned] == [f"watch-{number:02}" for number in range(10)]
    assert str(warned[0]["warning"]).startswith("an agent starts every 1m at its most frequent")
    assert heard.events[-1] == ("more_job_warnings", {"count": 2})


async def test_a_file_is_read_on_a_thread_of_its_own(file_sync: JobsFileSync, jobs_file: InMemoryJobsFile) -> None:
    await file_sync.step()

    assert threading.current_thread().name not in jobs_file.readers
    assert len(jobs_file.readers) == 1


async def test_a_file_that_was_only_touched_is_not_read(file_sync: JobsFileSync, jobs_file: InMemoryJobsFile) -> None:
    await file_sync.step()
    jobs_file.write("a", "b")
    await file_sync.step()

    assert len(jobs_file.readers) == 1


async def test_a_file_that_says_something_else_is_applied(
    file_sync: JobsFileSync, jobs_file: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    await file_sync.step()
    jobs_file.write("a", "b", "c")
    await file_sync.step()

    assert heard.events[-1][1] == {"file": "jobs.yaml", "created": 1, "changed": 0, "unchanged": 2}


@pytest.mark.parametrize(("prune", "event"), [(False, "jobs_orphaned"), (True, "jobs_pruned")])
async def test_a_job_that_a_file_no_longer_has_is_named_or_deleted(
    jobs_file: InMemoryJobsFile, job_service: FailingJobService, heard: AnnouncedChanges, *, prune: bool, event: str
) -> None:
    origin = "file:/etc/jobs.yaml"
    watched = WatchedFile(
        "jobs.yaml",
        stamp=lambda: jobs_file.writes,
        digest=lambda: jobs_file.names,
        read=lambda: with_origin(jobs_file.read(), origin),
    )
    file_sync = JobsFileSync(
        watched, job_service, heard, actor="ada", declaration=Declaration(frozenset([origin]), prune=prune)
    )
    await file_sync.step()
    jobs_file.write("b")
    await file_sync.step()

    assert heard.events[-1] == (event, {"origin": "file /etc/jobs.yaml", "count": 1, "jobs": "a"})


async def test_a_file_that_is_written_while_it_is_read_is_read_again(
    file_sync: JobsFileSync, jobs_file: InMemoryJobsFile
) -> None:
    jobs_file.while_read = lambda: jobs_file.write("a", "b")
    await file_sync.step()
    jobs_file.while_read = lambda: None
    await file_sync.step()

    assert len(jobs_file.readers) == 2


async def test_a_broken_file_is_reported_once(
    file_sync: JobsFileSync, jobs_file: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    jobs_file.write("broken")
    await file_sync.step()
    await file_sync.step()

    assert heard.names == ["jobs_refused"]


async def test_a_change_while_everything_is_read_only_is_reported_once(
    file_sync: JobsFileSync, job_service: FailingJobService, heard: AnnouncedChanges
) -> None:
    job_service.failures = [ChangesRefused()]
    await file_sync.step()
    await file_sync.step()

    assert heard.names == ["jobs_refused"]
    assert "autonomy is read-only" in str(heard.events[0][1]["error"])


async def test_a_file_is_applied_once_it_is_mended(
    file_sync: JobsFileSync, jobs_file: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    await file_sync.step()
    jobs_file.write("broken")
    await file_sync.step()
    jobs_file.write("a", "b")
    await file_sync.step()

    assert heard.names == ["jobs_applied", "jobs_refused", "jobs_applied"]


async def test_an_apply_that_the_store_refused_is_retried(
    file_sync: JobsFileSync, job_service: FailingJobService, heard: AnnouncedChanges
) -> None:
    job_service.failures = [StoreUnavailable("away")]

    assert await file_sync.step() < 1
    await file_sync.step()

    assert heard.names == ["store_unavailable", "jobs_applied"]


async def test_an_apply_that_conflicted_with_another_is_retried(
    file_sync: JobsFileSync, job_service: FailingJobService, heard: AnnouncedChanges
) -> None:
    job_service.failures = [Contended("job", "a")]
    with pytest.raises(Contended):
        await file_sync.step()
    await file_sync.step()

    assert heard.names == ["jobs_applied"]


def test_a_job_that_stands_in_two_places_is_refused_with_both() -> None:
    with pytest.raises(UsageError, match=r"'b' stands in one\.yaml and in two\.yaml"):
        reject_duplicate_jobs({"one.yaml": [a_job("a"), a_job("b")], "two.yaml": [a_job("b")]})


def test_jobs_of_several_places_may_stand_together() -> None:
    reject_duplicate_jobs({"one.yaml": [a_job("b")], "two.yaml": [a_job("a")]})
