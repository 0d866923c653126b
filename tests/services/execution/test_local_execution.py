"""From a task whose time has come to a run that is over: dispatcher, worker and reconciler together."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, RunStatus, TaskId
from gnomon.core.policy.facts import request_digest
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease, ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import Assignment, TaskCompletion
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.execution import Gate
from gnomon.ports.tasks import AttemptRef
from gnomon.services.execution.announced_causes import MOST_CAUSES, REPEAT_SECONDS, AnnouncedCauses
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds
from support.execution import ExecutionHarness, FakeRunner
from support.gates import at_once
from support.task_steps import workflow

pytestmark = pytest.mark.usefixtures("any_gate")

MINUTE = 60_000


@pytest.fixture
def harness() -> ExecutionHarness:
    return ExecutionHarness()


# ---- the ordinary way ----------------------------------------------------------------------------


async def test_a_run_goes_all_the_way(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job(workflow(input={"n": 1})))
    await harness.run_until_idle()
    [assignment] = harness.runner.started.values()
    assert (assignment.input, assignment.attempt, assignment.task.fence) == ({"n": 1}, 1, 1)

    harness.runner.end_all(output=b"42")
    await harness.run_until_idle()

    assert (await harness.now(run)).status is RunStatus.COMPLETED
    assert await harness.store.executions.payload(assignment.task.task_id, "output") == b"42"
    assert "task_succeeded" in harness.events.names()


async def test_taken_tasks_start_before_ended_ones_are_written(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    await harness.run(job, "a")
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run(job, "b")
    await harness.dispatcher.step()
    begun: list[RunId] = []
    report = harness.store.attempts.report

    async def slowly(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        for _ in range(10):
            await asyncio.sleep(0)
        begun.extend(one.run.run_id for one in harness.runner.started.values())
        return await report(endings)

    monkeypatch.setattr(harness.store.attempts, "report", slowly)
    await harness.worker.step()

    assert begun == ["run_b"]


@pytest.mark.parametrize(("ticker_behind", "wait"), [(True, 0.3), (False, 0.0)])
async def test_while_ticks_wait_to_be_decided_dispatching_has_a_quarter_of_the_time(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch, *, ticker_behind: bool, wait: float
) -> None:
    await harness.run(await harness.job())
    waiting = harness.store.tasks.waiting

    async def in_a_tenth_of_a_second(now: int, *, limit: int, in_turns: bool) -> Sequence[ReadyTask]:
        harness.clock.advance(100)
        return await waiting(now, limit=limit, in_turns=in_turns)

    monkeypatch.setattr(harness.store.tasks, "waiting", in_a_tenth_of_a_second)
    harness.ticker_behind = ticker_behind

    assert await harness.dispatcher.step() == pytest.approx(wait)


async def test_no_more_is_taken_than_there_are_slots() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 3})
    job = await harness.job()
    for number in range(5):
        await harness.run(job, f"{number}")
    await harness.run_until_idle()
    assert len(harness.runner.started) == 3

    harness.runner.end(next(iter(harness.runner.started)))
    await harness.run_until_idle()

    assert len(harness.runner.started) == 3


async def test_an_ended_attempt_frees_its_slot_in_the_same_step() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 1})
    job = await harness.job()
    runs = [await harness.run(job, name) for name in "ab"]
    await harness.run_until_idle()
    harness.runner.end_all()

    await harness.worker.step()

    assert [one.run.run_id for one in harness.runner.started.values()] == [runs[1].run_id]
    assert (await harness.now(runs[0])).status is RunStatus.COMPLETED


async def test_the_dispatcher_waits_exactly_until_the_next_task_is_ready(harness: ExecutionHarness) -> None:
    job = await harness.job()
    wanted = new_requested_run(RunId("run_later"), job, source=RunSource.API, now=NOON)
    later = replace(wanted, fire_at=NOON + 2345)
    await harness.store.runs.launch([LaunchRequest(run=later, first_steps=("main",))], now=NOON)

    assert await harness.dispatcher.step() == 2.345


async def test_with_nothing_to_do_the_dispatcher_looks_again_after_its_poll_time(harness: ExecutionHarness) -> None:
    assert await harness.dispatcher.step() == harness.settings.worker.poll_secs


# ---- what cannot be run --------------------------------------------------------------------------


async def test_a_cause_for_which_tasks_wait_is_announced_once_however_often_they_are_tried(
    harness: ExecutionHarness,
) -> None:
    missing, other = (
        await harness.job(workflow(function="un/heard")),
        await harness.job(workflow("other", function="of"), name="other", workflow_id="other"),
    )
    for number in range(3):
        await harness.run(missing, f"missing{number}")
    await harness.run(other, "other")
    for _ in range(4):
        await harness.run_until_idle()
        harness.clock.advance(1_000)

    announced = [facts for name, facts in harness.events.seen if name == "task_not_scheduled"]
    assert sorted((facts["job"], facts["reason"]) for facts in announced) == [
        ("other", "no_workers: no worker has registered the function 'of'"),
        ("report", "no_workers: no worker has registered the function 'un/heard'"),
    ]


async def test_a_cause_is_announced_again_after_a_while_and_old_ones_are_forgotten() -> None:
    causes = AnnouncedCauses()

    assert causes.is_new(("default", "a", "no_workers"), 0)
    assert not causes.is_new(("default", "a", "no_workers"), REPEAT_SECONDS - 1)
    assert causes.is_new(("default", "a", "another"), REPEAT_SECONDS - 1)
    assert causes.is_new(("default", "a", "no_workers"), REPEAT_SECONDS)
    for number in range(MOST_CAUSES):
        assert causes.is_new(("default", "b", str(number)), REPEAT_SECONDS)
    assert causes.is_new(("default", "a", "no_workers"), REPEAT_SECONDS)


@pytest.mark.req("H-04")
async def test_a_function_that_no_worker_has_is_a_reason_on_the_task_and_runs_once_one_has_it(
    harness: ExecutionHarness,
) -> None:
    run = await harness.run(await harness.job(workflow(function="unheard/of")))
    await harness.run_until_idle()
    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.ROUTE)
    assert task.note == "no_workers: no worker has registered the function 'unheard/of'"

    harness.runner.functions = {"unheard/of"}
    harness.worker.register_again()
    harness.clock.advance(2000)
    await harness.run_until_idle()

    assert len(harness.runner.started) == 1


@pytest.mark.req("R-04")
async def test_a_task_without_a_worker_starts_as_soon_as_a_capable_one_registers() -> None:
    harness = ExecutionHarness(flags={"execution.batch": 2})
    job = await harness.job(workflow(function="unheard/of"))
    other = await harness.job(workflow("other", function="never"), name="other", workflow_id="other")
    runs = [await harness.run(job if number % 2 else other, f"{number}") for number in range(6)]
    await harness.run_until_idle()
    before = {task.task_id: task for task in await harness.store.history.tasks(runs)}
    assert {task.wait_reason for task in before.values()} == {WaitReason.ROUTE}

    harness.runner.functions = {"unheard/of"}
    harness.worker.register_again()
    await harness.worker.step()
    harness.dispatcher.retry_unroutable()
    await harness.run_until_idle()

    assert {one.run.run_id for one in harness.runner.started.values()} == {run.run_id for run in runs[1::2]}
    left = await harness.store.history.tasks(runs[::2])
    assert [before[task.task_id] for task in left] == left, "whoever still waits has lost no try and no time"


@pytest.mark.req("C-08")
async def test_a_run_without_a_workflow_is_tried_a_few_times_and_then_fails_with_the_reason(
    harness: ExecutionHarness,
) -> None:
    job = minutely()
    await harness.store.schedules.add([job], actor="ada", tzdata="")
    run = await harness.run(job)
    for _ in range(3):
        await harness.run_until_idle()
        harness.clock.advance(10_000)

    failed = await harness.now(run)
    assert (failed.status, failed.error) == (
        RunStatus.FAILED,
        "launch_failed: there is no workflow 'report' of version 1",
    )


async def test_a_worker_that_was_given_what_it_cannot_run_gives_it_back(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.worker.step()
    await harness.dispatcher.step()
    harness.runner.functions = frozenset()

    await harness.worker.step()
    await harness.worker.step()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.wait_reason, task.attempts) == (TaskState.PENDING, WaitReason.ROUTE, 0)


# ---- the gate ------------------------------------------------------------------------------------


class StrictGate(Gate):
    """Says what it was told to say."""

    def __init__(self, ruling: GateVerdict, *, quarantine: str | None = None) -> None:
        self.ruling, self.quarantine = ruling, quarantine
        self.seen: list[AdmissionRequest] = []

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        self.seen.append(request)
        return GateDecision(self.ruling, "house rule", 5000)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        return OutputRelease(output=b'"redacted"' if output else output, quarantine=self.quarantine)


async def gated(gate: StrictGate) -> tuple[ExecutionHarness, Run]:
    harness = ExecutionHarness(gate=gate)
    run = await harness.run(await harness.job(workflow(input={"n": 1})))
    await harness.run_until_idle()
    return harness, run


async def test_the_gate_sees_all_that_will_be_done() -> None:
    gate = StrictGate(GateVerdict.ALLOW)
    await gated(gate)

    [request] = gate.seen
    assert (request.step.function, request.input, len(request_digest(request))) == ("reports.make", {"n": 1}, 32)


async def test_a_denied_task_never_runs() -> None:
    harness, run = await gated(StrictGate(GateVerdict.DENY))

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.note) == (TaskState.DENIED, "blocked by security policy: house rule")
    assert (await harness.now(run)).status is RunStatus.FAILED
    assert not harness.runner.started


async def test_a_task_that_needs_an_approval_waits_for_it() -> None:
    harness, run = await gated(StrictGate(GateVerdict.ASK))

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.note) == (TaskState.APPROVAL_REQUIRED, "house rule")


async def test_output_passes_the_gate_on_the_way_out() -> None:
    harness, run = await gated(StrictGate(GateVerdict.ALLOW))
    harness.runner.end_all(output=b'"all of it"')
    await harness.run_until_idle()

    [task] = await harness.store.history.tasks([run])
    assert await harness.store.executions.payload(task.task_id, "output") == b'"redacted"'


@pytest.mark.parametrize(("quarantine", "kept"), [(None, b'"redacted"'), ("a password", None)])
async def test_output_of_a_failed_command_passes_the_gate_too(quarantine: str | None, kept: bytes | None) -> None:
    harness, run = await gated(StrictGate(GateVerdict.ALLOW, quarantine=quarantine))
    harness.runner.end_all(Result.FAILED, error="exit status 1", output=b'{"status":1}')
    await harness.run_until_idle()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.note) == (TaskState.FAILED, "exit status 1")
    assert await harness.store.executions.payload(task.task_id, "output") == kept


async def test_output_that_is_held_back_fails_the_run() -> None:
    harness, run = await gated(StrictGate(GateVerdict.ALLOW, quarantine="a password"))
    harness.runner.end_all(output=b'"all of it"')
    await harness.run_until_idle()

    [task] = await harness.store.history.tasks([run])
    assert task.state is TaskState.OUTPUT_QUARANTINED
    assert (await harness.now(run)).error == "a password"


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.req("H-08")
async def test_a_failure_is_tried_again_when_its_delay_is_over() -> None:
    harness = ExecutionHarness(flags={"worker.poll_secs": 60})
    retry = RetryPolicy(max_attempts=3, initial_delay_ms=10_000, multiplier=2, jitter=0)
    run = await harness.run(await harness.job(workflow(retry=retry)))
    waits = []
    for _ in range(3):
        await harness.run_until_idle()
        harness.runner.end_all(Result.FAILED, error="no")
        await harness.worker.step()
        waits.append(await harness.dispatcher.step())
        harness.clock.advance(round(waits[-1] * 1000))

    assert waits == [10.0, 20.0, 60.0]
    assert (await harness.now(run)).status is RunStatus.FAILED


@pytest.mark.req("H-09")
async def test_a_task_that_fails_permanently_leaves_its_history(harness: ExecutionHarness) -> None:
    retry = RetryPolicy(max_attempts=2, initial_delay_ms=1000, jitter=0)
    run = await harness.run(await harness.job(workflow(retry=retry, dead_letter=True)))
    for number in range(2):
        await harness.run_until_idle()
        harness.runner.end_all(Result.FAILED, error=f"failure {number}")
        await harness.worker.step()
        harness.clock.advance(1000)

    [letter] = await harness.store.dead_letters.page("default")
    assert (letter.attempts, letter.last_error) == (2, "failure 1")
    attempts = await harness.store.executions.attempts([letter.task_id])
    assert [(one.number, one.result, one.error) for one in attempts] == [
        (1, Result.FAILED, "failure 0"),
        (2, Result.FAILED, "failure 1"),
    ]
    assert (await harness.now(run)).status is RunStatus.FAILED
    assert "dead_letter" in harness.events.names()


# ---- being alive ---------------------------------------------------------------------------------


async def test_a_worker_shows_up_three_times_in_a_lease(harness: ExecutionHarness) -> None:
    await harness.worker.step()
    assert await harness.worker.step() == harness.settings.worker.lease_ms / 3000

    await harness.run(await harness.job())
    await harness.run_until_idle()
    for _ in range(10):
        harness.clock.advance(10_000)
        await harness.worker.step()
    await harness.reconciler.step()

    assert len(harness.runner.started) == 1
    assert "attempt_ended_by_reconciler" not in harness.events.names()


@pytest.mark.req("R-07")
@pytest.mark.guarantee("S4", "S9")
async def test_the_task_of_a_worker_that_is_gone_is_run_by_another(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms + 1)

    await harness.reconciler.step()
    harness.clock.advance(1000)
    other_runner = FakeRunner()
    other = harness.new_worker("w2", other_runner)
    await other.step()
    await harness.dispatcher.step()
    await other.step()

    [again] = other_runner.started.values()
    assert (again.run.run_id, again.attempt, again.task.fence) == (run.run_id, 2, 2)
    [first, _] = await harness.store.executions.attempts([again.task.task_id])
    assert first.result is Result.LOST


@pytest.mark.req("R-07")
@pytest.mark.parametrize("recovers", [False, True], ids=["step", "recover"])
async def test_however_many_attempts_are_open_a_lost_one_is_found(*, recovers: bool) -> None:
    harness = ExecutionHarness(flags={"reconciler.batch": 1, "reconciler.max_iterations": 2})
    job = await harness.job(overlap=Overlap.ALLOW)
    for number in range(5):
        await harness.run(job, str(number))
    await harness.run_until_idle()
    assert len(harness.runner.started) == 5
    harness.clock.advance(harness.settings.worker.lease_ms + 1)

    if recovers:
        await harness.reconciler.recover(alive={"a new one"})
    else:
        waits = [await harness.reconciler.step() for _ in range(3)]
        assert waits == [0.0, 0.0, harness.settings.reconciler.poll_ms / 1000]

    assert harness.events.names().count("attempt_ended_by_reconciler") == 5


@pytest.mark.guarantee("S7")
async def test_the_result_of_a_lost_attempt_changes_nothing(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms + 1)
    await harness.reconciler.step()

    harness.runner.end_all(output=b'"late"')
    await harness.worker.step()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, await harness.store.executions.payload(task.task_id, "output")) == (TaskState.PENDING, None)
    assert "late_result" in harness.events.names()


async def test_a_worker_stops_what_it_has_lost(harness: ExecutionHarness) -> None:
    await harness.run(await harness.job())
    await harness.run_until_idle()
    [held] = harness.runner.started
    harness.clock.advance(harness.settings.worker.lease_ms + 1)
    await harness.reconciler.step()

    await harness.worker.step()

    assert harness.runner.stopped == [(held, Result.LOST)]


@pytest.mark.guarantee("S9")
async def test_a_worker_that_froze_after_taking_a_task_does_not_start_it(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await harness.run(await harness.job())
    await harness.worker.step()
    await harness.dispatcher.step()
    take = harness.store.attempts.take

    async def slow(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is called
        taken = await take(*words, **named)
        harness.clock.advance(harness.settings.worker.lease_ms)
        return taken

    with monkeypatch.context() as stood:
        stood.setattr(harness.store.attempts, "take", slow)
        await harness.worker.step()
    await harness.worker.step()

    assert not harness.runner.started
    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.attempts) == (TaskState.PENDING, 0)


@pytest.mark.guarantee("S5")
async def test_at_most_once_fails_when_its_worker_is_gone(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms + 1)

    await harness.reconciler.step()

    failed = await harness.now(run)
    assert (failed.status, failed.error) == (RunStatus.FAILED, "worker_lost: w1 has not been heard of")


@pytest.mark.guarantee("S18")
async def test_a_task_that_kills_three_workers_is_quarantined(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    for number in range(3):
        runner = FakeRunner()
        worker = harness.new_worker(f"victim-{number}", runner)
        await worker.step()
        await harness.dispatcher.step()
        await worker.step()
        assert len(runner.started) == 1
        harness.clock.advance(harness.settings.worker.lease_ms * 2)
        await harness.reconciler.step()
        harness.clock.advance(30_000)

    assert (await harness.now(run)).status is RunStatus.FAILED
    [letter] = await harness.store.dead_letters.page("default")
    assert letter.reason == "worker_lost"


async def test_a_sole_process_does_not_wait_for_the_leases_of_dead_ones(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()

    await harness.reconciler.recover(alive={"a new one"})

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.wait_reason, task.losses) == (TaskState.PENDING, WaitReason.RETRY, 1)


@pytest.mark.req("R-07")
async def test_a_task_dispatched_but_never_started_is_dispatched_again(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.worker.step()
    await harness.dispatcher.step()
    await harness.store.attempts.take("silent", limit=1, lease_ms=10 * MINUTE, now=NOON, begin=False)
    harness.clock.advance(harness.settings.reconciler.dispatch_timeout_ms + 1)

    await harness.reconciler.step()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.attempts, task.routings) == (TaskState.PENDING, 0, 1)


@pytest.mark.req("R-07")
async def test_a_worker_that_lives_but_does_not_end_a_task_in_time_is_overruled(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job(workflow(timeout_ms=60_000)))
    await harness.run_until_idle()
    for _ in range(10):
        harness.clock.advance(10_000)
        await harness.worker.step()

    await harness.reconciler.step()

    [task] = await harness.store.history.tasks([run])
    assert task.state is TaskState.TIMEOUT
    assert (await harness.now(run)).status is RunStatus.FAILED


@pytest.mark.req("R-08")
async def test_tasks_that_are_ready_for_too_long_are_offered_again_and_counted(harness: ExecutionHarness) -> None:
    await harness.run(await harness.job())
    harness.clock.advance(harness.settings.reconciler.pending_ms)

    await harness.reconciler.step()

    assert harness.woken == ["reconciler"]
    assert ("tasks_replayed", {"count": 1, "topic": "reports.make"}) in harness.events.seen


@pytest.mark.req("R-08")
async def test_a_task_that_waits_for_a_retry_is_not_offered(harness: ExecutionHarness) -> None:
    retry = RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0)
    await harness.run(await harness.job(workflow(retry=retry)))
    await harness.run_until_idle()
    harness.runner.end_all(Result.FAILED)
    await harness.worker.step()
    harness.clock.advance(harness.settings.reconciler.pending_ms * 2)

    await harness.reconciler.step()

    assert "tasks_replayed" not in harness.events.names()


# ---- cancelling ----------------------------------------------------------------------------------


@pytest.mark.req("H-26")
@pytest.mark.guarantee("S11")
async def test_a_cancelled_run_is_stopped_as_soon_as_its_worker_looks(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    await harness.store.runs.cancel(run.run_id, reason="enough", now=harness.clock.now())

    harness.worker.check_soon()
    await harness.worker.step()
    await harness.worker.step()

    assert [why for _, why in harness.runner.stopped] == [Result.CANCELLED]
    stopped = await harness.now(run)
    assert (stopped.status, stopped.error) == (RunStatus.CANCELLED, "enough")


# ---- a store that fails --------------------------------------------------------------------------


async def test_results_are_kept_until_the_store_takes_them(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")

    async def away(*_: object) -> frozenset[tuple[TaskId, int]]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(harness.store.attempts, "report", away)
        pauses = [await harness.worker.step() for _ in range(3)]
    assert pauses == [0.05, 0.1, 0.2]

    await harness.worker.step()

    assert (await harness.now(run)).status is RunStatus.COMPLETED


async def test_taken_tasks_start_though_reporting_failed(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    for name in "ab":
        await harness.run(job, name)
    harness.worker = harness.new_worker("w1", harness.runner)
    await harness.worker.step()
    await harness.dispatcher.step()

    async def away(*_: object) -> object:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(harness.store.jobs, "workflow", away)
        harness.workflow_cache._entries.clear()  # noqa: SLF001 - as after a restart
        await harness.worker.step()
    assert not harness.runner.started

    await harness.worker.step()

    assert len(harness.runner.started) == 2


async def test_a_result_that_the_store_cannot_keep_fails_its_task_and_no_other(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    good, bad = await harness.run(job, "a"), await harness.run(job, "b")
    await harness.run_until_idle()
    for held, one in list(harness.runner.started.items()):
        harness.runner.end(held, Result.FAILED if one.run.run_id == bad.run_id else Result.SUCCEEDED, error="poison")
    report = harness.store.attempts.report

    async def refusing(endings: list[TaskCompletion]) -> frozenset[AttemptRef]:
        if any(one.run_id == bad.run_id and one.error == "poison" for one in endings):
            raise UsageError("a value that the database cannot hold")
        return await report(endings)

    monkeypatch.setattr(harness.store.attempts, "report", refusing)
    await harness.worker.step()

    assert (await harness.now(good)).status is RunStatus.COMPLETED
    failed = await harness.now(bad)
    assert (failed.status, failed.error) == (RunStatus.FAILED, "the result cannot be stored: UsageError")
    assert harness.worker.in_hand == 0


async def test_slots_that_are_taken_by_what_does_not_stop_are_announced(harness: ExecutionHarness) -> None:
    harness.runner.overrunning = 2
    await harness.worker.step()
    await harness.worker.step()

    reported = [facts["count"] for name, facts in harness.events.seen if name == "slots_overrun"]
    assert reported == [2]


async def test_a_reconciler_never_takes_its_own_worker_for_lost(harness: ExecutionHarness) -> None:
    harness.reconciler = harness.new_reconciler(own_worker="w1")
    await harness.run(await harness.job())
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms * 100)

    await harness.reconciler.step()

    assert "attempt_ended_by_reconciler" not in harness.events.names()
    await harness.worker.step()
    assert len(harness.runner.started) == 1


async def test_a_worker_that_stops_lets_go_of_what_it_could_not_finish(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job())
    await harness.run_until_idle()

    await harness.worker.drain()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.wait_reason, task.attempts, task.losses) == (TaskState.PENDING, WaitReason.READY, 0, 0)
    assert await harness.store.workers.alive() == []
    assert harness.worker.in_hand == 0


@at_once
async def test_a_retry_wakes_the_dispatcher(harness: ExecutionHarness) -> None:
    job = await harness.job(workflow(retry=RetryPolicy(max_attempts=2)))
    for name, result in (("a", Result.SUCCEEDED), ("b", Result.FAILED)):
        await harness.run(job, name)
        await harness.run_until_idle()
        harness.runner.end_all(result)
        await harness.worker.step()

    assert harness.woken == ["worker"]


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.QUEUE])
@at_once
async def test_a_trigger_beside_a_worker_is_taken_with_the_launch_unless_it_may_have_to_wait(
    harness: ExecutionHarness, overlap: Overlap
) -> None:
    job = await harness.job(overlap=overlap)
    await harness.worker.step()
    store = harness.store
    launcher = Launcher(
        store.runs,
        store.executions,
        store.jobs,
        store.schedules,
        harness.clock,
        CountedIds(),
        write_and_admit=harness.dispatcher.write_and_admit,
    )
    harness.taker.connect(harness.worker)
    for _ in range(2):
        await launcher.trigger(job.schedule_id, actor="ada")
    await harness.worker.step()

    assert len(harness.runner.started) == (2 if overlap is Overlap.ALLOW else 0)
    await harness.run_until_idle()
    assert len(harness.runner.started) == (2 if overlap is Overlap.ALLOW else 1)
