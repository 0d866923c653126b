"""The keeper of a jobs file: it reads what is new, off the loop, and tells what came of it."""

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
    """What was announced."""

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
def book() -> FailingJobService:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    made = FailingJobService(store.jobs, store.schedules, store.history, clock, CountedIds())
    made.failures = []
    return made


@pytest.fixture
def paper() -> InMemoryJobsFile:
    return InMemoryJobsFile("a", "b")


@pytest.fixture
def keeper(paper: InMemoryJobsFile, book: FailingJobService, heard: AnnouncedChanges) -> JobsFileSync:
    return JobsFileSync(paper.watched(), book, heard, actor="ada")


async def test_a_file_is_applied_and_what_became_of_it_is_said(keeper: JobsFileSync, heard: AnnouncedChanges) -> None:
    await keeper.step()

    assert heard.events == [("jobs_applied", {"file": "jobs.yaml", "created": 2, "changed": 0, "unchanged": 0})]


async def test_a_file_is_read_on_a_thread_of_its_own(keeper: JobsFileSync, paper: InMemoryJobsFile) -> None:
    await keeper.step()

    assert threading.current_thread().name not in paper.readers
    assert len(paper.readers) == 1


async def test_a_file_that_was_only_touched_is_not_read(keeper: JobsFileSync, paper: InMemoryJobsFile) -> None:
    await keeper.step()
    paper.write("a", "b")
    await keeper.step()

    assert len(paper.readers) == 1


async def test_a_file_that_says_something_else_is_applied(
    keeper: JobsFileSync, paper: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    await keeper.step()
    paper.write("a", "b", "c")
    await keeper.step()

    assert heard.events[-1][1] == {"file": "jobs.yaml", "created": 1, "changed": 0, "unchanged": 2}


@pytest.mark.parametrize(("prune", "event"), [(False, "jobs_orphaned"), (True, "jobs_pruned")])
async def test_a_job_that_a_file_no_longer_has_is_named_or_deleted(
    paper: InMemoryJobsFile, book: FailingJobService, heard: AnnouncedChanges, *, prune: bool, event: str
) -> None:
    origin = "file:/etc/jobs.yaml"
    watched = WatchedFile(
        "jobs.yaml",
        stamp=lambda: paper.writes,
        digest=lambda: paper.names,
        read=lambda: with_origin(paper.read(), origin),
    )
    keeper = JobsFileSync(watched, book, heard, actor="ada", declaration=Declaration(frozenset([origin]), prune=prune))
    await keeper.step()
    paper.write("b")
    await keeper.step()

    assert heard.events[-1] == (event, {"origin": "file /etc/jobs.yaml", "count": 1, "jobs": "a"})


async def test_a_file_that_is_written_while_it_is_read_is_read_again(
    keeper: JobsFileSync, paper: InMemoryJobsFile
) -> None:
    paper.while_read = lambda: paper.write("a", "b")
    await keeper.step()
    paper.while_read = lambda: None
    await keeper.step()

    assert len(paper.readers) == 2


async def test_a_broken_file_is_reported_once(
    keeper: JobsFileSync, paper: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    paper.write("broken")
    await keeper.step()
    await keeper.step()

    assert heard.names == ["jobs_refused"]


async def test_a_change_while_everything_is_read_only_is_reported_once(
    keeper: JobsFileSync, book: FailingJobService, heard: AnnouncedChanges
) -> None:
    book.failures = [ChangesRefused()]
    await keeper.step()
    await keeper.step()

    assert heard.names == ["jobs_refused"]
    assert "autonomy is read-only" in str(heard.events[0][1]["error"])


async def test_a_file_is_applied_once_it_is_mended(
    keeper: JobsFileSync, paper: InMemoryJobsFile, heard: AnnouncedChanges
) -> None:
    await keeper.step()
    paper.write("broken")
    await keeper.step()
    paper.write("a", "b")
    await keeper.step()

    assert heard.names == ["jobs_applied", "jobs_refused", "jobs_applied"]


async def test_what_the_store_did_not_take_is_tried_again(
    keeper: JobsFileSync, book: FailingJobService, heard: AnnouncedChanges
) -> None:
    book.failures = [StoreUnavailable("away")]

    assert await keeper.step() < 1
    await keeper.step()

    assert heard.names == ["store_unavailable", "jobs_applied"]


async def test_what_others_were_too_quick_for_is_tried_again(
    keeper: JobsFileSync, book: FailingJobService, heard: AnnouncedChanges
) -> None:
    book.failures = [Contended("job", "a")]
    with pytest.raises(Contended):
        await keeper.step()
    await keeper.step()

    assert heard.names == ["jobs_applied"]


def test_a_job_that_stands_in_two_places_is_refused_with_both() -> None:
    with pytest.raises(UsageError, match=r"'b' stands in one\.yaml and in two\.yaml"):
        reject_duplicate_jobs({"one.yaml": [a_job("a"), a_job("b")], "two.yaml": [a_job("b")]})


def test_jobs_of_several_places_may_stand_together() -> None:
    reject_duplicate_jobs({"one.yaml": [a_job("b")], "two.yaml": [a_job("a")]})
