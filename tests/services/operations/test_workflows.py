"""The workflow store: versions of DAGs, and schedules that come and go with their triggers."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.schedules import MemoryJobs
from gnomon.core.cron import Cron
from gnomon.core.jobs.export import workflow_as_data
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Overlap, Schedule
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.schedules import JobChangeset
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.workflows import DeployResult, WorkflowService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.defective_stores import StoreFactory

STEPS: list[dict[str, Any]] = [
    {"id": "extract", "function": "etl.extract"},
    {"id": "load", "function": "etl.load", "depends_on": ["extract"], "input": {"x": "${steps.extract.output}"}},
]
NIGHTLY = {"type": "schedule_based", "id": "nightly", "cron_expr": "0 2 * * *", "timezone": "Europe/Berlin"}
HOURLY = {"type": "schedule_based", "schedule": "@hourly", "overlap_policy": "queue"}


def etl(*triggers: Mapping[str, Any], **said: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a definition may say
    return {"workflow_id": "etl", "nodes": STEPS, "triggers": list(triggers), **said}


class WorkflowFixture:
    """A store, and what deploys into it."""

    def __init__(self, make: StoreFactory = MemoryStore) -> None:
        self.clock = VirtualClock(NOON)
        self.store = make(self.clock.now)
        self.ids = CountedIds()
        self.workflows = WorkflowService(self.store.jobs, self.store.schedules, self.clock, self.ids)

    async def deploy(self, *triggers: Mapping[str, Any], **said: Any) -> DeployResult:  # noqa: ANN401
        return await self.workflows.deploy(etl(*triggers, **said), actor="ada")

    async def schedules(self) -> dict[str, Schedule]:
        return {one.schedule_id: one for one in await self.store.schedules.page("default", after="", limit=100)}


@pytest.fixture
def setup() -> WorkflowFixture:
    return WorkflowFixture()


@pytest.mark.req("C-16")
async def test_a_workflow_is_kept_by_id_and_version(setup: WorkflowFixture) -> None:
    done = await setup.deploy()

    kept = await setup.workflows.get("etl", 1)
    assert (done.version, done.new, kept.version) == (1, True, 1)
    assert [(step.name, step.function, step.depends_on) for step in kept.steps] == [
        ("extract", "etl.extract", ()),
        ("load", "etl.load", ("extract",)),
    ]


@pytest.mark.req("C-16")
async def test_the_same_content_is_the_same_version(setup: WorkflowFixture) -> None:
    await setup.deploy(NIGHTLY)
    before = await setup.schedules()

    again = await setup.deploy(NIGHTLY)

    assert (again.version, again.new) == (1, False)
    assert await setup.schedules() == before


@pytest.mark.req("C-16")
async def test_other_content_is_a_new_version_and_the_old_one_stays(setup: WorkflowFixture) -> None:
    await setup.deploy(NIGHTLY)

    done = await setup.deploy(NIGHTLY, description="better")

    assert (done.version, done.new) == (2, True)
    assert (await setup.workflows.get("etl", 1)).description == ""
    assert (await setup.workflows.get("etl")).description == "better"
    assert (await setup.schedules())["etl.nightly"].spec.workflow_version == 2


@pytest.mark.req("C-16")
async def test_every_trigger_by_time_is_a_schedule(setup: WorkflowFixture) -> None:
    done = await setup.deploy(NIGHTLY, {"type": "webhook", "url": "https://x"}, HOURLY)

    found = await setup.schedules()
    assert set(done.schedules) == set(found) == {"etl.nightly", "etl.2"}
    assert found["etl.nightly"].spec.trigger == Cron("0 2 * * *", "Europe/Berlin")
    assert found["etl.nightly"].spec.first_steps == ("extract",)
    assert found["etl.nightly"].next_fire_at is not None
    assert found["etl.2"].spec.overlap is Overlap.QUEUE


@pytest.mark.req("C-16")
async def test_a_later_version_without_a_trigger_removes_its_schedule(setup: WorkflowFixture) -> None:
    await setup.deploy(NIGHTLY, HOURLY)

    done = await setup.deploy(NIGHTLY)

    assert done.removed == ("etl.1",)
    assert set(await setup.schedules()) == {"etl.nightly"}


async def test_due_ticks_are_decided_before_a_schedule_is_deleted(setup: WorkflowFixture) -> None:
    await setup.deploy({**HOURLY, "catchup_policy": "latest"})
    uid = (await setup.schedules())["etl.0"].uid
    setup.clock.advance(HOUR)

    await setup.deploy()

    assert len(await setup.store.history.ticks(uid, before=1 << 62, limit=10)) == 1


async def test_schedules_of_others_stay(setup: WorkflowFixture) -> None:
    job_service = JobService(setup.store.jobs, setup.store.schedules, setup.store.history, setup.clock, setup.ids)
    job = read_job({"name": "etl.other", "function": "f", "schedule": "@daily"}, Defaults(), now=NOON)
    await job_service.apply([job], actor="ada")

    await setup.deploy()

    assert set(await setup.schedules()) == {"etl.other"}
    with pytest.raises(FieldError, match="runs something else"):
        await setup.deploy({**NIGHTLY, "id": "other"})


async def test_a_definition_says_which_version_it_is(setup: WorkflowFixture) -> None:
    assert (await setup.deploy(version=1)).version == 1
    assert (await setup.deploy(version=2, description="better")).version == 2
    with pytest.raises(FieldError, match="would be 3"):
        await setup.deploy(version=2, description="best")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"workflow_id": "Etl"}, "workflow_id"),
        ({"nodes": []}, "nodes"),
        ({"nodes": None}, "nodes"),
        ({"nodes": [{"id": "a", "function": "f", "depends_on": ["b"]}]}, "nodes[0].depends_on[0]"),
        ({"nodes": [{"function": "f"}]}, "nodes[0].step"),
        ({"function": "f"}, "function"),
        ({"version": 0}, "version"),
        ({"triggers": [{"cron_expr": "@daily"}]}, "triggers[0]"),
        ({"triggers": [{"type": "schedule_based"}]}, "triggers[0].schedule"),
        ({"triggers": [{"type": "schedule_based", "cron_expr": "61 * * * *"}]}, "triggers[0].cron_expr"),
        ({"triggers": [{**NIGHTLY, "timezone": "Nope"}]}, "triggers[0].timezone"),
        ({"triggers": [{**NIGHTLY, "version": 3}]}, "triggers[0].version"),
        ({"triggers": [{**NIGHTLY, "id": "Bad Id"}]}, "triggers[0].id"),
        ({"triggers": [NIGHTLY, NIGHTLY]}, "triggers[1].id"),
        ({"triggers": [{**NIGHTLY, "overlapping": "skip"}]}, "triggers[0].overlapping"),
    ],
)
async def test_an_error_names_the_mistake_and_nothing_is_stored(
    setup: WorkflowFixture, said: dict[str, Any], field: str
) -> None:
    with pytest.raises(FieldError) as refused:
        await setup.deploy(**said)

    assert refused.value.field == field
    with pytest.raises(NotFound):
        await setup.workflows.get("etl")


@pytest.mark.req("C-16")
async def test_a_workflow_that_is_missing_is_not_found_and_cannot_be_started(setup: WorkflowFixture) -> None:
    await setup.deploy()
    launcher = Launcher(
        setup.store.runs, setup.store.executions, setup.store.jobs, setup.store.schedules, setup.clock, setup.ids
    )

    with pytest.raises(NotFound, match="version 2"):
        await setup.workflows.get("etl", 2)
    assert not await launcher.start("etl", 2, "ada", NOON, "k", actor="ada")
    assert await launcher.start("etl", 1, "ada", NOON, "k", actor="ada")


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ({"workflow_id": "etl"}, ("steps", None, "is missing")),
        ({"workflow_id": "etl", "steps": {"a": 1}}, ("steps", {"a": 1}, "must be a list")),
    ],
)
async def test_a_workflow_without_a_list_of_steps_is_refused(
    setup: WorkflowFixture, said: dict[str, Any], blamed: tuple[str, object, str]
) -> None:
    with pytest.raises(FieldError) as refused:
        await setup.workflows.deploy(said, actor="ada")

    assert (refused.value.field, refused.value.value, refused.value.reason) == blamed


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"input": {"a": 1}, "max_parallel": 3, "dead_letter": True, "tags": ["x"], "retry": {"max_attempts": 2}},
        {"nodes": [{"step": "main", "function": "f", "timeout": "5s"}], "input": {"a": 1}},
    ],
)
async def test_an_exported_workflow_can_be_deployed_again(setup: WorkflowFixture, said: dict[str, Any]) -> None:
    await setup.deploy(**said)
    shown = workflow_as_data(await setup.workflows.get("etl"))

    again = await setup.workflows.deploy(shown, actor="ada")

    assert (again.version, again.new) == (1, False)


async def test_a_deployment_that_others_keep_undoing_is_given_up() -> None:
    class Contested(MemoryJobs):
        async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
            del changes, now, actor, tzdata
            return False

    def contested(now: Callable[[], int]) -> MemoryStore:
        store = MemoryStore(now)
        store.jobs = Contested(store.state, store.schedules)
        return store

    with pytest.raises(Contended):
        await WorkflowFixture(contested).deploy(NIGHTLY)
