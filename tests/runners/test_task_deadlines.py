"""The deadline of a task in its worker: an attempt ends at the earlier of the deadline and its own timeout."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import SHELL, Isolation
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from runners.process_functions import FUNCTIONS
from runners.runner_harness import assignment, open_runner

pytestmark = pytest.mark.req("R-07")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def limited(assigned: Assignment, left_ms: int) -> Assignment:
    """The assignment of a task that ends after so many milliseconds."""
    return replace(assigned, task=replace(assigned.task, deadline_at=now_ms() + left_ms))


@pytest.fixture
def functions() -> Functions:
    made = Functions()

    @made.function
    async def sleeper() -> None:
        await asyncio.sleep(60)

    @made.function
    async def limits(ctx: Context) -> float:
        assert ctx.deadline is not None
        return (ctx.deadline - datetime.now(UTC)).total_seconds()

    return made


async def test_a_coroutine_ends_at_the_deadline_and_the_outcome_says_so(functions: Functions) -> None:
    async with open_runner(functions) as harness:
        harness.runner.start([task := limited(assignment("sleeper", timeout_ms=30_000), 100)])
        outcome = await harness.outcome(task)

    assert (outcome.result, outcome.past_deadline) == (Result.TIMED_OUT, True)
    assert (outcome.error or "").startswith("its deadline passed at ")


async def test_a_timeout_before_the_deadline_is_a_timeout(functions: Functions) -> None:
    async with open_runner(functions) as harness:
        harness.runner.start([task := limited(assignment("sleeper", timeout_ms=20), 60_000)])
        outcome = await harness.outcome(task)

    assert (outcome.result, outcome.past_deadline, outcome.error) == (
        Result.TIMED_OUT,
        False,
        "took longer than 0.02 s",
    )


@pytest.mark.parametrize(("timeout_ms", "left_ms"), [(20_000, 10_000), (10_000, 20_000)])
async def test_a_function_sees_the_earlier_of_the_two(functions: Functions, timeout_ms: int, left_ms: int) -> None:
    async with open_runner(functions) as harness:
        harness.runner.start([task := limited(assignment("limits", timeout_ms=timeout_ms), left_ms)])
        outcome = await harness.outcome(task)

    assert outcome.output is not None
    assert 5 < float(outcome.output) <= 10


async def test_a_task_whose_deadline_has_passed_does_not_begin() -> None:
    functions, began = Functions(), []

    @functions.function
    def work() -> None:
        began.append(1)

    async with open_runner(functions) as harness:
        harness.runner.start([task := limited(assignment("work"), 0)])
        outcome = await harness.outcome(task)

    assert (outcome.result, outcome.past_deadline, outcome.never_began) == (Result.TIMED_OUT, True, True)
    assert not began


async def test_a_thread_that_cannot_be_stopped_is_given_up_at_the_deadline() -> None:
    functions, enough = Functions(), threading.Event()

    @functions.function
    def stuck() -> None:
        enough.wait(30)

    async with open_runner(functions) as harness:
        harness.runner.start([task := limited(assignment("stuck", timeout_ms=30_000), 100)])
        outcome = await harness.outcome(task)
        enough.set()
        await harness.idle()

    assert (outcome.result, outcome.past_deadline) == (Result.TIMED_OUT, True)


async def test_a_task_waits_for_a_thread_no_longer_than_to_its_deadline() -> None:
    functions, enough = Functions(), threading.Event()

    @functions.function
    def busy() -> None:
        enough.wait(30)

    async with open_runner(functions, threads=1, slot_wait_ms=60_000) as harness:
        harness.runner.start([assignment("busy", timeout_ms=60_000)])
        harness.runner.start([task := limited(assignment("busy", timeout_ms=60_000), 100)])
        outcome = await harness.outcome(task)
        enough.set()
        await harness.idle()

    assert (outcome.result, outcome.waited_for_slot) == (Result.NEVER_STARTED, True)


@pytest.mark.parametrize("kind", ["process", "command"])
async def test_a_process_is_ended_at_the_deadline(kind: str, tmp_path: Path) -> None:
    made = (
        assignment(SHELL, command="sleep 60", timeout_ms=60_000)
        if kind == "command"
        else assignment("tidies", {"file": str(tmp_path / "notes")}, isolation=Isolation.PROCESS, timeout_ms=60_000)
    )

    async with open_runner(FUNCTIONS, imports=("runners.process_functions",)) as harness:
        harness.runner.start([task := limited(made, 700)])
        outcome = await harness.outcome(task)
        await harness.idle()

    assert (outcome.result, outcome.past_deadline) == (Result.TIMED_OUT, True)
    assert now_ms() - (task.task.deadline_at or 0) < 20_000
