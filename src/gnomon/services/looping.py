"""The loop around a service's step."""

import asyncio
from collections.abc import Awaitable, Callable


async def keep_stepping(
    step: Callable[[], Awaitable[float]], *, stop: asyncio.Event, wake: asyncio.Event | None = None
) -> None:
    """Call `step` until `stop` is set, each time after as many seconds as it asked for, or sooner when woken."""
    while not stop.is_set():
        wait = await step()
        if wait > 0:
            await _either(stop, wake, wait)
        else:
            # Even a service with much to do lets others have a turn.
            await asyncio.sleep(0)
        if wake is not None:
            wake.clear()


async def _either(stop: asyncio.Event, wake: asyncio.Event | None, seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, wake) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
