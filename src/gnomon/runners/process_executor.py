"""Attempts in processes: isolated functions and commands, which can be killed with everything that they started."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Outcome
from gnomon.core.runs.workflow import SHELL
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import Body, Desk, Shop, stopped
from gnomon.runners.child_process import ChildProcess, Spawned
from gnomon.runners.ipc import Request
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import failed, gave_up, raised
from gnomon.runners.secrets import redactor
from gnomon.runners.shell import Commands


class Processes:
    """Starts them from a thread that lives as long as they do: when that thread ends, the system kills them."""

    def __init__(
        self, desk: Desk, shop: Shop, minder: LoopThread, commands: Commands, *, limit: int, imports: Sequence[str]
    ) -> None:
        self._commands = commands
        self._desk = desk
        self._shop = shop
        self._minder = minder
        self._imports = tuple(imports)
        self._free = asyncio.Semaphore(limit)
        self._stops: dict[Body, asyncio.Event] = {}

    def start(self, bodies: Sequence[Body]) -> None:
        """Begin with all of them soon."""
        self._minder.call(self._begin, bodies)

    def stop(self, body: Body) -> None:
        """End the process of a body that was asked to stop."""
        self._minder.call(self._stop, body)

    async def buried(self, patience: float) -> None:
        """Wait until no process is left, for so long."""
        tasks = [body.task for body in list(self._stops) if body.task is not None]
        if tasks:
            done = asyncio.run_coroutine_threadsafe(asyncio.wait(tasks, timeout=patience), self._minder.loop)
            await asyncio.wrap_future(done)

    def _begin(self, bodies: Sequence[Body]) -> None:
        for body in bodies:
            self._stops[body] = asyncio.Event()
            body.task = self._minder.loop.create_task(self._perform(body))

    def _stop(self, body: Body) -> None:
        if body in self._stops:
            self._stops[body].set()

    async def _perform(self, body: Body) -> None:
        stop = self._stops[body]
        try:
            if not await _either(self._free.acquire(), stop, body.timeout):
                if body.claim():
                    waited = f"no process was free within {body.timeout:g} s"
                    self._desk.drop(body, "was stopped before it began" if body.why else waited)
                return
            try:
                if body.claim():
                    self._desk.end(body, await self._tried(body, stop))
            finally:
                self._free.release()
        finally:
            del self._stops[body]

    async def _tried(self, body: Body, stop: asyncio.Event) -> Outcome:
        try:
            return await self._outcome(body, stop)
        except UsageError as error:
            return gave_up(body.log.redact(str(error)))
        except Exception as error:  # noqa: BLE001 - an input that cannot be sent, or no process to be had
            return raised(error, redact=body.log.redact)

    async def _outcome(self, body: Body, stop: asyncio.Event) -> Outcome:
        if not hasattr(os, "pidfd_open"):
            return gave_up("processes of their own need Linux")
        body.ends = time.monotonic() + body.timeout
        child = self._started(body)
        try:
            await self._ended(body, child, stop)
        finally:
            gone = await child.bury()
        if not gone:
            body.ask(Result.TIMED_OUT)
            self._desk.give_up(body, "; its process cannot be killed")
            await child.exited
            child.reap()
        ended = child.ended
        if body.why is not None and (ended is None or ended.cancelled):
            return stopped(body)
        return ended.outcome if ended is not None else failed(child.last_words)

    def _started(self, body: Body) -> Spawned:
        if body.assignment.step.function == SHELL:
            return self._commands.started(body)
        return ChildProcess(self._request(body), body.log, limit=2 * self._shop.max_output_bytes + 65_536)

    async def _ended(self, body: Body, child: Spawned, stop: asyncio.Event) -> None:
        """The process has ended, or was told to and has had its grace."""
        if await _either(asyncio.shield(child.exited), stop, body.timeout):
            return
        body.ask(Result.TIMED_OUT)
        child.terminate()
        await asyncio.wait([child.exited], timeout=self._shop.grace)

    def _request(self, body: Body) -> Request:
        wanted = body.function.binder.wanted(body.assignment)
        given, found = self._shop.secrets.resolve(wanted)
        if found:
            body.log.redact = redactor(found)
        main = sys.modules["__main__"]
        module, script = body.function.module, None
        if module == "__main__":
            spec = getattr(main, "__spec__", None)
            module, script = (spec.name, None) if spec else ("", getattr(main, "__file__", None))
        return Request(
            parent=os.getpid(),
            search_path=sys.path,
            imports=self._imports,
            script=script,
            module=module,
            qualname=body.function.qualname,
            function=body.function.name,
            input=_plain(given),
            shown=_plain(wanted),
            secrets=found,
            facts=body.facts(),
            timeout_ms=round(body.timeout * 1000),
            max_output_bytes=self._shop.max_output_bytes,
            max_log_lines=self._shop.max_log_lines,
        )


def _plain(given: Any) -> dict[str, Any]:  # noqa: ANN401 - any mapping
    plain: dict[str, Any] = msgspec.to_builtins(given)
    return plain


async def _either(awaited: Awaitable[object], stop: asyncio.Event, patience: float) -> bool:
    """Whether it came before the stop and before patience ran out."""
    first, second = asyncio.ensure_future(awaited), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((first, second), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return first.done()
    finally:
        second.cancel()
        first.cancel()
