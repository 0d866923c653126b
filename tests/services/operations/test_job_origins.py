"""Jobs know where their definition comes from: one that is declared no more is an orphan, and can be pruned."""

from typing import Any

import pytest

from contracts.store import MINUTE, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.origins import OriginKind, origin_of_file, origin_of_module, origin_text, with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Schedule
from gnomon.services.operations.job_changes import Declaration, JobChange
from gnomon.services.operations.jobs import ApplyResult, JobService
from gnomon.testing.clock import CountedIds, VirtualClock

APP, FILE, API = origin_of_module("app"), origin_of_file("/etc/jobs.yaml"), OriginKind.API.value
MOVED = origin_of_file("/etc/moved.yaml")


class Setup:
    """A job service on a store in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        store = self.store
        self.jobs = JobService(store.jobs, store.schedules, store.history, self.clock, CountedIds())

    def read(self, *names: str, origin: str = APP, **said: Any) -> list[Job]:  # noqa: ANN401 - fields of a job
        definition = {"schedule": "* * * * *", "function": "f", **said}
        return with_origin([read_job(definition | {"name": one}, Defaults(), now=NOON) for one in names], origin)

    async def declared(
        self, *names: str, origin: str = APP, prune: bool = False, gone: str | None = None
    ) -> dict[str, JobChange]:
        """Apply the jobs as all those of their origin; return what became of each job."""
        declaration = Declaration(frozenset([origin]), prune=prune, has_gone=lambda one: one == gone)
        done = await self.jobs.apply(self.read(*names, origin=origin), actor="ada", declaration=declaration)
        return {one.name: one.change for one in done}

    async def requested(self, *names: str, origin: str = API, **said: Any) -> list[ApplyResult]:  # noqa: ANN401 - as above
        return await self.jobs.apply(self.read(*names, origin=origin, **said), actor="eve")

    async def find(self, name: str) -> Schedule:
        found = await self.store.schedules.find("default", name)
        assert found is not None
        return found


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_a_job_whose_function_was_renamed_is_a_named_orphan_and_stays_active(setup: Setup) -> None:
    await setup.declared("old", "other")
    before = await setup.find("old")

    first, second = await setup.declared("new", "other"), await setup.declared("new", "other")

    assert first == {"new": JobChange.CREATED, "other": JobChange.UNCHANGED, "old": JobChange.ORPHANED}
    assert second == {"new": JobChange.UNCHANGED, "other": JobChange.UNCHANGED, "old": JobChange.ORPHANED}
    after = await setup.find("old")
    assert (after.spec.origin, after.spec.orphaned) == (APP, True)
    assert (after.revision, after.mark_at, after.next_fire_at) == (before.revision, before.mark_at, before.next_fire_at)
    assert [one.schedule_id for one in await setup.jobs.orphans()] == ["old"]


async def test_an_orphan_that_is_declared_again_is_none_any_more(setup: Setup) -> None:
    await setup.declared("old")
    await setup.declared()

    assert await setup.declared("old") == {"old": JobChange.UNCHANGED}

    assert await setup.jobs.orphans() == []


async def test_pruning_deletes_the_jobs_that_their_origin_declares_no_more_and_no_others(setup: Setup) -> None:
    await setup.declared("old", "kept")
    await setup.declared("theirs", origin=FILE)
    await setup.requested("by-hand")
    await setup.requested("unknown", origin="")

    done = await setup.declared("kept", prune=True)

    assert done == {"kept": JobChange.UNCHANGED, "old": JobChange.REMOVED}
    left = [one.schedule_id for one in await setup.store.schedules.page("default", after="", limit=10)]
    assert left == ["by-hand", "kept", "theirs", "unknown"]


async def test_a_job_that_is_removed_while_its_file_moves_is_an_orphan(setup: Setup) -> None:
    await setup.declared("kept", "removed", origin=FILE)
    await setup.declared("other", origin=origin_of_file("/etc/other.yaml"))

    moved = await setup.declared("kept", origin=MOVED, gone=FILE)

    assert moved == {"kept": JobChange.UNCHANGED, "removed": JobChange.ORPHANED}
    assert [one.schedule_id for one in await setup.jobs.orphans()] == ["removed"]
    again = await setup.declared("kept", origin=MOVED, gone=FILE, prune=True)
    assert again == {"kept": JobChange.UNCHANGED, "removed": JobChange.REMOVED}
    left = [one.schedule_id for one in await setup.store.schedules.page("default", after="", limit=10)]
    assert left == ["kept", "other"]


async def test_a_file_that_gives_away_jobs_and_stays_keeps_the_others(setup: Setup) -> None:
    await setup.declared("given", "kept", origin=FILE)

    assert await setup.declared("given", origin=MOVED) == {"given": JobChange.UNCHANGED}

    assert await setup.jobs.orphans() == []


async def test_jobs_whose_names_lie_between_those_of_orphans_are_kept(setup: Setup) -> None:
    await setup.declared("a", "c", "e")
    await setup.requested("b")

    done = await setup.declared("c", prune=True)

    assert done == {"c": JobChange.UNCHANGED, "a": JobChange.REMOVED, "e": JobChange.REMOVED}
    left = [one.schedule_id for one in await setup.store.schedules.page("default", after="", limit=10)]
    assert left == ["b", "c"]


async def test_an_orphan_that_is_overdue_is_pruned_with_its_ticks_decided(setup: Setup) -> None:
    await setup.declared("old")
    uid = (await setup.find("old")).uid
    setup.clock.advance(5 * MINUTE)

    assert await setup.declared(prune=True) == {"old": JobChange.REMOVED}

    ticks = await setup.store.history.ticks(uid, before=NOON + 10 * MINUTE, limit=10)
    assert sum(one.decision.count for one in ticks) == 5


async def test_a_change_over_http_takes_the_job_and_its_revision(setup: Setup) -> None:
    await setup.declared("report")

    await setup.requested("report", jitter="5s")

    found = await setup.find("report")
    revisions = await setup.store.history.revisions(found.uid)
    assert [one.schedule.spec.origin for one in revisions] == [APP, API]
    assert await setup.declared() == {}


async def test_a_request_that_changes_nothing_takes_nothing(setup: Setup) -> None:
    await setup.declared("report")
    before = await setup.find("report")

    await setup.requested("report")

    assert await setup.find("report") == before


async def test_a_request_keeps_an_orphan_by_registering_it_again(setup: Setup) -> None:
    await setup.declared("report")
    await setup.declared()

    await setup.requested("report")

    assert (await setup.find("report")).spec.origin == API
    assert await setup.jobs.orphans() == []


@pytest.mark.parametrize("before", ["", API, origin_of_module("before")])
async def test_a_file_takes_a_job_of_another_origin_without_a_new_revision(setup: Setup, before: str) -> None:
    await setup.requested("report", origin=before)
    setup.clock.advance(5 * MINUTE)

    assert await setup.declared("report", origin=FILE) == {"report": JobChange.UNCHANGED}

    found = await setup.find("report")
    assert (found.spec.origin, found.revision, found.mark_at) == (FILE, 1, NOON)


def test_origins_are_texts_that_people_read() -> None:
    assert [origin_text(one) for one in (APP, FILE, API, OriginKind.CLI.value, "")] == [
        "import app",
        "file /etc/jobs.yaml",
        "api",
        "cli",
        "unknown",
    ]


# ---- the origin of commands ----------------------------------------------------------------------


class CommandJob:
    """A job with a command that several places define in turn."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    async def defined(self, origin: str, **said: Any) -> tuple[int, str]:  # noqa: ANN401 - fields of a job
        """Apply the job; return the version of its workflow that runs, and where that comes from."""
        definition = {"name": "report", "schedule": "* * * * *", "command": "echo hello", **said}
        await self._setup.jobs.apply(with_origin([read_job(definition, Defaults(), now=NOON)], origin), actor="ada")
        workflow = (await self._setup.jobs.get("report")).workflow
        assert workflow is not None
        return workflow.version, workflow.origin


