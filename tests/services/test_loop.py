"""The loop around a service's step ends when it is told to, and for no other reason."""

import asyncio

from gnomon.services.loop import run_loop


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
