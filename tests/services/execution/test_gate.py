"""A gate that raises, answers nonsense, hangs or takes its time delays its own tasks, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.gate import OpenGate
from gnomon.core.model import Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import AttemptRef
from gnomon.services.execution.gate_client import GateCalls, call_in_a_moment
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds, VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.gates import (
    ALLOWED,
    BROKEN,
    NONSENSE,
    RELEASE_NONSENSE,
    CountingGate,
    FaultTable,
    FaultyGate,
    HangingForMany,
    LateGate,
    SlowGate,
    TimedGate,
    hang,
    hang_on,
    many_hung,
)
from support.task_steps import workflow

#: The time limit of a call, and longer than any request waits for one to be free.
LIMIT_MS = 5_000


async def run_of(harness: ExecutionHarness, name: str, *, number: int = 0, definition: Workflow | None = None) -> Run:
    """A new run of the workflow of that name."""
    if await harness.store.schedules.find("default", name) is None:
        await harness.job(definition or workflow(name), name=name, workflow_id=name)
    job = await harness.store.schedules.find("default", name)
    assert job is not None
    return await harness.run(job, f"{name}{number}")


async def task_of(harness: ExecutionHarness, run: Run) -> Task:
    [task] = await harness.store.history.tasks([run])
    return task


def begun(harness: ExecutionHarness) -> list[str]:
    """The workflows of what runs."""
    return sorted(one.workflow.workflow_id for one in harness.runner.started.values())


async def work_for(harness: ExecutionHarness, ms: int, *, every: int = 100) -> None:
    """Dispatcher and worker do what there is to do, for so long."""
    for _ in range(0, ms, every):
        await harness.run_until_idle()
        harness.clock.advance(every)
    await harness.run_until_idle()


def faults(*tables: FaultTable) -> pytest.MarkDecorator:
    cases = {name: case for table in tables for name, case in table.items()}
    return pytest.mark.parametrize(("fault", "said"), cases.values(), ids=cases.keys())


# ---- the input side ------------------------------------------------------------------------------


@faults(BROKEN, NONSENSE)
async def test_a_gate_without_an_answer_delays_only_its_own_task_and_says_so(
    fault: Callable[[], Any], said: str
) -> None:
    gate = FaultyGate(fault)
    harness = ExecutionHarness(gate=gate)
    bad, _ = await run_of(harness, "bad"), await run_of(harness, "good")

    await harness.run_until_idle()
    assert begun(harness) == ["good"]
    await work_for(harness, LIMIT_MS, every=LIMIT_MS)

    task = await task_of(harness, bad)
    assert (task.state, task.wait_reason, task.routings) == (TaskState.PENDING, WaitReason.POLICY, 0)
    assert said in (task.note or "")
    assert len(task.note or "") < 600
    assert (task.note or "").isprintable()
    assert "task_not_scheduled" in harness.events.names()

    gate.repaired = True
    await work_for(harness, 3_000)
    assert begun(harness) == ["bad", "good"]
    assert (await task_of(harness, bad)).fence == 1


@faults({name: case for name, case in BROKEN.items() if "hangs" not in name}, NONSENSE)
async def test_a_gate_that_breaks_its_promise_to_answer_at_once_is_asked_again(
    fault: Callable[[], Any], said: str
) -> None:
    class Promising(CountingGate):
        def admit_now(self, request: AdmissionRequest) -> GateDecision:
            del request
            return fault()  # type: ignore[no-any-return]

        def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease:
            del finished, output
            return fault()  # type: ignore[no-any-return]

    del said
    gate = Promising()
    harness = ExecutionHarness(gate=gate)
    harness.share_process()
    run = await run_of(harness, "bad")
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    await harness.worker.step()

    assert (await harness.now(run)).status is RunStatus.COMPLETED
    assert len(gate.asked) == 1


async def test_a_decision_that_a_gate_returns_again_is_still_checked_for_each_task() -> None:
    class Repeating(CountingGate):
        answer = ALLOWED

        def admit_now(self, request: AdmissionRequest) -> GateDecision:
            del request
            return self.answer

        async def admit(self, request: AdmissionRequest) -> GateDecision:
            await hang()
            return await super().admit(request)

    gate = Repeating()
    harness = ExecutionHarness(gate=gate)
    await run_of(harness, "first")
    await harness.run_until_idle()
    gate.answer = GateDecision(
        GateVerdict.ALLOW, task_id=(await task_of(harness, await run_of(harness, "own"))).task_id
    )
    await run_of(harness, "other")
    await harness.run_until_idle()
    gate.answer = GateDecision(GateVerdict.ALLOW, after_ms=-1)
    for number in range(2):
        await run_of(harness, "invalid", number=number)
    await harness.run_until_idle()

    assert begun(harness) == ["first", "own"]


async def test_the_dispatcher_waits_for_no_answer_and_gives_up_in_time() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate, flags={"worker.poll_secs": 60})
    run = await run_of(harness, "report")
    await harness.worker.step()
    assert await harness.dispatcher.step() == 0
    assert await harness.dispatcher.step() == LIMIT_MS / 1000

    harness.clock.advance(LIMIT_MS - 1)
    assert await harness.dispatcher.step() == pytest.approx(0.001)
    assert (await task_of(harness, run)).wait_reason is WaitReason.READY
    harness.clock.advance(1)
    await harness.dispatcher.step()

    assert (await task_of(harness, run)).note == "gate_failed: the gate has not answered within 5 s"
    await asyncio.sleep(0)
    assert (gate.calls, gate.cancelled) == (0, 1)
    assert 1 <= await harness.dispatcher.step() <= 1.5


async def test_an_answer_wakes_the_dispatcher() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate)
    await run_of(harness, "report")
    await harness.run_until_idle()
    assert "dispatcher" not in harness.woken

    gate.opened.set()
    await asyncio.sleep(0.01)
    assert "dispatcher" in harness.woken
    await harness.run_until_idle()
    assert begun(harness) == ["report"]


async def test_a_task_whose_time_comes_while_the_gate_hangs_is_on_time() -> None:
    harness = ExecutionHarness(gate=FaultyGate(hang), flags={"worker.poll_secs": 60})
    await run_of(harness, "bad")
    later = Workflow(workflow_id="good", version=1, steps=(Step(name="main", function="reports.make", delay_ms=2_000),))
    await run_of(harness, "good", definition=later)
    await harness.run_until_idle()
    assert begun(harness) == []

    assert await harness.dispatcher.step() == 2.0
    harness.clock.advance(2_000)
    await harness.run_until_idle()
    assert begun(harness) == ["good"]


async def test_the_gate_is_asked_again_later_and_later() -> None:
    gate = FaultyGate(lambda: None)
    harness = ExecutionHarness(gate=gate)
    run = await run_of(harness, "bad")
    delays = []
    for _ in range(8):
        await harness.run_until_idle()
        task = await task_of(harness, run)
        delays.append(task.available_at - harness.clock.now())
        harness.clock.advance(delays[-1])

    assert [round(one / 1000) for one in delays[:3]] == pytest.approx([1, 2, 4], abs=1)
    assert delays == sorted(delays)
    assert delays[-1] == 30_000
    assert gate.asked == 8


async def test_tasks_of_one_workflow_do_not_hide_those_of_others_while_the_gate_hangs() -> None:
    gate = SlowGate("bad")
    harness = ExecutionHarness(gate=gate, flags={"execution.batch": 20})
    bad = [await run_of(harness, "bad", number=number) for number in range(200)]
    harness.clock.advance(1)
    await run_of(harness, "good")

    await work_for(harness, 1_500)

    assert begun(harness) == ["good"]
    assert gate.most_calls == 16
    notes = [(await task_of(harness, run)).note for run in bad]
    assert notes.count("gate_failed: the gate has not answered 16 earlier requests of this workflow") >= 100
    gate.opened.set()
    await work_for(harness, 40_000, every=500)
    assert len(harness.runner.started) == 201


async def test_a_busy_gate_is_asked_without_a_pause_until_all_are_admitted() -> None:
    clock = VirtualClock(NOON)
    gate = TimedGate(clock, 0.5)
    harness = ExecutionHarness(gate=gate, clock=clock)
    runs = [await run_of(harness, "slow", number=number) for number in range(160)]

    # Sixteen at once take five seconds if the gate is never idle.
    await work_for(harness, 6_500, every=50)

    assert len(harness.runner.started) == 160
    assert len(gate.asked) == 160
    assert {(await task_of(harness, run)).routings for run in runs} == {0}
    notes = {facts["reason"] for name, facts in harness.events.seen if name == "task_not_scheduled"}
    assert notes == {"the gate is busy with earlier requests of this workflow"}


async def test_a_gate_that_stalls_while_it_is_busy_counts_as_failed() -> None:
    gate = SlowGate("slow")
    gate.opened.set()
    harness = ExecutionHarness(gate=gate)
    await run_of(harness, "slow", number=1000)
    await harness.run_until_idle()
    gate.opened.clear()
    runs = [await run_of(harness, "slow", number=number) for number in range(40)]

    await work_for(harness, 1_500)

    notes = [(await task_of(harness, run)).note for run in runs]
    assert notes.count("gate_failed: the gate has not answered 16 earlier requests of this workflow") == 24


async def test_calls_are_bounded_whatever_they_are_about() -> None:
    gate = SlowGate("bad")
    harness = ExecutionHarness(gate=gate)
    for number in range(100):
        await run_of(harness, f"bad{number % 10}", number=number)
    await work_for(harness, LIMIT_MS + 1_000)

    # Those that all workflows share, and at most one for each workflow that found none of them free.
    assert 64 <= gate.most_calls < 64 + 10
    gate.opened.set()
    await work_for(harness, 40_000, every=500)
    assert len(harness.runner.started) == 100


@many_hung
async def test_workflows_for_which_the_gate_hangs_hold_up_no_healthy_one(workflows: int, *, cancellable: bool) -> None:
    clock = VirtualClock(NOON)
    gate = HangingForMany(clock, 0.5, cancellable=cancellable).on("admit")
    harness = ExecutionHarness(gate=gate, clock=clock)
    for number in range(20 * workflows):
        await run_of(harness, f"hung{number % workflows}", number=number)
    await work_for(harness, 200)
    # All calls that groups share are taken, and no call was given up yet.
    first = [await run_of(harness, "slow", number=number) for number in range(4)]
    await work_for(harness, 3_000)
    assert begun(harness) == ["slow"] * 4

    # Calls were given up, and the first ones of the next requests too.
    await work_for(harness, 20_000, every=500)
    later = [await run_of(harness, "slow", number=number) for number in range(4, 8)]
    await work_for(harness, 3_000)

    assert begun(harness) == ["slow"] * 8
    assert not [run for run in (*first, *later) if "gate_failed" in ((await task_of(harness, run)).note or "")]
    failed = {facts["job"] for name, facts in harness.events.seen if name == "task_not_scheduled"}
    assert not [reason for reason in reasons_of(harness, "slow") if "gate_failed" in reason]
    assert failed >= {f"hung{number}" for number in range(workflows)}
    # The hung workflows have their calls, the ones under way and those that ignore their cancellation.
    assert gate.most_hung <= 64 + workflows if cancellable else gate.most_hung <= 256 + workflows
    harness.dispatcher.close()


def reasons_of(harness: ExecutionHarness, job: str) -> list[str]:
    """Why tasks of the job were not scheduled."""
    reported = [facts for name, facts in harness.events.seen if name == "task_not_scheduled"]
    return [str(facts["reason"]) for facts in reported if facts["job"] == job]


@many_hung
async def test_workflows_for_which_the_gate_hangs_leave_no_output_of_a_healthy_one_unchecked(
    workflows: int, *, cancellable: bool
) -> None:
    clock = VirtualClock(NOON)
    gate = HangingForMany(clock, 2, cancellable=cancellable).on("release")
    harness = ExecutionHarness(gate=gate, clock=clock, flags={"worker.slots": 2_000})
    for number in range(20 * workflows):
        await run_of(harness, f"hung{number % workflows}", number=number)
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    await harness.worker.step()
    # More than the healthy workflow can have checked before calls for the others are given up.
    slow = [await run_of(harness, "slow", number=number) for number in range(8)]
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")

    await work_for(harness, 30_000, every=500)

    assert {(await harness.now(run)).status for run in slow} == {RunStatus.COMPLETED}
    unchecked = {facts["run"] for name, facts in harness.events.seen if name == "output_unchecked"}
    assert len(unchecked) == 20 * workflows
    assert not unchecked & {run.run_id for run in slow}


@many_hung
async def test_a_worker_stops_in_time_though_the_gate_hangs_for_many_workflows(
    workflows: int, *, cancellable: bool
) -> None:
    clock = VirtualClock(NOON)
    gate = HangingForMany(clock, 2, cancellable=cancellable).on("release")
    harness = ExecutionHarness(gate=gate, clock=clock, flags={"worker.slots": 2_000})
    runs = [await run_of(harness, f"hung{number % workflows}", number=number) for number in range(20 * workflows)]
    # They take sixteen seconds at one call at a time.
    runs += [await run_of(harness, "slow", number=number) for number in range(8)]
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    began = clock.elapsed()

    await harness.worker.drain()

    settings = harness.settings.worker
    most_seconds = (settings.drain_ms + settings.kill_grace_ms + 2 * LIMIT_MS) / 1000
    assert clock.elapsed() - began < most_seconds + 1
    assert {(await harness.now(run)).status for run in runs} == {RunStatus.COMPLETED}


async def test_a_stop_waits_for_a_slow_gate_no_longer_than_it_may() -> None:
    class SlowRelease(TimedGate):
        def admit_now(self, request: AdmissionRequest) -> GateDecision:
            del request
            return ALLOWED

    clock = VirtualClock(NOON)
    harness = ExecutionHarness(gate=SlowRelease(clock, 4), clock=clock, flags={"worker.slots": 200})
    # Sixteen at once take fifty seconds.
    runs = [await run_of(harness, "slow", number=number) for number in range(200)]
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    began = clock.elapsed()

    await harness.worker.drain()

    assert clock.elapsed() - began == pytest.approx(10 + 5 + 2 * LIMIT_MS / 1000, abs=1)
    assert {(await harness.now(run)).status for run in runs} == {RunStatus.COMPLETED}
    reported = [str(facts["reason"]) for name, facts in harness.events.seen if name == "output_unchecked"]
    assert 0 < len(reported) <= 200 - 6 * 16
    assert set(reported) == {
        "the gate had no free call before the process stopped",
        "the gate has not answered in time for the stop",
    }


class Answered(GateCalls[int, str]):
    """Calls to a function, with the answers as words."""

    def __init__(self, clock: VirtualClock, call: Callable[[int], Awaitable[object]]) -> None:
        super().__init__(
            clock,
            call,
            lambda _asked, answer: str(answer),
            lambda _asked, reason: f"failed: {reason}",
            timeout_seconds=5,
            queue_seconds=1,
            on_answer=lambda: None,
            put_off=lambda _asked, reason, seconds: f"later: {reason}, {seconds:g} s",
        )

    async def answers(self) -> dict[int, str]:
        """Settle the answers so far, and return them."""
        found = dict(await self.collect())
        self.settle([ref_of(number) for number in found])
        return found


def ref_of(number: int) -> AttemptRef:
    return TaskId(f"task_{number}"), 1


async def test_every_tenant_finds_a_free_call_though_another_has_all_that_it_may() -> None:
    clock = VirtualClock(NOON)
    asked: list[int] = []

    async def call(number: int) -> str:
        asked.append(number)
        if number < 2_000:
            await hang_on()
        return "fine"

    calls = Answered(clock, call)
    for number in range(2_000):
        calls.ask(ref_of(number), ("greedy", f"workflow{number}"), number)
    for _ in range(100):
        clock.advance(1_000)
        await calls.answers()
    # Half of all, and no more of them when calls are given up that ignore it.
    assert len(asked) == 512

    calls.ask(ref_of(2_000), ("greedy", "new"), 2_000)
    calls.ask(ref_of(2_001), ("other", "new"), 2_001)
    assert await calls.answers() == {2_001: "fine"}
    clock.advance(1_000)
    assert await calls.answers() == {2_000: "later: the gate is busy with requests of other workflows, 1 s"}
    calls.close()


async def test_a_suspect_workflow_has_one_call_until_it_is_answered() -> None:
    clock = VirtualClock(NOON)
    asked: list[int] = []
    opened = asyncio.Event()

    async def call(number: int) -> str:
        asked.append(number)
        await opened.wait()
        return "fine"

    calls, group = Answered(clock, call), ("default", "report")
    for number in range(16):
        calls.ask(ref_of(number), group, number)
    await calls.answers()
    clock.advance(5_000)
    assert set((await calls.answers()).values()) == {"failed: the gate has not answered within 5 s"}
    asked.clear()

    for number in range(20, 24):
        calls.ask(ref_of(number), group, number)
    await calls.answers()
    assert asked == [20]
    clock.advance(1_000)
    assert await calls.answers() == dict.fromkeys(
        (21, 22, 23), "failed: the gate has not answered earlier requests of this workflow"
    )

    opened.set()
    assert await calls.answers() == {20: "fine"}
    opened.clear()
    asked.clear()
    for number in range(30, 50):
        calls.ask(ref_of(number), group, number)
    await calls.answers()
    assert asked == list(range(30, 46))
    calls.close()


async def test_a_late_answer_of_a_call_that_was_given_up_is_not_that_of_the_next_one() -> None:
    clock = VirtualClock(NOON)
    first_may_end = asyncio.Event()
    asked: list[int] = []

    async def call(number: int) -> str:
        asked.append(number)
        if len(asked) > 1:
            await hang()
        with suppress(asyncio.CancelledError):
            await hang()
        await first_may_end.wait()
        return "too late"

    calls, group = Answered(clock, call), ("default", "report")
    calls.ask(ref_of(1), group, 1)
    await calls.answers()
    clock.advance(5_000)
    assert await calls.answers() == {1: "failed: the gate has not answered within 5 s"}

    calls.ask(ref_of(1), group, 1)
    assert await calls.answers() == {}
    assert asked == [1, 1]
    first_may_end.set()
    assert await calls.answers() == {}
    clock.advance(5_000)
    assert await calls.answers() == {1: "failed: the gate has not answered within 5 s"}


async def test_calls_that_cannot_be_cancelled_count_until_they_end() -> None:
    fault, _ = BROKEN["hangs and cannot be cancelled"]
    gate = FaultyGate(fault)
    harness = ExecutionHarness(gate=gate)
    for number in range(40):
        await run_of(harness, "bad", number=number)
    await work_for(harness, 30_000)

    # Twice as many would be under way if those that were given up were forgotten.
    assert gate.asked == 16
    await run_of(harness, "good")
    await harness.run_until_idle()
    assert begun(harness) == ["good"]


async def test_a_decision_is_not_lost_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = CountingGate()
    harness = ExecutionHarness(gate=gate)
    await run_of(harness, "report")
    await harness.worker.step()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(harness.store.tasks, "admit", away)
        for _ in range(3):
            assert await harness.dispatcher.step() > 0
    await harness.run_until_idle()

    assert begun(harness) == ["report"]
    assert len(gate.asked) == 1


@pytest.mark.parametrize("decision", [ALLOWED, GateDecision(GateVerdict.DENY, "no"), GateDecision(GateVerdict.LATER)])
async def test_a_decision_changes_nothing_about_a_task_that_was_cancelled_before(decision: GateDecision) -> None:
    gate = SlowGate()
    gate.decision = decision
    harness = ExecutionHarness(gate=gate)
    run = await run_of(harness, "report")
    await harness.run_until_idle()
    await harness.store.runs.cancel(run.run_id, reason="enough", now=harness.clock.now(), actor="ada")
    before = await task_of(harness, run)
    assert before.state is TaskState.CANCELLED

    gate.opened.set()
    await work_for(harness, 1_000)

    assert await task_of(harness, run) == before
    assert not harness.runner.started


@pytest.mark.guarantee("S2")
@pytest.mark.parametrize("decision", [ALLOWED, GateDecision(GateVerdict.DENY, "no"), GateDecision(GateVerdict.LATER)])
async def test_a_decision_changes_nothing_about_a_task_that_another_dispatcher_has_admitted(
    decision: GateDecision,
) -> None:
    gate, other_gate = SlowGate(), SlowGate()
    gate.decision = decision
    harness = ExecutionHarness(gate=gate)
    other = ExecutionHarness(gate=other_gate, store=harness.store, clock=harness.clock)
    run = await run_of(harness, "report")
    await harness.run_until_idle()
    await other.run_until_idle()
    other_gate.opened.set()
    await other.run_until_idle()
    await other.run_until_idle()
    before = await task_of(harness, run)
    assert before.state is TaskState.RUNNING

    gate.opened.set()
    await work_for(harness, 1_000)

    assert await task_of(harness, run) == before
    assert (len(other.runner.started), len(harness.runner.started)) == (1, 0)


async def test_an_answer_to_an_earlier_attempt_is_none_to_the_next() -> None:
    gate, other = SlowGate(), ExecutionHarness()
    harness = ExecutionHarness(gate=gate, store=other.store, clock=other.clock)
    gate.decision = GateDecision(GateVerdict.DENY, "no")
    run = await run_of(harness, "report")
    await harness.run_until_idle()
    await other.run_until_idle()
    other.runner.end_all(Result.INTERRUPTED, error="the worker stops")
    await other.worker.step()
    task = await task_of(harness, run)
    assert (task.state, task.fence) == (TaskState.PENDING, 1)

    gate.opened.set()
    await asyncio.sleep(0.01)
    gate.opened.clear()
    await harness.dispatcher.step()
    assert (await task_of(harness, run)).state is TaskState.PENDING
    assert len(gate.asked) == 2


async def test_a_gate_that_wants_to_be_asked_again_at_once_keeps_nobody_busy() -> None:
    class Impatient(CountingGate):
        async def _admit(self, request: AdmissionRequest) -> GateDecision:
            del request
            return GateDecision(GateVerdict.LATER, "in a moment", after_ms=0)

    gate = Impatient()
    harness = ExecutionHarness(gate=gate)
    await run_of(harness, "report")
    await work_for(harness, 1_000, every=10)

    assert 5 <= len(gate.asked) <= 11


async def test_a_gate_that_throttles_lets_all_through_in_the_end() -> None:
    class ThrottlingGate(CountingGate):
        def __init__(self, each_second: int) -> None:
            super().__init__()
            self.each_second, self.allowed = each_second, dict[int, int]()

        async def _admit(self, request: AdmissionRequest) -> GateDecision:
            del request
            second = harness.clock.now() // 1000
            self.allowed[second] = self.allowed.get(second, 0) + 1
            if self.allowed[second] > self.each_second:
                return GateDecision(GateVerdict.LATER, "too many", after_ms=1_000)
            return ALLOWED

    gate = ThrottlingGate(3)
    harness = ExecutionHarness(gate=gate)
    for number in range(20):
        await run_of(harness, "report", number=number)
    await harness.run_until_idle()
    assert len(harness.runner.started) == 3

    await work_for(harness, 10_000)
    assert len(harness.runner.started) == 20


async def test_a_task_that_nobody_could_take_is_asked_about_when_somebody_comes() -> None:
    gate = CountingGate()
    harness = ExecutionHarness(gate=gate)
    definition = workflow("rare", function="rare")
    await run_of(harness, "rare", definition=definition)
    await harness.run_until_idle()
    assert not harness.runner.started

    harness.runner.functions = frozenset(("reports.make", "rare"))
    harness.worker.register_again()
    await harness.worker.step()
    harness.dispatcher.retry_unroutable()
    await harness.run_until_idle()
    await harness.run_until_idle()

    assert begun(harness) == ["rare"]
    assert len(gate.asked) == 2


async def test_a_closed_dispatcher_leaves_no_call_behind() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate)
    run = await run_of(harness, "report")
    await harness.run_until_idle()
    assert gate.calls == 1

    harness.dispatcher.close()
    await asyncio.sleep(0)
    assert (gate.calls, gate.cancelled) == (0, 1)
    next_process = ExecutionHarness(store=harness.store, clock=harness.clock)
    await next_process.run_until_idle()
    assert (await task_of(harness, run)).state is TaskState.RUNNING


# ---- the fast path -------------------------------------------------------------------------------


async def test_a_launch_does_not_wait_for_the_gate() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate)
    harness.share_process()
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
    await harness.job()
    await harness.worker.step()

    launched = await launcher.trigger("report", actor="ada")
    assert (launched.became, gate.asked, harness.woken) == (LaunchOutcome.STARTED, [], ["dispatcher"])

    await harness.run_until_idle()
    assert len(gate.asked) == 1
    gate.opened.set()
    await work_for(harness, 100)
    assert begun(harness) == ["report"]


async def test_a_step_ends_though_the_gate_hangs_for_its_output_and_for_the_next_step() -> None:
    steps = (
        Step(name="first", function="reports.make"),
        Step(name="last", function="reports.make", depends_on=("first",)),
    )
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate)
    harness.share_process()
    job = await harness.job(Workflow(workflow_id="report", version=1, steps=steps))
    run = await harness.run(job, first_steps=("first",))
    await harness.run_until_idle()
    gate.opened.set()
    await work_for(harness, 100)
    gate.opened.clear()
    harness.runner.end_all(output=b"1")
    await harness.run_until_idle()
    assert len(gate.asked) == 1

    # Now the gate hangs for the output of the first step, and then for the last step.
    harness.clock.advance(LIMIT_MS)
    await harness.run_until_idle()
    states = {one.step: one.state for one in await harness.store.history.tasks([run])}
    assert states == {"first": TaskState.SUCCEEDED, "last": TaskState.PENDING}
    gate.opened.set()
    await work_for(harness, 100)
    assert [one.step.name for one in harness.runner.started.values()] == ["last"]


# ---- the output side -----------------------------------------------------------------------------


async def ended(harness: ExecutionHarness, *names: str) -> list[Run]:
    """Runs of these workflows whose bodies have just ended."""
    runs = [await run_of(harness, name) for name in names]
    await work_for(harness, 100)
    assert len(harness.runner.started) == len(names)
    harness.runner.end_all(output=b'{"n":1}')
    await harness.worker.step()
    return runs


class FaultyOutputs(FaultyGate):
    """Faulty on the output side alone."""

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        del request
        return ALLOWED


@faults(BROKEN, RELEASE_NONSENSE)
async def test_an_output_without_a_decision_is_stored_as_it_is_and_says_so(fault: Callable[[], Any], said: str) -> None:
    harness = ExecutionHarness(gate=FaultyOutputs(fault))
    bad, good = await ended(harness, "bad", "good")

    assert (await harness.now(good)).status is RunStatus.COMPLETED
    harness.clock.advance(LIMIT_MS)
    await harness.worker.step()

    assert (await harness.now(bad)).status is RunStatus.COMPLETED
    task = await task_of(harness, bad)
    assert await harness.store.executions.payload(task.task_id, "output") == b'{"n":1}'
    [line] = await harness.store.executions.log_lines(task.task_id)
    assert line.level == "warning"
    assert line.text.startswith("the output was stored unchecked: the gate has")
    assert said in line.text
    [reported] = [facts for name, facts in harness.events.seen if name == "output_unchecked"]
    assert (reported["task"], reported["run"]) == (task.task_id, bad.run_id)


async def test_the_gate_does_not_check_failures() -> None:
    gate = FaultyOutputs(hang)
    harness = ExecutionHarness(gate=gate)
    run = await run_of(harness, "bad")
    await harness.run_until_idle()
    harness.runner.end_all(Result.FAILED, error="no")
    await harness.worker.step()

    assert (await harness.now(run)).status is RunStatus.FAILED
    assert gate.asked == 0


async def test_output_may_be_held_back_late() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate)
    gate.opened.set()
    run = await run_of(harness, "report")
    await work_for(harness, 100)
    gate.opened.clear()
    harness.runner.end_all(output=b'"a password"')
    await harness.worker.step()
    assert harness.worker.in_hand == 1

    harness.worker_woken = 0
    gate.quarantine = "a pass\x00word"
    gate.opened.set()
    await asyncio.sleep(0.01)
    assert harness.worker_woken
    await harness.worker.step()

    assert (await task_of(harness, run)).state is TaskState.OUTPUT_QUARANTINED
    assert (await harness.now(run)).error == "a pass word"


async def test_a_body_whose_output_is_with_the_gate_needs_no_slot_and_keeps_its_lease() -> None:
    harness = ExecutionHarness(gate=FaultyOutputs(hang), flags={"worker.slots": 1, "worker.lease": "3s"})
    [bad] = await ended(harness, "bad")
    await run_of(harness, "good")
    await harness.run_until_idle()
    assert begun(harness) == ["good"]

    for _ in range(4):
        harness.clock.advance(1_000)
        await harness.worker.step()
        await harness.reconciler.step()
    assert (await task_of(harness, bad)).state is TaskState.RUNNING
    harness.clock.advance(1_000)
    await harness.worker.step()
    assert (await harness.now(bad)).status is RunStatus.COMPLETED


async def test_outputs_that_wait_for_the_gate_do_not_pile_up() -> None:
    harness = ExecutionHarness(gate=FaultyOutputs(hang), flags={"worker.slots": 4})
    for number in range(20):
        await run_of(harness, "bad", number=number)
    most = 0
    for _ in range(20):
        await harness.run_until_idle()
        most = max(most, harness.worker.in_hand)
        harness.runner.end_all(output=b"1")
        harness.clock.advance(100)

    assert most == 8


async def test_every_output_is_checked_however_many_end_at_once() -> None:
    class SlowRelease(TimedGate):
        def admit_now(self, request: AdmissionRequest) -> GateDecision:
            del request
            return ALLOWED

    clock = VirtualClock(NOON)
    harness = ExecutionHarness(gate=SlowRelease(clock, 0.5), clock=clock)
    runs = [await run_of(harness, "slow", number=number) for number in range(200)]
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")

    # More than the gate can check within its time limit.
    await work_for(harness, 8_000, every=50)

    assert {(await harness.now(run)).status for run in runs} == {RunStatus.COMPLETED}
    assert "output_unchecked" not in harness.events.names()


async def test_a_worker_stops_though_the_gate_hangs_and_loses_no_ending() -> None:
    harness = ExecutionHarness(gate=FaultyOutputs(hang))
    bad, good = await run_of(harness, "bad"), await run_of(harness, "good")
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    began = harness.clock.elapsed()

    await harness.worker.drain()

    assert LIMIT_MS / 1000 <= harness.clock.elapsed() - began < LIMIT_MS / 1000 + 1
    assert [(await harness.now(one)).status for one in (bad, good)] == [RunStatus.COMPLETED] * 2
    assert harness.worker.in_hand == 0


@faults({"raises": BROKEN["raises"], "hangs": BROKEN["hangs"]})
async def test_a_faulty_event_sink_costs_no_ending(
    fault: Callable[[], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del said
    harness = ExecutionHarness(gate=FaultyOutputs(fault))

    def emit(name: str, **_: object) -> None:
        if name == "output_unchecked":
            raise OSError("the log is full")

    monkeypatch.setattr(harness.events, "emit", emit)
    [run] = await ended(harness, "bad")
    await work_for(harness, LIMIT_MS + 1000)

    assert (await harness.now(run)).status is RunStatus.COMPLETED
    assert harness.worker.in_hand == 0


async def test_a_completion_that_fails_unexpectedly_costs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ExecutionHarness(gate=OpenGate())
    running, ending = await run_of(harness, "running"), await run_of(harness, "ending")
    await harness.run_until_idle()
    [first] = [ref for ref, one in harness.runner.started.items() if one.run.run_id == ending.run_id]
    harness.runner.end(first, output=b"1")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as defect:
        defect.setattr("gnomon.services.execution.worker.complete_attempt", broken)
        for _ in range(0, 2 * harness.settings.worker.lease_ms, 1_000):
            with pytest.raises(RuntimeError, match="a defect"):
                await harness.worker.step()
            await harness.reconciler.step()
            harness.clock.advance(1_000)
    await harness.worker.step()

    assert (await task_of(harness, running)).state is TaskState.RUNNING
    assert (await harness.now(ending)).status is RunStatus.COMPLETED


async def test_an_output_that_was_released_too_late_counts_for_nothing() -> None:
    gate = SlowGate()
    harness = ExecutionHarness(gate=gate, flags={"worker.lease": "1s"})
    gate.opened.set()
    [run] = [await run_of(harness, "report")]
    await work_for(harness, 100)
    gate.opened.clear()
    harness.runner.end_all(output=b"1")
    await harness.worker.step()
    harness.clock.advance(2_000)
    await harness.reconciler.step()
    assert (await task_of(harness, run)).state is TaskState.PENDING

    gate.opened.set()
    await asyncio.sleep(0.01)
    await harness.worker.step()
    assert (await task_of(harness, run)).state is TaskState.PENDING
    assert "late_result" in harness.events.names()


async def test_a_gate_that_only_answers_late_is_as_good_as_one_that_answers_at_once() -> None:
    harness = ExecutionHarness(gate=LateGate())
    runner = FakeRunner()
    harness.runner, harness.worker = runner, harness.new_worker("w2", runner)
    harness.share_process()
    runs = [await run_of(harness, "report", number=number) for number in range(100)]
    await harness.run_until_idle()
    harness.runner.end_all(output=b"1")
    await harness.run_until_idle()

    assert {(await harness.now(run)).status for run in runs} == {RunStatus.COMPLETED}


async def test_answers_that_come_one_after_the_other_are_collected_together() -> None:
    woken = asyncio.Event()
    gates = {number: asyncio.Event() for number in range(8)}

    async def answer(number: int) -> int:
        await gates[number].wait()
        return number

    calls: GateCalls[int, str] = GateCalls(
        VirtualClock(NOON),
        answer,
        lambda number, _: f"answer {number}",
        lambda number, reason: f"failed {number}: {reason}",
        timeout_seconds=5,
        queue_seconds=1,
        on_answer=woken.set,
        delay=call_in_a_moment,
    )
    for number in gates:
        calls.ask((TaskId(f"task_{number}"), 1), ("default", "report"), number)
    for number in range(4):
        gates[number].set()
        await asyncio.sleep(0)
    assert not woken.is_set()
    async with asyncio.timeout(60):
        await woken.wait()
    assert len(await calls.collect()) == 4

    # With the last one there is nothing left to wait for.
    woken.clear()
    for gate in gates.values():
        gate.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert woken.is_set()
    calls.close()
