"""Keys in outputs, logs and errors are held back in processes that execute, and in those that only dispatch."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.app.worker import WorkerOptions, WorkerProcess
from gnomon.config.settings import Settings, load
from gnomon.core.jobs.job import read_job
from gnomon.core.model import RunStatus
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.output_policies import CARD, HELD_KEY, HOLD_ALL, KEY, policy_text


def leaking(seen: list[object]) -> Functions:
    functions = Functions()

    @functions.function("leak")
    def leak() -> dict[str, str]:
        return {"key": KEY}

    @functions.function("log")
    def log(context: Context) -> None:
        context.log(f"the card is {CARD}")
        raise ValueError(KEY)

    @functions.function("see")
    def see(**given: object) -> None:
        seen.append(given)

    return functions


def contents_of(folder: Path) -> list[bytes]:
    found = [file.read_bytes() for file in folder.glob("gnomon.db*")]
    assert found
    return found


@asynccontextmanager
async def running(node: Node | WorkerProcess) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(node.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task
        await node.close()


async def alone(settings: Settings, functions: Functions, events: Recorder, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(running(await Node.open(settings, events=events, functions=functions)))


async def with_a_worker(settings: Settings, functions: Functions, events: Recorder, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(running(await Node.open(settings, events=events, dispatches=True)))
    options = WorkerOptions(settings=settings, functions=functions, events=events)
    await stack.enter_async_context(running(await WorkerProcess.open(options)))


@pytest.mark.req("R-05")
@pytest.mark.parametrize("shape", [alone, with_a_worker])
async def test_nothing_in_the_database_has_what_a_function_leaks(
    tmp_path: Path, shape: Callable[..., Awaitable[None]]
) -> None:
    database = tmp_path / "gnomon.db"
    settings = load(
        flags={
            "database.url": f"sqlite:///{database}",
            "output_policy.enabled": True,
            "output_policy.keys": [HELD_KEY],
        }
    )
    seen, events = list[object](), Recorder()
    steps = [
        {"step": "read", "function": "leak"},
        {"step": "send", "function": "see", "depends_on": ["read"], "input": {"got": "${steps.read.output}"}},
    ]
    jobs: list[dict[str, Any]] = [
        {"name": "leaks", "dag": steps, "dead_letter": True},
        {"name": "logs", "function": "log"},
    ]
    async with AsyncExitStack() as stack, Operations.open(settings) as operations:
        await operations.store.policies.add(policy_text(*HOLD_ALL), author="ada", now=1)
        await shape(settings, leaking(seen), events, stack)
        now = SystemClock().now()
        await operations.jobs.apply([read_job(one, schedule_defaults(settings), now=now) for one in jobs], actor="ada")
        runs = [(await operations.launcher.trigger(name, actor="ada")).run_id for name in ("leaks", "logs")]
        async with asyncio.timeout(30):
            for run_id in runs:
                assert run_id is not None
                while (run := await operations.store.executions.find_run(run_id)) is None or not run.over:  # noqa: ASYNC110 - another process could write it
                    await asyncio.sleep(0.02)
                assert run.status is RunStatus.FAILED
        [letter] = await operations.dead_letters.page(job="leaks")
        assert letter.reason == "output_quarantined"
        assert KEY not in (letter.last_error or "")

    assert seen == []
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT status, rule FROM output_ruling").fetchall() == [("held", "all")]
    assert not any(text.encode() in stored for stored in contents_of(tmp_path) for text in (KEY, CARD))
    assert KEY not in repr(events.seen)