@pytest.fixture
def job(setup: Setup) -> CommandJob:
    return CommandJob(setup)


CLI = OriginKind.CLI.value


@pytest.mark.parametrize("origin", ["", FILE, APP, CLI, API, "cron", "mcp"])
async def test_a_version_of_a_command_says_where_it_comes_from(job: CommandJob, origin: str) -> None:
    assert await job.defined(origin) == (1, origin)


async def test_the_same_command_over_http_changes_nothing(job: CommandJob) -> None:
    await job.defined(FILE)

    assert await job.defined(API) == (1, FILE)


@pytest.mark.parametrize("change", [{"command": "echo bye"}, {"schedule": "*/5 * * * *"}, {"jitter": "5s"}])
async def test_any_change_over_http_makes_a_version_that_comes_from_there(
    job: CommandJob, change: dict[str, Any]
) -> None:
    await job.defined(FILE)

    assert await job.defined(API, **change) == (2, API)


@pytest.mark.parametrize("local", [FILE, APP, CLI])
@pytest.mark.parametrize("remote", ["", API, "cron", "mcp"])
async def test_a_place_on_the_machine_takes_a_command_over_by_repeating_it(
    job: CommandJob, local: str, remote: str
) -> None:
    await job.defined(remote)

    assert await job.defined(local) == (2, local)
    assert await job.defined(remote) == (2, local)


async def test_a_file_that_was_moved_makes_no_new_version(job: CommandJob) -> None:
    await job.defined(FILE)

    assert await job.defined(origin_of_file("/srv/jobs.yaml"), jitter="5s") == (1, FILE)


async def test_a_job_that_is_deleted_and_added_over_http_comes_from_there(setup: Setup, job: CommandJob) -> None:
    await job.defined(FILE)
    await setup.jobs.delete("report", actor="eve")

    assert await job.defined(API) == (2, API)


async def test_an_orphan_that_is_registered_over_http_comes_from_there(setup: Setup, job: CommandJob) -> None:
    await job.defined(FILE)
    await setup.declared(origin=FILE)

    assert await job.defined(API) == (2, API)


async def test_a_job_without_commands_needs_no_new_version_for_its_origin(setup: Setup) -> None:
    await setup.requested("report")
    await setup.declared("report")

    assert (await setup.find("report")).spec.workflow_version == 1
