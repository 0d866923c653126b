"""The planner says what applying would do, and applying does it; what no file names goes only when asked for."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.instants import instant_of
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.forecast import FireChangeKind
from gnomon.core.model import DAY_MS, TickKind
from gnomon.ports.schedules import Jobs
from gnomon.services.operations.job_changes import JobChange, Prune
from gnomon.services.operations.job_plan import JobsPlan, Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.workflows import WorkflowService
from gnomon.testing.clock import CountedIds, VirtualClock

REPORT: dict[str, Any] = {"name": "report", "schedule": "0 * * * *", "function": "reports.make"}


class PlanFixture:
    """A book and a planner on one store."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.job_service = JobService(
            self.store.jobs, self.store.schedules, self.store.history, self.clock, CountedIds()
        )
        self.planner = Planner(self.job_service, self.store.jobs, self.clock)
        self.launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, self.clock, CountedIds()
        )

    def job(self, name: str = "report", **said: Any) -> Job:  # noqa: ANN401 - any field of a job
        return read_job(REPORT | {"name": name} | said, Defaults(), now=self.clock.now())

    async def apply(self, *jobs: Job, prune: Prune | None = None) -> dict[str, JobChange]:
        return {one.name: one.change for one in await self.job_service.apply(jobs, actor="ada", prune=prune)}

    async def plan(self, *jobs: Job, prune: Prune | None = None) -> JobsPlan:
        return await self.planner.plan(jobs, ahead_ms=DAY_MS, prune=prune)


@pytest.fixture
def setup() -> PlanFixture:
    return PlanFixture()


def changes(planned: JobsPlan) -> dict[str, JobChange]:
    return {one.forecast.name: one.change for one in planned.jobs}


@pytest.mark.parametrize("prune", [Prune(), None])
async def test_a_plan_shows_exactly_the_changes_that_apply_makes(setup: PlanFixture, prune: Prune | None) -> None:
    await setup.apply(setup.job("same"), setup.job("other"), setup.job("gone"))
    wanted = [setup.job("same"), setup.job("other", schedule="30 * * * *"), setup.job("new")]

    planned = changes(await setup.plan(*wanted, prune=prune))

    assert planned == await setup.apply(*wanted, prune=prune)
    assert planned == {
        "same": JobChange.UNCHANGED,
        "other": JobChange.CHANGED,
        "new": JobChange.CREATED,
        **({"gone": JobChange.REMOVED} if prune else {}),
    }


