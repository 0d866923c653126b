"""Functions that record their starts and ends in a file, independently of the scheduler.

Each line is `start|stop|end job run fence attempt pid`. Lines are short and appended in one write, so they never mix.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import gnomon


def _append_line(what: str, ctx: gnomon.Context, name: str | None = None) -> None:
    line = f"{what} {name or ctx.job} {ctx.run_id} {ctx.fence} {ctx.attempt} {os.getpid()}\n"
    file = os.open(os.environ["GNOMON_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@gnomon.function("witness/coroutine")
async def coroutine(ctx: gnomon.Context) -> None:
    """Records a start and an end."""
    _append_line("start", ctx)
    _append_line("end", ctx)


@gnomon.function("witness/thread")
def thread(ctx: gnomon.Context, seconds: float = 0.01) -> None:
    """The same on a thread, with some time in between."""
    _append_line("start", ctx)
    time.sleep(seconds)
    _append_line("end", ctx)


@gnomon.function("witness/step")
def one_step(ctx: gnomon.Context, name: str) -> str:
    """A step of a graph, which records its own name."""
    _append_line("start", ctx, name)
    time.sleep(0.005)
    _append_line("end", ctx, name)
    return name


@gnomon.function("witness/undo")
def undo(ctx: gnomon.Context) -> str:
    """A compensation, which returns its idempotency key."""
    _append_line("start", ctx, ctx.task_id)
    return ctx.idempotency_key


@gnomon.function("witness/gives-up")
def gives_up(ctx: gnomon.Context, name: str) -> None:
    """A step that fails for good."""
    _append_line("start", ctx, name)
    raise gnomon.GiveUp("it cannot be done")


@gnomon.function("witness/flaky")
def flaky(ctx: gnomon.Context, failures: int = 2) -> int:
    """Fails so often before it succeeds."""
    _append_line("start", ctx)
    if ctx.attempt <= failures:
        raise RuntimeError(f"failure {ctx.attempt}")
    _append_line("end", ctx)
    return ctx.attempt


@gnomon.function("witness/metered")
def metered(ctx: gnomon.Context, mails: int) -> None:
    """Spend these mails."""
    _append_line("start", ctx)
    ctx.spend("mails", mails)


@gnomon.function("witness/limits")
def limits(ctx: gnomon.Context) -> dict[str, Any]:
    """Return the limits of the attempt."""
    _append_line("start", ctx)
    return ctx.constraints


@gnomon.function("witness/patient")
async def patient(ctx: gnomon.Context) -> None:
    """Runs for long, and stops when asked to."""
    _append_line("start", ctx)
    await asyncio.sleep(600)


@gnomon.function("witness/first-waits")
async def first_waits(ctx: gnomon.Context) -> None:
    """Runs for long the first time and records its cancellation; later it ends at once."""
    _append_line("start", ctx)
    if ctx.fence == 1:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            _append_line("stop", ctx)
            raise
    _append_line("end", ctx)


@gnomon.function("witness/until-released")
async def until_released(ctx: gnomon.Context) -> None:
    """Runs until the file of `release_file` exists, and records its cancellation."""
    _append_line("start", ctx)
    released = release_file(Path(os.environ["GNOMON_WITNESS"]))
    try:
        while not released.exists():  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        _append_line("stop", ctx)
        raise
    _append_line("end", ctx)


@gnomon.function("witness/talks")
async def talks(ctx: gnomon.Context) -> None:
    """Logs a line, runs until the file of `release_file` exists, and logs another one."""
    ctx.logger.info("attempt %d begins", ctx.fence)
    released = release_file(Path(os.environ["GNOMON_WITNESS"]))
    while not released.exists():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.05)
    ctx.logger.info("attempt %d ends", ctx.fence)


def release_file(witness: Path) -> Path:
    """The file that ends the bodies of `witness/until-released` and `witness/talks`."""
    return witness.with_suffix(".released")


@gnomon.function("witness/stubborn")
def stubborn(ctx: gnomon.Context) -> None:
    """Runs for long in a process of its own, and ignores requests to stop."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _append_line("start", ctx)
    time.sleep(600)


def read_witness(path: Path) -> list[tuple[str, str, str, int, int, int]]:
    """The recorded lines in order: what, job, run, fence, attempt, pid."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(what, job, run, int(fence), int(attempt), int(pid)) for what, job, run, fence, attempt, pid in lines]
