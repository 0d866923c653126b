"""Closing: what runs may finish, then is told to, then is killed; and everything is accounted for."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gnomon.core.model import Result
from gnomon.core.runs.workflow import Isolation
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from runners.process_functions import FUNCTIONS as ISOLATED
from runners.runner_harness import alive, assignment, environment_of_tests, open_runner, wait_for_numbers


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.mark.guarantee("S26")
async def test_attempts_that_end_within_the_drain_are_not_interrupted(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    async def quick() -> None:
        started.set()
        await asyncio.sleep(0.05)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("quick")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=10_000, grace_ms=0)

        assert (await harness.outcome(assigned)).result is Result.SUCCEEDED


@pytest.mark.guarantee("S26")
async def test_attempts_that_exceed_the_drain_are_interrupted(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    async def slow() -> None:
        started.set()
        await asyncio.sleep(60)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("slow")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=50, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.INTERRUPTED, "was stopped together with its worker")


@pytest.mark.guarantee("S26")
async def test_a_coroutine_that_is_done_within_the_grace_has_done_its_work(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    async def saves() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.9)  # past the moment of a second reminder
        return "saved"

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("saves")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=0, grace_ms=1600)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.output) == (Result.SUCCEEDED, b'"saved"')


@pytest.mark.guarantee("S26")
async def test_a_thread_that_is_done_within_the_grace_has_done_its_work(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    def watches(ctx: Context) -> str:
        started.set()
        while not ctx.cancelled:
            time.sleep(0.005)
        time.sleep(0.1)
        return "saved"

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("watches")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=0, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.output) == (Result.SUCCEEDED, b'"saved"')


@pytest.mark.parametrize("function", ["saves", "saves-too"])
@pytest.mark.guarantee("S26")
async def test_a_process_that_is_done_within_the_grace_has_done_its_work(tmp_path: Path, function: str) -> None:
    file = tmp_path / "notes"
    async with open_runner(ISOLATED) as harness:
        harness.runner.start([assigned := assignment(function, {"file": str(file)}, isolation=Isolation.PROCESS)])
        await wait_for_numbers(file, 1)
        await harness.runner.close(drain_ms=0, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.output) == (Result.SUCCEEDED, b'"saved"')


@pytest.mark.parametrize("function", ["tidies", "tidies-too"])
@pytest.mark.guarantee("S26")
async def test_a_process_that_lets_itself_be_ended_is_interrupted(tmp_path: Path, function: str) -> None:
    file = tmp_path / "notes"
    async with open_runner(ISOLATED) as harness:
        harness.runner.start([assigned := assignment(function, {"file": str(file)}, isolation=Isolation.PROCESS)])
        await wait_for_numbers(file, 1)
        await harness.runner.close(drain_ms=0, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.INTERRUPTED, "was stopped together with its worker")


@pytest.mark.guarantee("S26")
async def test_an_attempt_that_fails_during_its_stop_has_failed(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    async def breaks() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("cannot save")

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("breaks")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=0, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert outcome.result is Result.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: cannot save")


@pytest.mark.guarantee("S26")
async def test_a_thread_that_lets_itself_be_ended_is_interrupted(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    def watches(ctx: Context) -> None:
        started.set()
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.005)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("watches")])
        assert await asyncio.to_thread(started.wait, 10)
        await harness.runner.close(drain_ms=0, grace_ms=10_000)

        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.INTERRUPTED, "was stopped together with its worker")


@pytest.mark.guarantee("S26")
async def test_an_attempt_that_cannot_be_stopped_is_reported_all_the_same(functions: Functions) -> None:
    both, enough = threading.Barrier(3, timeout=60), threading.Event()

    @functions.function
    async def blocks() -> None:
        both.wait()
        enough.wait(110)

    @functions.function
    def thread() -> None:
        both.wait()
        enough.wait(110)

    async with open_runner(functions) as harness:
        batch = [assignment("blocks"), assignment("thread")]
        harness.runner.start(batch)
        await asyncio.to_thread(both.wait)
        async with asyncio.timeout(60):
            await harness.runner.close(drain_ms=50, grace_ms=50)

        assert [(await harness.outcome(each)).result for each in batch] == [Result.INTERRUPTED, Result.INTERRUPTED]
        enough.set()


@pytest.mark.guarantee("S26")
async def test_processes_are_killed_after_the_grace(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with open_runner(ISOLATED) as harness:
        harness.runner.start([assigned := assignment("traps", {"file": str(file)}, isolation=Isolation.PROCESS)])
        [pid] = await wait_for_numbers(file, 1)
        async with asyncio.timeout(30):
            await harness.runner.close(drain_ms=0, grace_ms=100)

        assert not alive(pid)
        assert (await harness.outcome(assigned)).result is Result.INTERRUPTED


@pytest.mark.guarantee("S26")
async def test_attempts_not_started_before_the_stop_never_start(functions: Functions, tmp_path: Path) -> None:
    enough, began, file = threading.Event(), threading.Event(), tmp_path / "pids"
    functions.add(ISOLATED["traps"].body, "traps")

    @functions.function
    def busy() -> None:
        began.set()
        enough.wait(30)

    async with open_runner(functions, threads=1, max_concurrent=1) as harness:
        given = {"file": str(file)}
        harness.runner.start([assignment("busy"), assignment("traps", given, isolation=Isolation.PROCESS)])
        waiting = [assignment("busy"), assignment("traps", given, isolation=Isolation.PROCESS)]
        harness.runner.start(waiting)
        assert await asyncio.to_thread(began.wait, 10)
        await wait_for_numbers(file, 1)
        await harness.runner.close(drain_ms=50, grace_ms=50)
        enough.set()

        assert {(await harness.outcome(each)).result for each in waiting} == {Result.NEVER_STARTED}
        assert len(await wait_for_numbers(file, 1)) == 1


async def test_nothing_starts_after_closing(functions: Functions) -> None:
    @functions.function
    async def quick() -> None: ...

    async with open_runner(functions) as harness:
        await harness.runner.close(drain_ms=0, grace_ms=0)

        outcome = await harness.run("quick")

    assert (outcome.result, outcome.error) == (Result.NEVER_STARTED, "the worker stops")


async def test_closing_twice_is_closing_once_and_leaves_no_thread(functions: Functions) -> None:
    @functions.function
    async def quick() -> None: ...

    before, factory = set(threading.enumerate()), logging.getLogRecordFactory()
    async with open_runner(functions) as harness:
        await harness.run("quick")
        await asyncio.gather(*(harness.runner.close(drain_ms=0, grace_ms=0) for _ in range(2)))
        left = {thread.name for thread in set(threading.enumerate()) - before}

    assert not {name for name in left if name.startswith("gnomon-")}
    assert logging.getLogRecordFactory() == factory


@pytest.mark.guarantee("S26")
def test_a_thread_that_never_ends_does_not_keep_the_program_alive() -> None:
    program = """
import asyncio, time
from gnomon.runners.registry import Functions
from runners.runner_harness import open_runner

functions = Functions()
functions.add(lambda: time.sleep(600), "stuck")

async def main():
    async with open_runner(functions, kill_grace_ms=10) as harness:
        print((await harness.run("stuck", timeout_ms=10)).result)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of_tests(),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    assert done.stdout == "timed_out\n"