class CountingWorkflows:
    """The jobs of a store; counts how often a single workflow is read."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        self.asked += name == "workflow"
        return getattr(self._jobs, name)


async def test_many_changed_jobs_take_no_question_each(setup: PlanFixture) -> None:
    names = [f"job-{number}" for number in range(20)]
    await setup.apply(*(setup.job(name) for name in names))
    versions: Any = CountingWorkflows(setup.store.jobs)
    planner = Planner(setup.job_service, versions, setup.clock)

    planned = await planner.plan([setup.job(name, function="reports.other") for name in names], ahead_ms=DAY_MS)

    assert [one.forecast.fields[0].before for one in planned.jobs] == ["reports.make"] * 20
    assert versions.asked == 0


async def test_planning_changes_nothing(setup: PlanFixture) -> None:
    await setup.apply(setup.job(catchup="all"))
    before = await setup.store.schedules.find("default", "report")
    setup.clock.advance(5 * HOUR)

    await setup.plan(setup.job(schedule="30 * * * *"), prune=Prune())

    assert await setup.store.schedules.find("default", "report") == before


async def test_a_plan_shows_changed_fields_and_changed_fires(setup: PlanFixture) -> None:
    await setup.apply(setup.job())

    [one] = (await setup.plan(setup.job(schedule="30 * * * *", function="reports.better"))).jobs

    assert {field.field for field in one.forecast.fields} == {"schedule", "function"}
    assert one.forecast.fires.count(FireChangeKind.MOVED) == 24


async def test_a_job_that_an_operator_paused_stays_paused(setup: PlanFixture) -> None:
    await setup.apply(setup.job())
    await setup.job_service.pause("report", actor="ada")

    [one] = (await setup.plan(setup.job())).jobs

    assert (one.change, one.forecast.stays_paused) == (JobChange.UNCHANGED, True)


async def test_a_one_shot_that_has_run_is_nothing_to_do(setup: PlanFixture) -> None:
    said = {"name": "once", "function": "f", "at": instant_of(NOON + MINUTE).isoformat(), "delete_after_run": True}
    await setup.apply(read_job(said, Defaults(), now=NOON))
    setup.clock.advance(HOUR)
    await setup.job_service.delete("once", actor="the worker")

    planned = await setup.plan(read_job(said, Defaults(), now=NOON))

    assert changes(planned) == {"once": JobChange.FINISHED}
    assert (planned.fires(FireChangeKind.ADDED), planned.fires(FireChangeKind.REMOVED)) == (0, 0)


async def test_a_schedule_without_a_workflow_says_every_field_anew(setup: PlanFixture) -> None:
    await setup.apply(setup.job())
    standing = await setup.store.schedules.find("default", "report")
    assert standing is not None
    setup.store.state.schedules[standing.uid] = replace(standing, spec=replace(standing.spec, workflow_version=9))

    [one] = (await setup.plan(setup.job())).jobs

    assert "function" in {field.field for field in one.forecast.fields}


# ---- pruning -------------------------------------------------------------------------------------


async def test_undeclared_jobs_stay_unless_they_are_pruned(setup: PlanFixture) -> None:
    await setup.apply(setup.job("a"), setup.job("b"))

    assert await setup.apply(setup.job("a")) == {"a": JobChange.UNCHANGED}
    assert await setup.store.schedules.find("default", "b") is not None


async def test_due_ticks_of_a_pruned_job_are_decided_first(setup: PlanFixture) -> None:
    await setup.apply(setup.job("gone", schedule="* * * * *", catchup="all", overlap="allow"))
    uid = (await setup.job_service.get("gone")).schedule.uid
    setup.clock.advance(5 * HOUR)

    await setup.apply(prune=Prune())

    ticks = await setup.store.history.ticks(uid, before=1 << 62, limit=1000)
    assert ([tick.decision.kind for tick in ticks], await setup.job_service.page()) == ([TickKind.FIRED] * 300, [])


async def test_runs_of_a_pruned_job_continue_and_the_plan_shows_waiting_ones(setup: PlanFixture) -> None:
    await setup.apply(setup.job("gone", overlap="queue"))
    for _ in range(3):
        await setup.launcher.trigger("gone", actor="ada")

    [one] = (await setup.plan(prune=Prune())).jobs

    assert one.standing is not None
    assert (one.change, one.standing.active_runs, one.standing.queued_runs) == (JobChange.REMOVED, 1, 2)


async def test_schedules_of_a_deployed_workflow_are_not_pruned(setup: PlanFixture) -> None:
    deployer = WorkflowService(setup.store.jobs, setup.store.schedules, setup.clock, CountedIds())
    definition = {
        "workflow_id": "flow",
        "steps": [{"step": "a", "function": "f"}],
        "triggers": [{"type": "schedule_based", "schedule": "0 * * * *"}],
    }
    deployed = await deployer.deploy(definition, actor="ada")

    assert await setup.apply(setup.job(), prune=Prune()) == {"report": JobChange.CREATED}
    assert deployed.schedules
    assert await setup.store.schedules.find("default", deployed.schedules[0]) is not None


async def test_more_jobs_than_one_page_are_pruned_together(setup: PlanFixture) -> None:
    await setup.apply(*[setup.job(f"job-{number}") for number in range(1005)])
    setup.clock.advance(MINUTE)

    done = await setup.apply(setup.job("job-7"), prune=Prune())

    assert sum(change is JobChange.REMOVED for change in done.values()) == 1004
    assert [view.schedule.schedule_id for view in await setup.job_service.page()] == ["job-7"]


async def test_only_jobs_with_the_tag_are_pruned_if_there_is_one(setup: PlanFixture) -> None:
    await setup.apply(setup.job("ours", tags=["team-a"]), setup.job("theirs", tags=["team-b"]), setup.job("plain"))

    assert await setup.apply(prune=Prune("team-a")) == {"ours": JobChange.REMOVED}


async def test_however_many_jobs_there_are_only_so_many_fires_are_looked_at(setup: PlanFixture) -> None:
    jobs = [setup.job(f"job-{number}", schedule="* * * * *") for number in range(200)]

    planned = await setup.planner.plan(jobs, ahead_ms=366 * DAY_MS)

    walked = [one.forecast.fires.walked for one in planned.jobs]
    assert sum(walked) < 110_000
    assert (walked[0], walked[-1]) == (5000, 5)
    assert planned.fires(FireChangeKind.ADDED) == 200 * 366 * 24 * 60


@pytest.mark.req("Z-10")
async def test_a_plan_and_its_application_warn_of_an_agent_that_starts_too_often(setup: PlanFixture) -> None:
    work: dict[str, Any] = {"schedule": "* * * * *", "agent": {"model": "local:small", "prompt": "Look around."}}
    often = read_job({"name": "watch", **work}, Defaults(), now=setup.clock.now())
    seldom = read_job({"name": "sum", **work, "schedule": "0 * * * *"}, Defaults(), now=setup.clock.now())
    planned = await setup.plan(often, seldom)
    applied = await setup.job_service.apply([often, seldom], actor="ada")

    [warning] = planned.jobs[0].warnings
    assert warning.startswith("an agent starts every 1m at its most frequent")
    assert planned.jobs[1].warnings == ()
    assert [one.warnings for one in applied] == [(warning,), ()]
