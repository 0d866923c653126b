"""The loop around a service's step ends when it is told to; long computations let others run."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Generator
from itertools import pairwise
from time import perf_counter, sleep, thread_time

import pytest

from gnomon.services.loop import ComputeQueue, compute_limit, run_loop


class FailingEvents:
    """Somewhere to announce things that always fails."""

    def emit(self, name: str, **facts: object) -> None:
        raise OSError(28, f"cannot announce {name}: {facts}")


async def test_a_step_that_fails_is_tried_again_even_if_that_cannot_be_announced() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    steps = 0

    async def step() -> float:
        nonlocal steps
        steps += 1
        if steps == 1:
            asyncio.get_running_loop().call_soon(wake.set)
            raise RuntimeError("a surprise")
        stop.set()
        return 60.0

    await run_loop("service", step, stop=stop, wake=wake, events=FailingEvents())

    assert steps == 2


# ---- long computations ----------------------------------------------------------------------------


def spin(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def spinning(steps: int, *, each: float = 0.001) -> Generator[None, None, int]:
    for _ in range(steps):
        spin(each)
        yield
    return steps


async def cycles_during(work: Awaitable[object]) -> int:
    """How often another coroutine runs while the work is done."""
    done, count = asyncio.ensure_future(work), 0
    while not done.done():
        await asyncio.sleep(0)
        count += 1
    await done
    return count


async def test_a_long_computation_lets_others_run_every_few_milliseconds() -> None:
    assert await cycles_during(ComputeQueue().run(spinning(40))) >= 8


async def test_many_computations_take_turns_and_together_hold_the_loop_no_longer_than_one() -> None:
    compute, ended = ComputeQueue(), list[str]()

    async def run(name: str, steps: int) -> None:
        await compute.run(spinning(steps))
        ended.append(name)

    assert await cycles_during(asyncio.gather(run("long", 60), run("short", 5), run("middle", 20))) >= 15
    assert ended == ["short", "middle", "long"]


async def test_many_short_computations_count_together() -> None:
    compute = ComputeQueue()

    async def several() -> None:
        for _ in range(20):
            await compute.run(spinning(1, each=0.002))

    assert await cycles_during(several()) >= 8


async def test_the_scheduler_has_the_loop_for_as_long_as_a_slice_while_it_is_busy() -> None:
    idle = await cycles_during(ComputeQueue().run(spinning(40)))
    busy = await cycles_during(ComputeQueue(lambda: True).run(spinning(40)))

    assert busy > 3 * idle


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_after_a_step_that_cannot_be_divided_the_scheduler_has_as_much_time(where: str) -> None:
    compute, steps = ComputeQueue(), list[tuple[float, float]]()

    def step(_: object = None) -> None:
        began = perf_counter()
        spin(0.012)
        steps.append((began, perf_counter()))

    if where == "loop":
        await compute.map(step, range(3))
    else:
        await asyncio.gather(*(compute.run_in_thread(step) for _ in range(3)))

    pauses = [began - ended for (_, ended), (began, _) in pairwise(steps)]
    assert min(pauses) >= 0.012


async def test_threads_switch_sooner_while_any_computation_runs_in_a_thread() -> None:
    usual, queues = sys.getswitchinterval(), (ComputeQueue(), ComputeQueue())
    both_run, one_ended = threading.Barrier(2), threading.Event()

    def first() -> float:
        both_run.wait()
        return sys.getswitchinterval()

    def second() -> float:
        both_run.wait()
        one_ended.wait()
        return sys.getswitchinterval()

    ends_last = asyncio.ensure_future(queues[1].run_in_thread(second))
    beside_another = await queues[0].run_in_thread(first)
    one_ended.set()

    assert max(beside_another, await ends_last) < usual == sys.getswitchinterval()


async def test_results_keep_their_order_and_errors_reach_the_caller() -> None:
    compute = ComputeQueue()

    assert await compute.map(lambda number: number * 2, range(1000)) == list(range(0, 2000, 2))
    with pytest.raises(ZeroDivisionError):
        await compute.map(lambda number: 1 // number, [1, 0])
    assert await compute.map(str, [7]) == ["7"]


async def test_a_large_source_is_read_in_a_thread_and_a_small_one_at_once() -> None:
    compute = ComputeQueue()

    assert await compute.read({"x": 1}, threading.get_ident) == threading.get_ident()
    assert await compute.read({"x": "y" * 10_000}, threading.get_ident) != threading.get_ident()
    assert await compute.read({"x": object()}, threading.get_ident) == threading.get_ident()


async def test_computations_in_threads_run_one_at_a_time() -> None:
    compute, running, most = ComputeQueue(), 0, 0

    def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        spin(0.01)
        running -= 1

    await asyncio.gather(*(compute.run_in_thread(count) for _ in range(5)))

    assert most == 1


async def test_the_computations_of_a_request_have_a_limit_together_and_others_go_on() -> None:
    compute, busy = ComputeQueue(), ValueError("it costs too much")

    async def costly() -> None:
        with compute_limit(0.03, busy):
            for _ in range(2):
                await compute.run(spinning(5))
                await compute.run_in_thread(lambda: spin(0.01))

    async def other() -> None:
        for _ in range(10):
            await compute.run(spinning(5))

    found = await asyncio.gather(costly(), other(), return_exceptions=True)

    assert list(found) == [busy, None]
    await compute.run(spinning(5))


async def test_time_in_which_a_computation_does_nothing_does_not_count() -> None:
    compute = ComputeQueue()

    with compute_limit(0.05, ValueError("it costs too much")):
        for _ in range(3):
            await compute.run_in_thread(lambda: sleep(0.05))
