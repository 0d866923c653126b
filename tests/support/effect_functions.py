"""Functions that record their effects in a file, so that a fleet can be checked independently of its store.

Each line is one JSON object, appended in one write, so that lines never mix.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import gnomon


class Effect(Struct, frozen=True, kw_only=True):
    """The start or the end of a body, as recorded in the file."""

    what: str
    job: str
    step: str
    run_id: str
    task_id: str
    fence: int
    pid: int
    #: By the clock of the machine, in milliseconds.
    at: int
    #: The input that the body was called with.
    input: dict[str, Any]


class PlannedFailure(Exception):
    """The input of the body asks for a failure."""


def _append_effect(what: str, ctx: gnomon.Context, given: dict[str, Any]) -> None:
    effect = Effect(
        what=what,
        job=ctx.job,
        step=ctx.step,
        run_id=ctx.run_id,
        task_id=ctx.task_id,
        fence=ctx.fence,
        pid=os.getpid(),
        at=time.time_ns() // 1_000_000,
        input=given,
    )
    file = os.open(os.environ["GNOMON_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, msgspec.json.encode(effect) + b"\n")
    finally:
        os.close(file)


def _fail_if_asked(ctx: gnomon.Context, given: dict[str, Any]) -> None:
    if ctx.attempt <= given.get("fails", 0):
        raise PlannedFailure(f"attempt {ctx.attempt} of {given['fails']} that fail")


@gnomon.function("effects/coroutine")
async def coroutine(ctx: gnomon.Context, **given: Any) -> None:  # noqa: ANN401 - any input
    """Records a start and an end, with `seconds` in between; then fails as many attempts as `fails` says."""
    _append_effect("start", ctx, given)
    await asyncio.sleep(given.get("seconds", 0))
    _append_effect("end", ctx, given)
    _fail_if_asked(ctx, given)


@gnomon.function("effects/thread")
def thread(ctx: gnomon.Context, **given: Any) -> None:  # noqa: ANN401 - any input
    """The same on a thread; in a process of its own if the job is isolated."""
    _append_effect("start", ctx, given)
    time.sleep(given.get("seconds", 0.05))
    _append_effect("end", ctx, given)
    _fail_if_asked(ctx, given)


def read_effects(path: Path) -> list[Effect]:
    """The recorded effects, in order."""
    # Without the last piece, which may be under way.
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [msgspec.json.decode(line, type=Effect) for line in lines]
