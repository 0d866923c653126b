"""The launcher: what is asked for runs once, with what it was given, or an error says why not."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.runs import MemoryRuns
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run, RunId, RunSource, RunStatus
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest
from gnomon.core.runs.states import WaitReason
from gnomon.errors import FieldError, KeyTaken, NotFound, Overlapping, QueueFull, StoreUnavailable
from gnomon.ports.runs import RunQuery
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds, VirtualClock
from support.defective_stores import StoreFactory, with_part
from support.task_steps import finish_run

REPORT: dict[str, Any] = {"name": "report", "schedule": "@hourly", "function": "reports.make"}


class LauncherFixture:
    """A store with one job, and a launcher."""

    def __init__(self, make: StoreFactory = MemoryStore) -> None:
        self.clock = VirtualClock(NOON)
        self.store = make(self.clock.now)
        ids = CountedIds()
        self.job_service = JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, ids)
        self.launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, self.clock, ids
        )

    async def register(self, **said: Any) -> None:  # noqa: ANN401 - any field of a job
        await self.job_service.apply([read_job(REPORT | said, Defaults(), now=NOON)], actor="ada")

    async def run(self, run_id: RunId) -> Run:
        found = await self.store.executions.find_run(run_id)
        assert found is not None
        return found

    async def runs(self) -> Sequence[Run]:
        return await self.store.executions.list_runs(RunQuery())


@pytest.fixture
async def setup() -> LauncherFixture:
    made = LauncherFixture()
    await made.register()
    return made


# ---- triggering ----------------------------------------------------------------------------------


@pytest.mark.req("H-26", "H-10")
async def test_a_job_that_is_triggered_runs_now_by_hand(setup: LauncherFixture) -> None:
    done = await setup.launcher.trigger("report", actor="ada")

    run = await setup.run(done.run_id)
    assert done.became is LaunchOutcome.STARTED
    assert (run.source, run.status, run.planned_at, run.user_id) == (RunSource.MANUAL, RunStatus.PENDING, NOON, "ada")
    assert (run.workflow_id, run.workflow_version, run.schedule_id) == ("report", 1, "report")


async def test_a_paused_job_may_be_triggered(setup: LauncherFixture) -> None:
    await setup.job_service.pause("report", actor="ada")

    assert (await setup.launcher.trigger("report", actor="ada")).became is LaunchOutcome.STARTED


async def test_the_input_of_a_run_is_stored(setup: LauncherFixture) -> None:
    done = await setup.launcher.trigger("report", actor="ada", input={"day": "2026-03-01"})

    assert await setup.store.executions.payload(done.run_id, "input") == b'{"day":"2026-03-01"}'


async def test_a_run_that_is_given_nothing_has_the_input_of_its_job(setup: LauncherFixture) -> None:
    done = await setup.launcher.trigger("report", actor="ada")

    assert await setup.store.executions.payload(done.run_id, "input") is None


async def test_every_first_step_of_a_graph_starts(setup: LauncherFixture) -> None:
    steps = [{"step": "a", "function": "f"}, {"step": "b", "function": "f"}]
    steps.append({"step": "c", "function": "f", "depends_on": ["a", "b"]})  # type: ignore[dict-item]
    await setup.job_service.apply([read_job({"name": "graph", "dag": steps}, Defaults(), now=NOON)], actor="ada")

    done = await setup.launcher.trigger("graph", actor="ada")

    assert [task.step for task in await setup.store.history.tasks([await setup.run(done.run_id)])] == ["a", "b"]


@pytest.mark.guarantee("S15")
async def test_the_same_key_starts_one_run(setup: LauncherFixture) -> None:
    first = await setup.launcher.trigger("report", actor="ada", key="monday")
    await finish_run(setup.store, await setup.run(first.run_id), now=NOON)

    again = await setup.launcher.trigger("report", actor="bob", key="monday")

    assert (again.run_id, again.became) == (first.run_id, LaunchOutcome.ALREADY)
    assert [run.idempotency_key for run in await setup.runs()] == ["monday"]


@pytest.mark.guarantee("S15")
async def test_the_same_key_with_the_same_input_is_the_same_run(setup: LauncherFixture) -> None:
    first = await setup.launcher.trigger("report", actor="ada", key="k", input={"a": 1, "b": 2})

    again = await setup.launcher.trigger("report", actor="ada", key="k", input={"b": 2, "a": 1})

    assert (again.run_id, again.became) == (first.run_id, LaunchOutcome.ALREADY)


@pytest.mark.guarantee("S15")
@pytest.mark.parametrize("given", [None, {"a": 2}])
async def test_the_same_key_with_another_input_is_refused(setup: LauncherFixture, given: dict[str, int] | None) -> None:
    first = await setup.launcher.trigger("report", actor="ada", key="k", input={"a": 1})

    with pytest.raises(KeyTaken, match=f"the key 'k' belongs to {first.run_id}"):
        await setup.launcher.trigger("report", actor="ada", key="k", input=given)


async def test_a_key_counts_within_its_job(setup: LauncherFixture) -> None:
    await setup.register(name="other")

    one, other = [await setup.launcher.trigger(name, actor="ada", key="monday") for name in ("report", "other")]

    assert one.run_id != other.run_id


async def test_a_run_that_would_overlap_is_refused_and_the_other_is_named(setup: LauncherFixture) -> None:
    first = await setup.launcher.trigger("report", actor="ada")

    with pytest.raises(Overlapping, match=f"a run of 'report' is under way: {first.run_id}"):
        await setup.launcher.trigger("report", actor="ada")


async def test_force_starts_a_run_beside_another(setup: LauncherFixture) -> None:
    await setup.launcher.trigger("report", actor="ada")

    assert (await setup.launcher.trigger("report", actor="ada", force=True)).became is LaunchOutcome.STARTED


async def test_a_run_waits_where_runs_queue(setup: LauncherFixture) -> None:
    await setup.register(overlap="queue")
    await setup.launcher.trigger("report", actor="ada")

    assert (await setup.launcher.trigger("report", actor="ada")).became is LaunchOutcome.QUEUED


async def test_a_full_queue_refuses(setup: LauncherFixture) -> None:
    await setup.register(overlap="queue", queue_limit=1)
    for _ in range(2):
        await setup.launcher.trigger("report", actor="ada")

    with pytest.raises(QueueFull, match="1 runs of 'report' wait already"):
        await setup.launcher.trigger("report", actor="ada")


@pytest.mark.req("H-22")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param({"day": 5}, "input.day: 5 is refused by input_schema", id="against the schema"),
        pytest.param({"day": "x" * 70_000}, "at most 65536 are allowed", id="too large"),
        pytest.param({"day": {1, 2}}, "is nothing that JSON has", id="not JSON"),
        pytest.param(["day"], "must be a mapping", id="not a mapping"),
    ],
)
async def test_an_input_that_is_wrong_starts_nothing(setup: LauncherFixture, given: Any, problem: str) -> None:  # noqa: ANN401
    await setup.register(input={"day": "monday"}, input_schema={"properties": {"day": {"type": "string"}}})

    with pytest.raises(FieldError, match=problem):
        await setup.launcher.trigger("report", actor="ada", input=given)

    assert await setup.runs() == []


async def test_a_job_that_is_not_there_cannot_be_triggered(setup: LauncherFixture) -> None:
    with pytest.raises(NotFound, match="there is no job 'nobody'"):
        await setup.launcher.trigger("nobody", actor="ada")


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
async def test_a_key_that_is_none_is_refused(setup: LauncherFixture, key: str) -> None:
    with pytest.raises(FieldError, match="key"):
        await setup.launcher.trigger("report", actor="ada", key=key)


class Deleting(MemoryRuns):
    """The job is deleted while someone triggers it."""

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        del launches, now
        return [LaunchOutcome.GONE]


async def test_a_job_that_is_deleted_in_the_meantime_is_not_there() -> None:
    setup = LauncherFixture(with_part("runs", Deleting))
    await setup.register()

    with pytest.raises(NotFound, match="there is no job 'report'"):
        await setup.launcher.trigger("report", actor="ada")


# ---- starting workflows --------------------------------------------------------------------------


async def start(setup: LauncherFixture, *, version: int = 1, key: str = "k", at: int = NOON) -> bool:
    return await setup.launcher.start("report", version, "bob", at, key, actor="ada")


@pytest.mark.req("C-08")
async def test_a_workflow_is_started_with_all_that_was_said(setup: LauncherFixture) -> None:
    assert await start(setup, at=NOON + HOUR)

    [run] = await setup.runs()
    assert (run.source, run.user_id, run.planned_at, run.idempotency_key) == (RunSource.CRON, "bob", NOON + HOUR, "k")
    assert run.actor == "ada"
    assert (run.workflow_id, run.workflow_version, run.schedule_uid) == ("report", 1, None)


@pytest.mark.req("C-08")
async def test_a_start_that_lies_ahead_waits_for_its_time(setup: LauncherFixture) -> None:
    await start(setup, at=NOON + HOUR)

    [task] = await setup.store.history.tasks(await setup.runs())
    assert (task.wait_reason, task.available_at) == (WaitReason.DELAY, NOON + HOUR)


@pytest.mark.req("C-08")
@pytest.mark.guarantee("S15")
async def test_starting_twice_with_one_key_is_one_run(setup: LauncherFixture) -> None:
    assert [await start(setup), await start(setup)] == [True, True]

    assert len(await setup.runs()) == 1


@pytest.mark.req("C-08", "C-16")
async def test_a_version_that_is_not_there_is_not_started(setup: LauncherFixture) -> None:
    assert not await start(setup, version=7)

    assert await setup.runs() == []


class Away(MemoryRuns):
    """The store is away for the next few launches."""

    failures = 0

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("away")
        return await super().launch(launches, now=now)


@pytest.mark.req("C-08")
@pytest.mark.parametrize(("failures", "started"), [(3, True), (4, False)])
async def test_a_start_is_tried_again_while_the_store_is_away(failures: int, started: bool) -> None:  # noqa: FBT001 - a column
    setup = LauncherFixture(with_part("runs", Away))
    await setup.register()
    assert isinstance(setup.store.runs, Away)
    setup.store.runs.failures = failures

    assert await start(setup) is started
    assert setup.clock.now() - NOON == 2100


async def test_an_input_is_kept_as_it_was_given(setup: LauncherFixture) -> None:
    given = {"text": "grüße", "numbers": [1, 2.5, None, True]}

    done = await setup.launcher.trigger("report", actor="ada", input=given)

    kept = await setup.store.executions.payload(done.run_id, "input")
    assert kept is not None
    assert msgspec.json.decode(kept) == given
