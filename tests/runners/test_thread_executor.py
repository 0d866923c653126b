"""Plain functions: on threads, which cannot be stopped, and nobody says that they were."""

import asyncio
import threading
import time
from contextlib import suppress
from contextvars import ContextVar

import pytest

from gnomon.core.model import Result
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from runners.runner_harness import assignment, attempt_ref, open_runner, wait_until

STILL_RUNS = "; the function still runs on its thread, and cannot be stopped"


@pytest.fixture
def functions() -> Functions:
    return Functions()


async def test_a_plain_function_runs_off_the_loop(functions: Functions) -> None:
    @functions.function
    def where() -> str:
        return threading.current_thread().name

    async with open_runner(functions) as harness:
        outcome = await harness.run("where")

    assert outcome.output is not None
    assert outcome.output.startswith(b'"gnomon-function-')


async def test_so_many_run_at_once_and_no_more(functions: Functions) -> None:
    both = threading.Barrier(2, timeout=60)
    running: list[int] = []
    most: list[int] = []

    @functions.function
    def meets() -> None:
        running.append(1)
        most.append(len(running))
        both.wait()
        running.pop()

    async with open_runner(functions, threads=2) as harness:
        batch = [assignment("meets") for _ in range(6)]
        harness.runner.start(batch)
        results = {(await harness.outcome(each)).result for each in batch}

    assert results == {Result.SUCCEEDED}
    assert max(most) == 2


async def test_a_variable_set_in_one_body_is_not_seen_in_another(functions: Functions) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    @functions.function
    def sets() -> str:
        before = variable.get()
        variable.set("set")
        return before

    async with open_runner(functions, threads=1) as harness:
        outcomes = [await harness.run("sets") for _ in range(2)]

    assert [outcome.output for outcome in outcomes] == [b'"unset"', b'"unset"']


async def test_at_the_deadline_the_timeout_is_reported_and_the_slot_stays_taken(functions: Functions) -> None:
    enough, heard = threading.Event(), threading.Event()

    @functions.function
    def sleeper(ctx: Context) -> str:
        enough.wait(30)
        if ctx.cancelled:
            heard.set()
        return "too late"

    async with open_runner(functions) as harness:
        outcome = await harness.run("sleeper", timeout_ms=20)
        occupied = harness.runner.occupied
        enough.set()
        await harness.idle()
        late = harness.runner.finished()

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, f"took longer than 0.02 s{STILL_RUNS}")
    assert occupied == 1
    assert heard.is_set()
    assert not late


async def test_an_abandoned_thread_is_counted_until_it_ends(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    def stuck() -> None:
        enough.wait(30)

    @functions.function
    async def stubborn() -> None:
        while not enough.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @functions.function
    def quick() -> None: ...

    async with open_runner(functions, kill_grace_ms=50) as harness:
        await harness.run("quick")
        await harness.idle()
        before = harness.runner.overrunning
        await harness.run("stuck", timeout_ms=20)
        await harness.run("stubborn", timeout_ms=20)
        await wait_until(lambda: harness.runner.overrunning == 2)
        enough.set()
        await wait_until(lambda: harness.runner.overrunning == 0)

    assert before == 0


async def test_a_stuck_thread_is_replaced(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    def stuck() -> None:
        enough.wait(30)

    @functions.function
    def quick() -> None: ...

    async with open_runner(functions, threads=1) as harness:
        assert (await harness.run("stuck", timeout_ms=20)).result is Result.TIMED_OUT
        assert (await harness.run("quick")).result is Result.SUCCEEDED
        enough.set()


@pytest.mark.guarantee("S11")
async def test_a_stop_is_reported_at_once(functions: Functions) -> None:
    started, enough = threading.Event(), threading.Event()

    @functions.function
    def sleeper() -> None:
        started.set()
        enough.wait(30)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("sleeper")])
        assert await asyncio.to_thread(started.wait, 10)
        harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)
        outcome = await harness.outcome(assigned)
        enough.set()

    assert (outcome.result, outcome.error) == (Result.CANCELLED, f"was cancelled{STILL_RUNS}")


@pytest.mark.req("Z-01")
async def test_an_attempt_that_waits_too_long_for_a_thread_is_given_back(functions: Functions) -> None:
    enough = threading.Event()
    began: list[int] = []

    @functions.function
    def busy() -> None:
        enough.wait(30)

    @functions.function
    def waits() -> None:
        began.append(1)

    async with open_runner(functions, threads=1, slot_wait_ms=50) as harness:
        harness.runner.start([assignment("busy")])
        outcome = await harness.run("waits", timeout_ms=20)
        enough.set()
        await harness.idle()

    assert (outcome.result, outcome.error) == (Result.NEVER_STARTED, "no thread was free within 0.05 s")
    assert outcome.waited_for_slot
    assert not began


async def test_time_spent_waiting_for_a_thread_is_not_the_functions(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    def busy() -> None:
        enough.wait(30)

    @functions.function
    def left(ctx: Context) -> float:
        return ctx.remaining()

    async with open_runner(functions, threads=1) as harness:
        harness.runner.start([assignment("busy")])
        harness.runner.start([waiting := assignment("left", timeout_ms=10_000)])
        await asyncio.sleep(0.05)
        enough.set()
        outcome = await harness.outcome(waiting)

    assert outcome.output is not None
    assert float(outcome.output) > 9.97


async def test_the_deadline_is_counted_from_the_beginning(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    def busy() -> None:
        enough.wait(30)

    @functions.function
    def slow() -> None:
        time.sleep(0.6)

    async with open_runner(functions, threads=1) as harness:
        harness.runner.start([assignment("busy")])
        harness.runner.start([waiting := assignment("slow", timeout_ms=1000)])
        await asyncio.sleep(0.6)
        enough.set()

        assert (await harness.outcome(waiting)).result is Result.SUCCEEDED


async def test_cancelling_what_has_not_begun_keeps_it_from_beginning(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    def busy() -> None:
        enough.wait(30)

    async with open_runner(functions, threads=1) as harness:
        harness.runner.start([assignment("busy"), waiting := assignment("busy")])
        harness.runner.stop([attempt_ref(waiting)], why=Result.CANCELLED)
        outcome = await harness.outcome(waiting)
        enough.set()

    assert (outcome.result, outcome.error) == (Result.CANCELLED, "was cancelled")


async def test_a_plain_function_that_returns_a_coroutine_is_an_error(functions: Functions) -> None:
    async def inner() -> None: ...

    @functions.function
    def outer() -> object:
        return inner()

    async with open_runner(functions) as harness:
        outcome = await harness.run("outer")

    assert outcome.result is Result.FAILED
    assert outcome.error is not None
    assert "async def" in outcome.error
