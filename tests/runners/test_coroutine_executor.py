"""Coroutine functions: on a loop of their own, ended at their deadlines."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from gnomon.core.model import Result
from gnomon.runners.context import Cancelled, Context, GiveUp, Snooze
from gnomon.runners.registry import Functions
from runners.runner_harness import assignment, attempt_ref, open_runner


@pytest.fixture
def functions() -> Functions:
    return Functions()


def decoded(output: bytes | None) -> object:
    assert output is not None
    return msgspec.json.decode(output)


async def test_the_return_value_of_a_function_is_the_output(functions: Functions) -> None:
    @functions.function
    async def probe(url: str) -> dict[str, Any]:
        return {"url": url, "ok": True}

    async with open_runner(functions) as harness:
        outcome = await harness.run("probe", {"url": "http://a"})

    assert outcome.result is Result.SUCCEEDED
    assert decoded(outcome.output) == {"url": "http://a", "ok": True}


async def test_nothing_returned_is_no_output(functions: Functions) -> None:
    @functions.function
    async def probe() -> None: ...

    async with open_runner(functions) as harness:
        assert (await harness.run("probe")).output is None


async def test_an_exception_is_a_failure_with_its_place(functions: Functions) -> None:
    @functions.function
    async def probe() -> None:
        raise ValueError("no such host")

    async with open_runner(functions) as harness:
        outcome = await harness.run("probe")

    assert outcome.result is Result.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: no such host\n")
    assert 'raise ValueError("no such host")' in outcome.error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Cancelled()])
async def test_an_exception_fails_the_attempt_and_nothing_else(functions: Functions, error: BaseException) -> None:
    @functions.function
    async def wild() -> None:
        raise error

    @functions.function
    async def tame() -> str:
        return "still here"

    async with open_runner(functions) as harness:
        assert (await harness.run("wild")).result is Result.FAILED
        assert (await harness.run("tame")).result is Result.SUCCEEDED


async def test_a_task_left_behind_that_ends_the_loop_ends_nobody_else(functions: Functions) -> None:
    left: list[asyncio.Task[None]] = []

    async def exits() -> None:
        raise SystemExit(1)

    @functions.function
    async def wild() -> None:
        left.append(asyncio.create_task(exits()))
        await asyncio.wait(left)
        left[0].exception()

    async with open_runner(functions) as harness:
        assert (await harness.run("wild")).result is Result.SUCCEEDED
        assert (await harness.run("wild")).result is Result.SUCCEEDED


@pytest.mark.parametrize("raises", [True, False])
async def test_a_function_may_ask_to_be_called_again_later(functions: Functions, *, raises: bool) -> None:
    @functions.function
    async def probe() -> object:
        if raises:
            raise Snooze(1.5)
        return Snooze(1.5)

    async with open_runner(functions) as harness:
        outcome = await harness.run("probe")

    assert (outcome.result, outcome.snooze_ms) == (Result.SNOOZED, 1500)


@pytest.mark.parametrize("raises", [True, False])
async def test_a_function_may_give_up(functions: Functions, *, raises: bool) -> None:
    @functions.function
    async def probe() -> object:
        if raises:
            raise GiveUp("the account is closed")
        return GiveUp("the account is closed")

    async with open_runner(functions) as harness:
        outcome = await harness.run("probe")

    assert (outcome.result, outcome.error) == (Result.GAVE_UP, "the account is closed")


async def test_a_function_that_is_not_known_here_was_never_started(functions: Functions) -> None:
    async with open_runner(functions) as harness:
        outcome = await harness.run("elsewhere")

    assert (outcome.result, outcome.error) == (Result.NEVER_STARTED, "no function 'elsewhere' here")


async def test_a_function_is_cancelled_at_its_deadline(functions: Functions) -> None:
    seen: list[str] = []

    @functions.function
    async def sleeper() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("tidied up")

    async with open_runner(functions) as harness:
        outcome = await harness.run("sleeper", timeout_ms=20)
        await harness.idle()

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 0.02 s")
    assert seen == ["tidied up"]


async def test_a_result_after_the_deadline_is_too_late(functions: Functions) -> None:
    @functions.function
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    async with open_runner(functions) as harness:
        outcome = await harness.run("stubborn", timeout_ms=20)

    assert (outcome.result, outcome.output) == (Result.TIMED_OUT, None)


async def test_a_function_that_swallows_its_cancellation_is_cancelled_again(functions: Functions) -> None:
    swallowed: list[int] = []

    @functions.function
    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed.append(1)

    async with open_runner(functions, kill_grace_ms=400) as harness:
        outcome = await harness.run("stubborn", timeout_ms=20)

    assert outcome.error == "took longer than 0.02 s"
    assert len(swallowed) == 2


async def test_one_that_never_stops_is_given_up_on_and_keeps_its_slot(functions: Functions) -> None:
    enough = threading.Event()

    @functions.function
    async def stubborn() -> None:
        while not enough.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async with open_runner(functions, kill_grace_ms=50) as harness:
        outcome = await harness.run("stubborn", timeout_ms=20)
        occupied = harness.runner.occupied
        enough.set()
        await harness.idle()

    assert outcome.result is Result.TIMED_OUT
    assert outcome.error == "took longer than 0.02 s; it did not stop, and still runs"
    assert occupied == 1


@pytest.mark.guarantee("E5")
async def test_a_body_that_blocks_its_loop_delays_neither_the_owner_nor_plain_functions(functions: Functions) -> None:
    blocked, enough = threading.Event(), threading.Event()

    @functions.function
    async def blocks() -> None:
        blocked.set()
        enough.wait(30)

    @functions.function
    def plain() -> None: ...

    async with open_runner(functions) as harness:
        harness.runner.start([first := assignment("blocks")])
        assert await asyncio.to_thread(blocked.wait, 10)

        outcome = await harness.run("plain", timeout_ms=5000)

        assert outcome.result is Result.SUCCEEDED
        enough.set()
        assert (await harness.outcome(first)).result is Result.SUCCEEDED


async def test_a_body_that_blocks_past_its_deadline_is_reported_all_the_same(functions: Functions) -> None:
    blocked, enough = threading.Event(), threading.Event()

    @functions.function
    async def blocks() -> None:
        blocked.set()
        enough.wait(30)

    @functions.function
    async def behind() -> None: ...

    async with open_runner(functions, kill_grace_ms=50) as harness:
        harness.runner.start([first := assignment("blocks", timeout_ms=20)])
        assert await asyncio.to_thread(blocked.wait, 10)
        harness.runner.start([second := assignment("behind", timeout_ms=20)])

        assert (await harness.outcome(first)).result is Result.TIMED_OUT
        assert (await harness.outcome(second)).result is Result.NEVER_STARTED
        enough.set()
        await harness.idle()


@pytest.mark.parametrize("why", [Result.CANCELLED, Result.LOST, Result.INTERRUPTED])
@pytest.mark.guarantee("S11")
async def test_a_function_can_be_stopped(functions: Functions, why: Result) -> None:
    started = threading.Event()

    @functions.function
    async def sleeper(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.cancelled

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("sleeper")])
        assert await asyncio.to_thread(started.wait, 10)
        harness.runner.stop([attempt_ref(assigned)], why=why)

        outcome = await harness.outcome(assigned)

    assert outcome.result is why


async def test_a_result_after_a_cancel_is_too_late(functions: Functions) -> None:
    started = threading.Event()

    @functions.function
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("stubborn")])
        assert await asyncio.to_thread(started.wait, 10)
        harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)
        outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.output) == (Result.CANCELLED, None)


async def test_stopping_another_attempt_of_the_task_stops_nothing(functions: Functions) -> None:
    @functions.function
    async def quick() -> None:
        await asyncio.sleep(0.02)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("quick")])
        harness.runner.stop([(assigned.task.task_id, assigned.task.fence + 1)], why=Result.CANCELLED)

        assert (await harness.outcome(assigned)).result is Result.SUCCEEDED


async def test_the_owner_is_called_once_until_it_collects(functions: Functions) -> None:
    calls: list[int] = []

    @functions.function
    async def quick() -> None: ...

    async with open_runner(functions) as harness:
        harness.runner._table._on_finished = lambda: calls.append(1)  # noqa: SLF001 - counts instead of waking
        harness.runner.start([assignment("quick") for _ in range(50)])
        await harness.idle()
        before = len(calls)
        collected = harness.runner.finished()
        harness.runner.start([assignment("quick")])
        await harness.idle()

    assert (before, len(collected), len(calls)) == (1, 50, 2)


async def test_a_function_ends_while_others_of_its_batch_go_on(functions: Functions) -> None:
    release = threading.Event()

    @functions.function
    async def quick(number: int) -> int:
        return number

    @functions.function
    async def held() -> str:
        await asyncio.to_thread(release.wait, 60)
        return "released"

    async with open_runner(functions) as harness:
        first, *others = [assignment("held"), *(assignment("quick", {"number": number}) for number in range(10))]
        harness.runner.start([first, *others])
        outputs = [decoded((await harness.outcome(each)).output) for each in others]
        release.set()
        last = decoded((await harness.outcome(first)).output)

    assert (outputs, last) == (list(range(10)), "released")
