"""Executions as operators look at them: whole, in words that mean one thing, until they are over."""

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import LogLine, Result, Run, RunStatus, Task
from gnomon.core.runs.launch import CancelOutcome
from gnomon.errors import AlreadyOver, FieldError, NotFound
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds, VirtualClock
from support.task_steps import completion_of, take_task


class ExecutionFixture:
    """A store with a job, and everybody around it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        ids = CountedIds()
        self.jobs = JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, ids)
        self.launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, self.clock, ids
        )
        self.execution_service = ExecutionService(
            self.store.runs,
            self.store.executions,
            self.store.run_tasks,
            self.store.jobs,
            self.clock,
            announcements=self.store.announcements,
        )

    async def register(self, name: str = "report") -> None:
        job = read_job({"name": name, "function": "reports.make", "overlap": "allow"}, Defaults(), now=NOON)
        await self.jobs.apply([job], actor="ada")

    async def triggered(self, job: str = "report") -> Run:
        done = await self.launcher.trigger(job, actor="ada", input={"day": 1})
        found = await self.store.executions.find_run(done.run_id)
        assert found is not None
        return found

    async def end(self, run: Run, result: Result = Result.SUCCEEDED) -> None:
        taken = await take_task(self.store, "worker-1", run, now=self.clock.now())
        self.clock.advance(1500)
        lines = (LogLine(NOON, "info", "began"), LogLine(self.clock.now(), "info", "ended"))
        await self.store.attempts.report(
            [completion_of(taken, result, now=self.clock.now(), output=b'{"rows":3}', logs=lines)]
        )


@pytest.fixture
async def setup() -> ExecutionFixture:
    made = ExecutionFixture()
    await made.register()
    return made


@pytest.mark.req("H-10")
async def test_an_execution_shows_what_it_was_given_what_was_tried_and_what_it_returned(
    setup: ExecutionFixture,
) -> None:
    run = await setup.triggered()
    await setup.end(run)

    seen = await setup.execution_service.get(run.run_id)

    [step] = seen.steps
    assert (seen.run.status, seen.input, step.output) == (RunStatus.COMPLETED, b'{"day":1}', b'{"rows":3}')
    assert (step.started_at, step.ended_at) == (NOON, NOON + 1500)
    assert [(one.worker, one.result) for one in step.attempts] == [("worker-1", Result.SUCCEEDED)]
    assert seen.workflow is not None
    assert seen.workflow.version == 1


async def test_a_running_step_has_not_ended(setup: ExecutionFixture) -> None:
    run = await setup.triggered()
    await take_task(setup.store, "worker-1", run, now=NOON)

    [step] = (await setup.execution_service.get(run.run_id)).steps

    assert (step.started_at, step.ended_at) == (NOON, None)


@pytest.mark.req("H-10")
async def test_executions_are_listed_newest_first_by_job_and_status(setup: ExecutionFixture) -> None:
    await setup.register("other")
    first = await setup.triggered()
    await setup.end(first)
    second, other = await setup.triggered(), await setup.triggered("other")

    assert [run.run_id for run in await setup.execution_service.page(job="report")] == [second.run_id, first.run_id]
    assert [run.run_id for run in await setup.execution_service.page(status=RunStatus.COMPLETED)] == [first.run_id]
    assert other.run_id in [run.run_id for run in await setup.execution_service.page()]


async def test_a_list_continues_after_its_last_line(setup: ExecutionFixture) -> None:
    for _ in range(3):
        await setup.triggered()
        setup.clock.advance(1)
    [newest] = await setup.execution_service.page(limit=1)

    rest = await setup.execution_service.page(after=(newest.created_at, newest.run_id))

    assert newest.run_id not in [run.run_id for run in rest]
    assert len(rest) == 2


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_page_has_a_size(setup: ExecutionFixture, limit: int) -> None:
    with pytest.raises(FieldError, match="limit"):
        await setup.execution_service.page(limit=limit)


@pytest.mark.req("H-26")
async def test_a_waiting_run_is_cancelled_at_once_with_the_actor(setup: ExecutionFixture) -> None:
    run = await setup.triggered()

    assert await setup.execution_service.cancel(run.run_id, actor="bob") is CancelOutcome.CANCELLED

    ended_run = (await setup.execution_service.get(run.run_id)).run
    assert (ended_run.status, ended_run.error) == (RunStatus.CANCELLED, "cancelled by bob")


@pytest.mark.req("H-26")
async def test_an_active_run_is_asked_to_stop(setup: ExecutionFixture) -> None:
    run = await setup.triggered()
    await take_task(setup.store, "worker-1", run, now=NOON)

    assert await setup.execution_service.cancel(run.run_id, actor="bob") is CancelOutcome.ASKED


async def test_a_finished_run_cannot_be_cancelled(setup: ExecutionFixture) -> None:
    run = await setup.triggered()
    await setup.end(run)

    with pytest.raises(AlreadyOver, match=f"execution '{run.run_id}' is over already"):
        await setup.execution_service.cancel(run.run_id, actor="bob")


async def test_an_execution_that_is_not_there_is_not_found(setup: ExecutionFixture) -> None:
    with pytest.raises(NotFound, match="there is no execution 'run_none'"):
        await setup.execution_service.get("run_none")


async def test_an_execution_of_another_tenant_is_not_found(setup: ExecutionFixture) -> None:
    run = await setup.triggered()

    with pytest.raises(NotFound):
        await setup.execution_service.get(run.run_id, tenant="other")


async def test_logs_come_in_the_order_of_time_and_go_on_where_they_ended(setup: ExecutionFixture) -> None:
    run = await setup.triggered()
    await setup.end(run)

    first = await setup.execution_service.logs(run.run_id, limit=1)
    rest = await setup.execution_service.logs(run.run_id, after=first.after, limit=1)

    assert [(one.step, one.line.text, one.number) for one in first.lines] == [("main", "began", 1)]
    assert [(one.step, one.line.text, one.number) for one in rest.lines] == [("main", "ended", 2)]
    assert rest.after is None


async def test_steps_of_a_graph_are_shown_one_by_one(setup: ExecutionFixture) -> None:
    dag = [{"step": name, "function": "f"} for name in ("b", "a")]
    await setup.jobs.apply([read_job({"name": "graph", "dag": dag}, Defaults(), now=NOON)], actor="ada")
    run = await setup.triggered("graph")

    tasks: list[Task] = [step.task for step in (await setup.execution_service.get(run.run_id)).steps]

    assert [task.step for task in tasks] == ["a", "b"]
