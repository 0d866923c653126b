"""The workflow cache: reads each definition once, and forgets the least recently used."""

from collections.abc import Sequence

from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.schedules import MemoryJobs
from gnomon.core.model import Run, RunId, RunSource, RunStatus
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.workflow_cache import WorkflowCache
from support.execution import ExecutionHarness
from support.running_assignments import running_assignment
from support.task_steps import workflow

RUN = Run(
    run_id=RunId("run_1"),
    tenant="default",
    schedule_uid=None,
    schedule_id=None,
    workflow_id="a",
    workflow_version=1,
    user_id="",
    source=RunSource.MANUAL,
    status=RunStatus.PENDING,
    queued=False,
    planned_at=NOON,
    fire_at=NOON,
    created_at=NOON,
)


class CountingJobs(MemoryJobs):
    """Has every workflow, and counts the reads."""

    def __init__(self) -> None:
        store = MemoryStore(lambda: NOON)
        super().__init__(store.state, store.schedules)
        self.asked: list[str] = []

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        self.asked.append(workflow_id)
        return Workflow(tenant=tenant, workflow_id=workflow_id, version=version or 1, steps=())


async def test_recently_used_workflows_stay_in_the_cache() -> None:
    library = CountingJobs()
    workflow_cache = WorkflowCache(library, most=2)

    for name in ("a", "b", "a", "c", "a", "b"):
        await workflow_cache.for_run(replace(RUN, workflow_id=name))

    assert library.asked == ["a", "b", "c", "b"]


async def test_the_definitions_of_many_runs_are_read_at_once() -> None:
    harness = ExecutionHarness()
    names = [f"job-{number}" for number in range(5)]
    await harness.store.jobs.apply(
        JobChangeset(workflows=[workflow(name) for name in names]), now=NOON, actor="ada", tzdata=""
    )
    runs = [replace(running_assignment().run, workflow_id=name) for name in names]
    asked: list[str] = []
    single = harness.store.jobs.workflow

    async def counted(tenant: str, name: str, version: int | None = None) -> Workflow | None:
        asked.append(name)
        return await single(tenant, name, version)

    await harness.workflow_cache.preload(runs)
    harness.store.jobs.workflow = counted  # type: ignore[assignment]
    found = [await harness.workflow_cache.for_run(run) for run in runs]

    assert [one.workflow_id for one in found if one] == names
    assert asked == []


class RecordingJobs(MemoryJobs):
    """Records what it was asked for, and how."""

    def __init__(self) -> None:
        store = MemoryStore(lambda: NOON)
        super().__init__(store.state, store.schedules)
        self.asked: list[tuple[str, ...]] = []

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        self.asked = [*self.asked, (workflow_id, f"v{version}")]
        return await super().workflow(tenant, workflow_id, version)

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        before = self.asked
        found = await super().newest_workflows(tenant, workflow_ids)
        # However it finds them.
        self.asked = [*before, tuple(workflow_ids)]
        return found


async def deployed(*workflows: Workflow) -> RecordingJobs:
    store = RecordingJobs()
    for one in workflows:
        await store.apply(JobChangeset(workflows=[one]), now=NOON, actor="ada", tzdata="")
    store.asked = []
    return store


async def test_several_are_read_at_once_an_older_version_by_itself_and_what_nobody_has_not_at_all() -> None:
    store = await deployed(workflow("a"), workflow("b"), replace(workflow("b"), version=2))
    keys = [("default", "a", 1), ("default", "b", 1), ("default", "none", 1)]

    found = await WorkflowCache(store).get_many(keys)

    assert [(key[1], one.version) for key, one in found.items()] == [("a", 1), ("b", 1)]
    assert store.asked == [("a", "b", "none"), ("b", "v1")]


async def test_a_cached_workflow_is_not_read_again() -> None:
    store = await deployed(workflow("a"), workflow("b"))
    keys = [("default", "a", 1), ("default", "b", 1)]
    workflow_cache = WorkflowCache(store)
    await workflow_cache.get_many(keys)
    store.asked = []

    assert (len(await workflow_cache.get_many(keys)), store.asked) == (2, [])
