"""Deadlines: which service ends a task when, and what follows from it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.core.model import Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict
from gnomon.core.runs.deadlines import OverdueEnd
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, RetryPolicy, RunDeadlines, Step, When, Workflow
from gnomon.ports.tasks import AttemptRef
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds
from support.execution import ExecutionHarness
from support.gates import LateGate
from support.task_steps import workflow

pytestmark = [pytest.mark.req("R-07")]

MINUTE = 60_000
LIMIT = 10 * MINUTE
AT = NOON + LIMIT


@pytest.fixture
def harness() -> ExecutionHarness:
    return ExecutionHarness()


async def limited(harness: ExecutionHarness, definition: Workflow | None = None, name: str = "a") -> Run:
    """A run that may take ten minutes."""
    definition = definition or workflow(deadline_ms=LIMIT)
    job = await harness.job(definition, deadlines=definition.deadlines)
    return await harness.run(job, name, first_steps=definition.first_steps)


async def only_task(harness: ExecutionHarness, run: Run) -> Task:
    [task] = await harness.store.history.tasks([run])
    return task


async def test_the_enforcer_sleeps_until_the_next_deadline_and_no_longer_than_its_interval(
    harness: ExecutionHarness,
) -> None:
    assert await harness.deadline_enforcer.step() == 1.0

    run = await limited(harness)
    assert await harness.deadline_enforcer.step() == 1.0
    harness.clock.advance(LIMIT - 250)
    assert await harness.deadline_enforcer.step() == 0.25
    harness.clock.advance(250)
    assert await harness.deadline_enforcer.step() == 0.0

    assert (await only_task(harness, run)).state is TaskState.TIMEOUT


async def test_a_task_that_waits_for_a_worker_ends_with_its_run_and_says_so(harness: ExecutionHarness) -> None:
    run = await limited(harness)
    await harness.dispatcher.step()
    harness.clock.advance(LIMIT)

    await harness.deadline_enforcer.step()

    after, [letter] = await harness.now(run), await harness.store.dead_letters.page("default")
    assert after.status is RunStatus.FAILED
    assert (after.error or "").startswith("its deadline passed at 2026-03-02T12:10:00.000+00:00 while it waited")
    assert letter.reason == "deadline_exceeded"
    assert harness.events.names()[-2:] == ["deadline_passed", "dead_letter"]
    assert harness.woken[-1] == "deadlines"


class AskingGate(LateGate):
    """Asks for an approval of every task."""

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        return GateDecision(GateVerdict.ASK, "a payment needs a second person", task_id=request.waiting.task.task_id)


async def test_a_task_that_waits_for_an_approval_ends() -> None:
    harness = ExecutionHarness(gate=AskingGate())
    run = await limited(harness)
    while (await only_task(harness, run)).state is TaskState.PENDING:
        await harness.dispatcher.step()
    assert (await only_task(harness, run)).state is TaskState.APPROVAL_REQUIRED
    harness.clock.advance(LIMIT)

    await harness.deadline_enforcer.step()

    assert (await only_task(harness, run)).state is TaskState.TIMEOUT
    assert "a payment needs a second person" in ((await harness.now(run)).error or "")


@pytest.mark.parametrize(
    "result", [Result.FAILED, Result.TIMED_OUT, Result.LOST, Result.NEVER_STARTED, Result.INTERRUPTED]
)
async def test_a_retry_that_would_begin_at_the_deadline_or_later_is_not_made(
    harness: ExecutionHarness, result: Result
) -> None:
    retry = RetryPolicy(max_attempts=5, initial_delay_ms=4 * MINUTE, jitter=0)
    run = await limited(harness, workflow(deadline_ms=LIMIT, retry=retry))
    await harness.run_until_idle()
    # Without a delay of its own, the next attempt would begin at once.
    at_once = result in (Result.INTERRUPTED, Result.NEVER_STARTED)
    harness.clock.advance(LIMIT if at_once else 6 * MINUTE)

    harness.runner.end_all(result, error="no luck")
    await harness.worker.step()

    task, [letter] = await only_task(harness, run), await harness.store.dead_letters.page("default")
    assert (task.state, letter.reason) == (TaskState.TIMEOUT, "deadline_exceeded")
    assert task.note == "its deadline passed at 2026-03-02T12:10:00.000+00:00; the last attempt: no luck"


async def test_a_retry_before_the_deadline_is_made_and_does_not_restart_it(harness: ExecutionHarness) -> None:
    retry = RetryPolicy(max_attempts=5, initial_delay_ms=MINUTE, multiplier=1, jitter=0)
    run = await limited(harness, workflow(deadline_ms=LIMIT, retry=retry))
    await harness.run_until_idle()
    harness.clock.advance(5 * MINUTE)
    harness.runner.end_all(Result.FAILED)
    await harness.worker.step()

    task = await only_task(harness, run)

    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.RETRY)
    assert task.deadline_at == AT


async def test_a_success_that_is_reported_in_the_grace_counts(harness: ExecutionHarness) -> None:
    run = await limited(harness)
    await harness.run_until_idle()
    harness.clock.advance(LIMIT + 100)
    await harness.deadline_enforcer.step()

    harness.runner.end_all()
    await harness.worker.step()

    assert (await harness.now(run)).status is RunStatus.COMPLETED


async def test_an_attempt_that_its_worker_ended_by_the_deadline_is_not_retried(harness: ExecutionHarness) -> None:
    retry = RetryPolicy(max_attempts=5, initial_delay_ms=1, jitter=0)
    run = await limited(harness, workflow(deadline_ms=LIMIT, retry=retry))
    await harness.run_until_idle()
    # The clock of the worker is a little ahead of ours.
    harness.clock.advance(LIMIT - 50)

    harness.runner.end_all(Result.TIMED_OUT, past_deadline=True, error="its deadline passed at noon")
    await harness.worker.step()

    [letter] = await harness.store.dead_letters.page("default")
    assert ((await only_task(harness, run)).state, letter.reason) == (TaskState.TIMEOUT, "deadline_exceeded")


@pytest.mark.req("R-20")
@pytest.mark.parametrize("grace_ms", [1_000, 30_000])
async def test_an_attempt_that_its_worker_does_not_end_is_ended_after_the_grace(grace_ms: int) -> None:
    harness = ExecutionHarness(flags={"reconciler.grace_ms": grace_ms})
    run = await limited(harness)
    await harness.run_until_idle()
    harness.clock.advance(LIMIT + grace_ms - 1)
    assert await harness.deadline_enforcer.step() == 0.001
    harness.clock.advance(1)

    await harness.deadline_enforcer.step()
    harness.runner.end_all()
    await harness.worker.step()

    after = await harness.now(run)
    assert (await only_task(harness, run)).state is TaskState.TIMEOUT
    assert after.error == "its deadline passed at 2026-03-02T12:10:00.000+00:00, and its worker did not end it"
    assert "late_result" in harness.events.names()


async def test_a_task_whose_deadline_has_passed_is_not_admitted(harness: ExecutionHarness) -> None:
    run = await limited(harness)
    harness.clock.advance(LIMIT)

    await harness.run_until_idle()

    assert not harness.runner.started
    assert (await only_task(harness, run)).state is TaskState.TIMEOUT
    assert (
        await harness.now(run)
    ).error == "its deadline passed at 2026-03-02T12:10:00.000+00:00 before it could begin"


async def test_clean_up_after_a_step_that_its_own_deadline_ended_still_runs(harness: ExecutionHarness) -> None:
    steps = (
        Step(name="work", function="reports.make", deadline_ms=LIMIT),
        Step(name="clean", function="reports.make", depends_on=("work",), when=When.ALL_DONE),
    )
    run = await limited(harness, Workflow(workflow_id="report", version=1, steps=steps))
    harness.clock.advance(LIMIT)
    await harness.deadline_enforcer.step()

    await harness.run_until_idle()

    [started] = harness.runner.started.values()
    assert started.step.name == "clean"
    assert started.task.deadline_at is (await harness.now(run)).deadline_at is None


async def test_no_step_of_a_run_begins_after_the_deadline_of_the_run(harness: ExecutionHarness) -> None:
    steps = (
        Step(name="work", function="reports.make"),
        Step(name="clean", function="reports.make", depends_on=("work",), when=When.ALL_DONE),
    )
    run = await limited(harness, Workflow(workflow_id="report", version=1, steps=steps, deadline_ms=LIMIT))
    harness.clock.advance(LIMIT)

    while not await harness.deadline_enforcer.step():
        pass

    tasks = {task.step: task.state for task in await harness.store.history.tasks([run])}
    assert tasks == {"work": TaskState.TIMEOUT, "clean": TaskState.TIMEOUT}
    assert (await harness.now(run)).status is RunStatus.FAILED


async def test_a_request_may_only_shorten_the_deadline_of_its_job(harness: ExecutionHarness) -> None:
    await harness.job(workflow(deadline_ms=LIMIT), deadlines=RunDeadlines(run_ms=LIMIT))
    store = harness.store
    launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, harness.clock, CountedIds())

    found = [
        await store.executions.find_run((await launcher.trigger("report", actor="ada", deadline_ms=span)).run_id)
        for span in (MINUTE, None, 2 * LIMIT)
    ]

    assert [run.deadline_at for run in found if run] == [NOON + MINUTE, AT, AT]


# ---- one task that the store refuses -------------------------------------------------------------


@pytest.mark.req("R-20")
@pytest.mark.parametrize("retries", [0, 3])
async def test_a_task_whose_end_the_store_refuses_is_tried_a_few_times_and_holds_up_no_other(
    retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ExecutionHarness(flags={"reconciler.max_retries": retries})
    definition = workflow(deadline_ms=LIMIT)
    job = await harness.job(definition, deadlines=definition.deadlines)
    runs = [await harness.run(job, name) for name in "abc"]
    bad = (await only_task(harness, runs[1])).task_id
    harness.clock.advance(LIMIT)
    end_overdue, tries = harness.store.deadlines.end_overdue, []

    async def refuse_one(ends: Sequence[OverdueEnd], *, now: int) -> frozenset[TaskId]:
        if any(one.task_id == bad for one in ends):
            tries.append(len(ends))
            raise ValueError("cannot be stored")
        return await end_overdue(ends, now=now)

    monkeypatch.setattr(harness.store.deadlines, "end_overdue", refuse_one)
    await harness.deadline_enforcer.step()

    states = [(await only_task(harness, run)).state for run in runs]
    assert states == [TaskState.TIMEOUT, TaskState.PENDING, TaskState.TIMEOUT]
    assert tries == [3, *[1] * (retries + 1)]
    assert [facts["task"] for name, facts in harness.events.seen if name == "task_not_ended"] == [bad]


@pytest.mark.req("R-20")
@pytest.mark.parametrize("retries", [0, 3])
async def test_an_attempt_whose_end_the_store_refuses_does_not_stop_the_reconciler(
    retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ExecutionHarness(flags={"reconciler.max_retries": retries})
    job = await harness.job()
    runs = [await harness.run(job, name) for name in "abc"]
    await harness.run_until_idle()
    bad = (await only_task(harness, runs[1])).task_id
    harness.clock.advance(MINUTE)
    report, tries = harness.store.attempts.report, []

    async def refuse_one(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        if any(one.task_id == bad for one in endings):
            tries.append(len(endings))
            raise ValueError("cannot be stored")
        return await report(endings)

    monkeypatch.setattr(harness.store.attempts, "report", refuse_one)
    await harness.reconciler.step()

    states = [(await only_task(harness, run)).state for run in runs]
    assert states == [TaskState.PENDING, TaskState.RUNNING, TaskState.PENDING]
    assert tries == [3, *[1] * (retries + 1)]


@pytest.mark.req("R-20")
@pytest.mark.parametrize("poll_ms", [200, 5_000])
async def test_the_interval_between_two_searches_is_a_setting(poll_ms: int) -> None:
    harness = ExecutionHarness(flags={"reconciler.deadline_poll_ms": poll_ms})
    await limited(harness)

    assert await harness.deadline_enforcer.step() == poll_ms / 1000


async def test_the_reconciler_gives_a_worker_the_grace_of_the_settings() -> None:
    harness = ExecutionHarness(flags={"reconciler.grace_ms": 2_000, "worker.lease_ms": 600_000})
    step = Step(name=ONLY_STEP, function="reports.make", timeout_ms=MINUTE)
    run = await limited(harness, Workflow(workflow_id="report", version=1, steps=(step,)))
    await harness.run_until_idle()
    states = []
    for ms in (MINUTE + 2_000, 1):
        harness.clock.advance(ms)
        await harness.reconciler.step()
        states.append((await only_task(harness, run)).state)

    assert states == [TaskState.RUNNING, TaskState.TIMEOUT]
    assert replace(await only_task(harness, run)).note == "ran for more than 62 s and did not stop"
