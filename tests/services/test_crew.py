"""From a task whose time has come to a run that is over: dispatcher, worker and reconciler together."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import Overlap, Result, Run, RunId, RunStatus, Source, TaskId
from gnomon.core.runs.admission import Released, Request, Ruled, Ruling, Waiting
from gnomon.core.runs.launch import Launch, wanted_run
from gnomon.core.runs.outcomes import Assignment, Ending
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Delivery, Retry
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.tasks import Held
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds
from support.crew import Crewed, ToldRunner
from support.labour import workflow

MINUTE = 60_000


@pytest.fixture
def crew() -> Crewed:
    return Crewed()


# ---- the ordinary way ----------------------------------------------------------------------------


async def test_a_run_goes_all_the_way(crew: Crewed) -> None:
    run = await crew.run(await crew.job(workflow(input={"n": 1})))
    await crew.go()
    [assignment] = crew.runner.started.values()
    assert (assignment.input, assignment.attempt, assignment.task.fence) == ({"n": 1}, 1, 1)

    crew.runner.end_all(output=b"42")
    await crew.go()

    assert (await crew.now(run)).status is RunStatus.COMPLETED
    assert await crew.store.payload(assignment.task.task_id, "output") == b"42"
    assert "task_succeeded" in crew.events.names()


async def test_what_was_taken_begins_before_what_has_ended_is_written_down(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await crew.job()
    await crew.run(job, "a")
    await crew.go()
    crew.runner.end_all()
    await crew.run(job, "b")
    await crew.dispatcher.step()
    begun: list[RunId] = []
    report = crew.store.report

    async def slowly(endings: Sequence[Ending]) -> frozenset[Held]:
        for _ in range(10):
            await asyncio.sleep(0)
        begun.extend(one.run.run_id for one in crew.runner.started.values())
        return await report(endings)

    monkeypatch.setattr(crew.store, "report", slowly)
    await crew.worker.step()

    assert begun == ["run_b"]


@pytest.mark.parametrize(("others_first", "wait"), [(True, 0.3), (False, 0.0)])
async def test_while_ticks_wait_to_be_decided_dispatching_has_a_quarter_of_the_time(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch, *, others_first: bool, wait: float
) -> None:
    await crew.run(await crew.job())
    waiting = crew.store.waiting

    async def in_a_tenth_of_a_second(now: int, *, limit: int) -> Sequence[Waiting]:
        crew.clock.advance(100)
        return await waiting(now, limit=limit)

    monkeypatch.setattr(crew.store, "waiting", in_a_tenth_of_a_second)
    crew.dispatcher.others_first = lambda: others_first

    assert await crew.dispatcher.step() == pytest.approx(wait)


async def test_no_more_is_taken_than_there_are_slots() -> None:
    crew = Crewed(flags={"worker.slots": 3})
    job = await crew.job()
    for number in range(5):
        await crew.run(job, f"{number}")
    await crew.go()
    assert len(crew.runner.started) == 3

    crew.runner.end(next(iter(crew.runner.started)))
    await crew.go()

    assert len(crew.runner.started) == 3


async def test_what_ended_makes_room_in_the_same_step() -> None:
    crew = Crewed(flags={"worker.slots": 1})
    job = await crew.job()
    runs = [await crew.run(job, name) for name in "ab"]
    await crew.go()
    crew.runner.end_all()

    await crew.worker.step()

    assert [one.run.run_id for one in crew.runner.started.values()] == [runs[1].run_id]
    assert (await crew.now(runs[0])).status is RunStatus.COMPLETED


async def test_the_dispatcher_waits_exactly_until_the_next_task_is_ready(crew: Crewed) -> None:
    job = await crew.job()
    wanted = wanted_run(RunId("run_later"), job, source=Source.API, now=NOON)
    later = replace(wanted, fire_at=NOON + 2345)
    await crew.store.launch([Launch(run=later, first_steps=("main",))], now=NOON)

    assert await crew.dispatcher.step() == 2.345


async def test_with_nothing_to_do_the_dispatcher_looks_again_after_its_poll_time(crew: Crewed) -> None:
    assert await crew.dispatcher.step() == crew.settings.worker.poll_secs


# ---- what cannot be run --------------------------------------------------------------------------


@pytest.mark.req("H-04")
async def test_a_function_that_no_worker_has_is_a_reason_on_the_task_and_runs_once_one_has_it(crew: Crewed) -> None:
    run = await crew.run(await crew.job(workflow(function="unheard/of")))
    await crew.go()
    [task] = await crew.store.tasks([run])
    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.ROUTE)
    assert task.note == "no_workers: no worker has registered the function 'unheard/of'"

    crew.runner.functions = {"unheard/of"}
    crew.worker.enlist_again()
    crew.clock.advance(2000)
    await crew.go()

    assert len(crew.runner.started) == 1


@pytest.mark.req("R-04")
async def test_what_nobody_could_take_begins_as_soon_as_somebody_comes_who_can() -> None:
    crew = Crewed(flags={"execution.batch": 2})
    job = await crew.job(workflow(function="unheard/of"))
    other = await crew.job(workflow("other", function="never"), name="other", workflow_id="other")
    runs = [await crew.run(job if number % 2 else other, f"{number}") for number in range(6)]
    await crew.go()
    before = {task.task_id: task for task in await crew.store.tasks(runs)}
    assert {task.wait_reason for task in before.values()} == {WaitReason.ROUTE}

    crew.runner.functions = {"unheard/of"}
    crew.worker.enlist_again()
    await crew.worker.step()
    crew.dispatcher.try_again()
    await crew.go()

    assert {one.run.run_id for one in crew.runner.started.values()} == {run.run_id for run in runs[1::2]}
    left = await crew.store.tasks(runs[::2])
    assert [before[task.task_id] for task in left] == left, "whoever still waits has lost no try and no time"


@pytest.mark.req("C-08")
async def test_a_run_without_a_workflow_is_tried_a_few_times_and_then_fails_with_the_reason(crew: Crewed) -> None:
    job = minutely()
    await crew.store.add([job], actor="ada", tzdata="")
    run = await crew.run(job)
    for _ in range(3):
        await crew.go()
        crew.clock.advance(10_000)

    failed = await crew.now(run)
    assert (failed.status, failed.error) == (
        RunStatus.FAILED,
        "launch_failed: there is no workflow 'report' of version 1",
    )


async def test_a_worker_that_was_given_what_it_cannot_run_gives_it_back(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.worker.step()
    await crew.dispatcher.step()
    crew.runner.functions = frozenset()

    await crew.worker.step()
    await crew.worker.step()

    [task] = await crew.store.tasks([run])
    assert (task.state, task.wait_reason, task.attempts) == (TaskState.PENDING, WaitReason.ROUTE, 0)


# ---- the gate ------------------------------------------------------------------------------------


class StrictGate:
    """Says what it was told to say."""

    def __init__(self, ruling: Ruling, *, quarantine: str | None = None) -> None:
        self.ruling, self.quarantine = ruling, quarantine
        self.seen: list[Request] = []

    async def admit(self, requests: list[Request]) -> list[Ruled]:
        self.seen += requests
        return [Ruled(self.ruling, "house rule", 5000) for _ in requests]

    async def release(self, finished: Assignment, output: bytes | None) -> Released:
        del finished
        return Released(output=b'"redacted"' if output else output, quarantine=self.quarantine)


async def gated(gate: StrictGate) -> tuple[Crewed, Run]:
    crew = Crewed(gate=gate)  # type: ignore[arg-type]
    run = await crew.run(await crew.job(workflow(input={"n": 1})))
    await crew.go()
    return crew, run


async def test_the_gate_sees_all_that_will_be_done() -> None:
    gate = StrictGate(Ruling.ALLOW)
    await gated(gate)

    [request] = gate.seen
    assert (request.step.function, request.input, len(request.digest)) == ("reports.make", {"n": 1}, 64)


async def test_what_the_gate_denies_never_runs() -> None:
    crew, run = await gated(StrictGate(Ruling.DENY))

    [task] = await crew.store.tasks([run])
    assert (task.state, task.note) == (TaskState.DENIED, "safety_denied: house rule")
    assert (await crew.now(run)).status is RunStatus.FAILED
    assert not crew.runner.started


async def test_what_needs_an_approval_waits_for_it() -> None:
    crew, run = await gated(StrictGate(Ruling.ASK))

    [task] = await crew.store.tasks([run])
    assert (task.state, task.note) == (TaskState.APPROVAL_REQUIRED, "house rule")


async def test_output_passes_the_gate_on_the_way_out() -> None:
    crew, run = await gated(StrictGate(Ruling.ALLOW))
    crew.runner.end_all(output=b'"all of it"')
    await crew.go()

    [task] = await crew.store.tasks([run])
    assert await crew.store.payload(task.task_id, "output") == b'"redacted"'


async def test_nothing_is_lost_if_the_gate_is_away_when_something_has_finished() -> None:
    class Away(StrictGate):
        away = True

        async def release(self, finished: Assignment, output: bytes | None) -> Released:
            if self.away:
                raise StoreUnavailable("the gate is away")
            return await super().release(finished, output)

    gate = Away(Ruling.ALLOW)
    crew, run = await gated(gate)
    crew.runner.end_all(output=b"1")

    assert await crew.worker.step() == 0.05
    gate.away = False
    await crew.worker.step()

    assert (await crew.now(run)).status is RunStatus.COMPLETED


async def test_output_that_is_held_back_fails_the_run() -> None:
    crew, run = await gated(StrictGate(Ruling.ALLOW, quarantine="a password"))
    crew.runner.end_all(output=b'"all of it"')
    await crew.go()

    [task] = await crew.store.tasks([run])
    assert task.state is TaskState.OUTPUT_QUARANTINED
    assert (await crew.now(run)).error == "a password"


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.req("H-08")
async def test_a_failure_is_tried_again_when_its_delay_is_over() -> None:
    crew = Crewed(flags={"worker.poll_secs": 60})
    retry = Retry(max_attempts=3, initial_delay_ms=10_000, multiplier=2, jitter=0)
    run = await crew.run(await crew.job(workflow(retry=retry)))
    waits = []
    for _ in range(3):
        await crew.go()
        crew.runner.end_all(Result.FAILED, error="no")
        await crew.worker.step()
        waits.append(await crew.dispatcher.step())
        crew.clock.advance(round(waits[-1] * 1000))

    assert waits == [10.0, 20.0, 60.0]
    assert (await crew.now(run)).status is RunStatus.FAILED


@pytest.mark.req("H-09")
async def test_what_fails_for_good_leaves_its_history(crew: Crewed) -> None:
    retry = Retry(max_attempts=2, initial_delay_ms=1000, jitter=0)
    run = await crew.run(await crew.job(workflow(retry=retry, dead_letter=True)))
    for number in range(2):
        await crew.go()
        crew.runner.end_all(Result.FAILED, error=f"failure {number}")
        await crew.worker.step()
        crew.clock.advance(1000)

    [letter] = await crew.store.list_dead_letters("default")
    assert (letter.attempts, letter.last_error) == (2, "failure 1")
    attempts = await crew.store.attempts([letter.task_id])
    assert [(one.number, one.result, one.error) for one in attempts] == [
        (1, Result.FAILED, "failure 0"),
        (2, Result.FAILED, "failure 1"),
    ]
    assert (await crew.now(run)).status is RunStatus.FAILED
    assert "dead_letter" in crew.events.names()


# ---- being alive ---------------------------------------------------------------------------------


async def test_a_worker_shows_up_three_times_in_a_lease(crew: Crewed) -> None:
    await crew.worker.step()
    assert await crew.worker.step() == crew.settings.worker.lease_ms / 3000

    await crew.run(await crew.job())
    await crew.go()
    for _ in range(10):
        crew.clock.advance(10_000)
        await crew.worker.step()
    await crew.reconciler.step()

    assert len(crew.runner.started) == 1
    assert "attempt_ended_by_reconciler" not in crew.events.names()


@pytest.mark.req("R-07")
@pytest.mark.guarantee("S4", "S9")
async def test_the_task_of_a_worker_that_is_gone_is_run_by_another(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.go()
    crew.clock.advance(crew.settings.worker.lease_ms + 1)

    await crew.reconciler.step()
    crew.clock.advance(1000)
    other_runner = ToldRunner()
    other = crew.another_worker("w2", other_runner)
    await other.step()
    await crew.dispatcher.step()
    await other.step()

    [again] = other_runner.started.values()
    assert (again.run.run_id, again.attempt, again.task.fence) == (run.run_id, 2, 2)
    [first, _] = await crew.store.attempts([again.task.task_id])
    assert first.result is Result.LOST


@pytest.mark.guarantee("S7")
async def test_the_result_of_a_lost_attempt_changes_nothing(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.go()
    crew.clock.advance(crew.settings.worker.lease_ms + 1)
    await crew.reconciler.step()

    crew.runner.end_all(output=b'"late"')
    await crew.worker.step()

    [task] = await crew.store.tasks([run])
    assert (task.state, await crew.store.payload(task.task_id, "output")) == (TaskState.PENDING, None)
    assert "late_result" in crew.events.names()


async def test_a_worker_stops_what_it_has_lost(crew: Crewed) -> None:
    await crew.run(await crew.job())
    await crew.go()
    [held] = crew.runner.started
    crew.clock.advance(crew.settings.worker.lease_ms + 1)
    await crew.reconciler.step()

    await crew.worker.step()

    assert crew.runner.stopped == [(held, Result.LOST)]


@pytest.mark.guarantee("S9")
async def test_a_worker_that_stood_still_after_taking_something_does_not_begin_it(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await crew.run(await crew.job())
    await crew.worker.step()
    await crew.dispatcher.step()
    take = crew.store.take

    async def slow(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is called
        taken = await take(*words, **named)
        crew.clock.advance(crew.settings.worker.lease_ms)
        return taken

    with monkeypatch.context() as stood:
        stood.setattr(crew.store, "take", slow)
        await crew.worker.step()
    await crew.worker.step()

    assert not crew.runner.started
    [task] = await crew.store.tasks([run])
    assert (task.state, task.attempts) == (TaskState.PENDING, 0)


@pytest.mark.guarantee("S5")
async def test_at_most_once_fails_when_its_worker_is_gone(crew: Crewed) -> None:
    run = await crew.run(await crew.job(workflow(delivery=Delivery.AT_MOST_ONCE)))
    await crew.go()
    crew.clock.advance(crew.settings.worker.lease_ms + 1)

    await crew.reconciler.step()

    failed = await crew.now(run)
    assert (failed.status, failed.error) == (RunStatus.FAILED, "worker_lost: w1 has not been heard of")


@pytest.mark.guarantee("S18")
async def test_what_takes_three_workers_down_is_set_aside(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    for number in range(3):
        runner = ToldRunner()
        worker = crew.another_worker(f"victim-{number}", runner)
        await worker.step()
        await crew.dispatcher.step()
        await worker.step()
        assert len(runner.started) == 1
        crew.clock.advance(crew.settings.worker.lease_ms * 2)
        await crew.reconciler.step()
        crew.clock.advance(30_000)

    assert (await crew.now(run)).status is RunStatus.FAILED
    [letter] = await crew.store.list_dead_letters("default")
    assert letter.reason == "worker_lost"


async def test_who_knows_that_others_are_dead_does_not_wait_for_their_leases(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.go()

    await crew.reconciler.recover(alive={"a new one"})

    [task] = await crew.store.tasks([run])
    assert (task.state, task.wait_reason, task.losses) == (TaskState.PENDING, WaitReason.RETRY, 1)


@pytest.mark.req("R-07")
async def test_what_was_handed_out_and_never_started_is_handed_out_again(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.worker.step()
    await crew.dispatcher.step()
    await crew.store.take("silent", limit=1, lease_ms=10 * MINUTE, now=NOON, begin=False)
    crew.clock.advance(crew.settings.reconciler.dispatch_timeout_ms + 1)

    await crew.reconciler.step()

    [task] = await crew.store.tasks([run])
    assert (task.state, task.attempts, task.routings) == (TaskState.PENDING, 0, 1)


@pytest.mark.req("R-07")
async def test_a_worker_that_lives_but_does_not_end_a_task_in_time_is_overruled(crew: Crewed) -> None:
    run = await crew.run(await crew.job(workflow(timeout_ms=60_000)))
    await crew.go()
    for _ in range(10):
        crew.clock.advance(10_000)
        await crew.worker.step()

    await crew.reconciler.step()

    [task] = await crew.store.tasks([run])
    assert task.state is TaskState.TIMEOUT
    assert (await crew.now(run)).status is RunStatus.FAILED


@pytest.mark.req("R-08")
async def test_tasks_that_are_ready_for_too_long_are_offered_again_and_counted(crew: Crewed) -> None:
    woken: list[bool] = []
    crew.reconciler.on_ready = lambda: woken.append(True)
    await crew.run(await crew.job())
    crew.clock.advance(crew.settings.reconciler.pending_ms)

    await crew.reconciler.step()

    assert woken
    assert ("tasks_replayed", {"count": 1}) in crew.events.seen


@pytest.mark.req("R-08")
async def test_what_waits_for_a_retry_is_not_offered_again(crew: Crewed) -> None:
    retry = Retry(max_attempts=3, initial_delay_ms=1, jitter=0)
    await crew.run(await crew.job(workflow(retry=retry)))
    await crew.go()
    crew.runner.end_all(Result.FAILED)
    await crew.worker.step()
    crew.clock.advance(crew.settings.reconciler.pending_ms * 2)

    await crew.reconciler.step()

    assert "tasks_replayed" not in crew.events.names()


# ---- cancelling ----------------------------------------------------------------------------------


@pytest.mark.req("H-26")
@pytest.mark.guarantee("S11")
async def test_a_cancelled_run_is_stopped_as_soon_as_its_worker_looks(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.go()
    await crew.store.cancel(run.run_id, reason="enough", now=crew.clock.now())

    crew.worker.look()
    await crew.worker.step()
    await crew.worker.step()

    assert [why for _, why in crew.runner.stopped] == [Result.CANCELLED]
    stopped = await crew.now(run)
    assert (stopped.status, stopped.error) == (RunStatus.CANCELLED, "enough")


# ---- a store that fails --------------------------------------------------------------------------


async def test_results_are_kept_until_the_store_takes_them(crew: Crewed, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await crew.run(await crew.job())
    await crew.go()
    crew.runner.end_all(output=b"1")

    async def away(*_: object) -> frozenset[tuple[TaskId, int]]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(crew.store, "report", away)
        pauses = [await crew.worker.step() for _ in range(3)]
    assert pauses == [0.05, 0.1, 0.2]

    await crew.worker.step()

    assert (await crew.now(run)).status is RunStatus.COMPLETED


async def test_what_was_taken_is_begun_though_reporting_failed(crew: Crewed, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await crew.job()
    for name in "ab":
        await crew.run(job, name)
    crew.worker = crew.another_worker("w1", crew.runner)
    await crew.worker.step()
    await crew.dispatcher.step()

    async def away(*_: object) -> object:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(crew.store, "workflow", away)
        crew.shelf._kept.clear()  # noqa: SLF001 - as after a restart
        await crew.worker.step()
    assert not crew.runner.started

    await crew.worker.step()

    assert len(crew.runner.started) == 2


async def test_a_result_that_the_store_cannot_keep_fails_its_task_and_no_other(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await crew.job()
    good, bad = await crew.run(job, "a"), await crew.run(job, "b")
    await crew.go()
    for held, one in list(crew.runner.started.items()):
        crew.runner.end(held, Result.FAILED if one.run.run_id == bad.run_id else Result.SUCCEEDED, error="poison")
    report = crew.store.report

    async def refusing(endings: list[Ending]) -> frozenset[Held]:
        if any(one.run_id == bad.run_id and one.error == "poison" for one in endings):
            raise UsageError("a value that the database cannot hold")
        return await report(endings)

    monkeypatch.setattr(crew.store, "report", refusing)
    await crew.worker.step()

    assert (await crew.now(good)).status is RunStatus.COMPLETED
    failed = await crew.now(bad)
    assert (failed.status, failed.error) == (RunStatus.FAILED, "what came of it cannot be kept: UsageError")
    assert crew.worker.in_hand == 0


async def test_slots_that_are_taken_by_what_does_not_stop_are_announced(crew: Crewed) -> None:
    crew.runner.overrunning = 2
    await crew.worker.step()
    await crew.worker.step()

    told = [facts["count"] for name, facts in crew.events.seen if name == "slots_overrun"]
    assert told == [2]


async def test_a_reconciler_never_takes_its_own_worker_for_lost(crew: Crewed) -> None:
    crew.reconciler.own = "w1"
    await crew.run(await crew.job())
    await crew.go()
    crew.clock.advance(crew.settings.worker.lease_ms * 100)

    await crew.reconciler.step()

    assert "attempt_ended_by_reconciler" not in crew.events.names()
    await crew.worker.step()
    assert len(crew.runner.started) == 1


async def test_a_worker_that_stops_lets_go_of_what_it_could_not_finish(crew: Crewed) -> None:
    run = await crew.run(await crew.job())
    await crew.go()

    await crew.worker.drain()

    [task] = await crew.store.tasks([run])
    assert (task.state, task.wait_reason, task.attempts, task.losses) == (TaskState.PENDING, WaitReason.READY, 0, 0)
    assert await crew.store.workers() == []
    assert crew.worker.in_hand == 0


async def test_what_is_to_be_tried_again_is_announced_to_whoever_waits_for_it(crew: Crewed) -> None:
    woken: list[bool] = []
    crew.worker.on_ready = lambda: woken.append(True)
    job = await crew.job(workflow(retry=Retry(max_attempts=2)))
    for name, result in (("a", Result.SUCCEEDED), ("b", Result.FAILED)):
        await crew.run(job, name)
        await crew.go()
        crew.runner.end_all(result)
        await crew.worker.step()

    assert woken == [True]


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.QUEUE])
async def test_what_is_triggered_beside_a_worker_is_taken_with_the_launch_unless_it_may_have_to_wait(
    crew: Crewed, overlap: Overlap
) -> None:
    job = await crew.job(overlap=overlap)
    await crew.worker.step()
    launcher = Launcher(crew.store, crew.store, crew.store, crew.store, crew.clock, CountedIds())
    launcher.hand_over = crew.dispatcher.hand_over
    crew.dispatcher.meanwhile = crew.worker.take_along
    for _ in range(2):
        await launcher.trigger(job.schedule_id, actor="ada")
    await crew.worker.step()

    assert len(crew.runner.started) == (2 if overlap is Overlap.ALLOW else 0)
    await crew.go()
    assert len(crew.runner.started) == (2 if overlap is Overlap.ALLOW else 1)
