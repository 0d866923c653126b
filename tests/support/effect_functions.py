"""Functions that record their effects in a file, so that a fleet can be checked independently of its store.

Each line is `start|end job step run task fence pid at`, appended in one write, so that lines never mix.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

import gnomon


class Effect(NamedTuple):
    """The start or the end of a body, as recorded in the file."""

    what: str
    job: str
    step: str
    run_id: str
    task_id: str
    fence: int
    pid: int
    at: int


def _append_effect(what: str, ctx: gnomon.Context) -> None:
    at = time.time_ns() // 1_000_000
    line = f"{what} {ctx.job} {ctx.step} {ctx.run_id} {ctx.task_id} {ctx.fence} {os.getpid()} {at}\n"
    file = os.open(os.environ["GNOMON_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@gnomon.function("effects/coroutine")
async def coroutine(ctx: gnomon.Context, seconds: float = 0) -> None:
    """Records a start and an end, with some time in between."""
    _append_effect("start", ctx)
    await asyncio.sleep(seconds)
    _append_effect("end", ctx)


@gnomon.function("effects/thread")
def thread(ctx: gnomon.Context, seconds: float = 0.05) -> None:
    """The same on a thread."""
    _append_effect("start", ctx)
    time.sleep(seconds)
    _append_effect("end", ctx)


def read_effects(path: Path) -> list[Effect]:
    """The recorded effects, in order."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        what, job, step, run, task, fence, pid, at = line.split()
        found.append(Effect(what, job, step, run, task, int(fence), int(pid), int(at)))
    return found
