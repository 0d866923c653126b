"""Attempts in processes: isolated functions and commands, which can be killed with everything that they started."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.errors import UsageError
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, stopped_outcome
from gnomon.runners.child_process import ChildProcess, SupervisedProcess
from gnomon.runners.ipc import ChildRequest
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import failed_outcome, give_up_outcome, raised_outcome
from gnomon.runners.secrets import redactor
from gnomon.runners.shell import ShellRunner


class ProcessExecutor:
    """Starts them from a thread that lives as long as they do: when that thread ends, the system kills them."""

    def __init__(
        self,
        attempts: AttemptTable,
        environment: RunnerEnvironment,
        control_loop: LoopThread,
        commands: ShellRunner,
        *,
        limit: int,
        imports: Sequence[str],
    ) -> None:
        self._commands = commands
        self._attempts = attempts
        self._environment = environment
        self._control_loop = control_loop
        self._imports = tuple(imports)
        self._free = asyncio.Semaphore(limit)
        self._stops: dict[RunningAttempt, asyncio.Event] = {}

    def start(self, bodies: Sequence[RunningAttempt]) -> None:
        """Begin with all of them soon."""
        self._control_loop.call(self._begin, bodies)

    def stop(self, body: RunningAttempt) -> None:
        """End the process of a body that was asked to stop."""
        self._control_loop.call(self._stop, body)

    async def wait_until_exited(self, patience: float) -> None:
        """Wait until no process is left, for so long."""
        tasks = [body.task for body in list(self._stops) if body.task is not None]
        if tasks:
            done = asyncio.run_coroutine_threadsafe(asyncio.wait(tasks, timeout=patience), self._control_loop.loop)
            await asyncio.wrap_future(done)

    def _begin(self, bodies: Sequence[RunningAttempt]) -> None:
        for body in bodies:
            self._stops[body] = asyncio.Event()
            body.task = self._control_loop.loop.create_task(self._perform(body))

    def _stop(self, body: RunningAttempt) -> None:
        if body in self._stops:
            self._stops[body].set()

    async def _perform(self, body: RunningAttempt) -> None:
        stop = self._stops[body]
        try:
            if not await _first_of(self._free.acquire(), stop, body.timeout):
                if body.claim():
                    waited = f"no process was free within {body.timeout:g} s"
                    self._attempts.drop(body, "was stopped before it began" if body.why else waited)
                return
            try:
                if body.claim():
                    self._attempts.end(body, await self._run_safely(body, stop))
            finally:
                self._free.release()
        finally:
            del self._stops[body]

    async def _run_safely(self, body: RunningAttempt, stop: asyncio.Event) -> AttemptOutcome:
        try:
            return await self._outcome(body, stop)
        except UsageError as error:
            return give_up_outcome(body.log.redact(str(error)))
        except Exception as error:  # noqa: BLE001 - an input that cannot be sent, or no process to be had
            return raised_outcome(error, redact=body.log.redact)

    async def _outcome(self, body: RunningAttempt, stop: asyncio.Event) -> AttemptOutcome:
        if not hasattr(os, "pidfd_open"):
            return give_up_outcome("processes of their own need Linux")
        body.ends = time.monotonic() + body.timeout
        child = self._start_process(body)
        try:
            await self._wait_for_exit(body, child, stop)
        finally:
            gone = await child.kill_tree_and_drain()
        if not gone:
            body.request_stop(Result.TIMED_OUT)
            self._attempts.give_up(body, "; its process cannot be killed")
            await child.exited
            child.reap()
        ended = child.ended
        if body.why is not None and (ended is None or ended.cancelled):
            return stopped_outcome(body)
        return ended.outcome if ended is not None else failed_outcome(child.exit_description)

    def _start_process(self, body: RunningAttempt) -> SupervisedProcess:
        if body.assignment.step.function == SHELL:
            return self._commands.started(body)
        return ChildProcess(self._request(body), body.log, limit=2 * self._environment.max_output_bytes + 65_536)

    async def _wait_for_exit(self, body: RunningAttempt, child: SupervisedProcess, stop: asyncio.Event) -> None:
        """The process has ended, or was told to and has had its grace."""
        if await _first_of(asyncio.shield(child.exited), stop, body.timeout):
            return
        body.request_stop(Result.TIMED_OUT)
        child.terminate()
        await asyncio.wait([child.exited], timeout=self._environment.grace)

    def _request(self, body: RunningAttempt) -> ChildRequest:
        wanted = body.function.binder.wanted(body.assignment)
        given, found = self._environment.secrets.resolve(wanted)
        if found:
            body.log.redact = redactor(found)
        main = sys.modules["__main__"]
        module, script = body.function.module, None
        if module == "__main__":
            spec = getattr(main, "__spec__", None)
            module, script = (spec.name, None) if spec else ("", getattr(main, "__file__", None))
        return ChildRequest(
            parent=os.getpid(),
            search_path=sys.path,
            imports=self._imports,
            script=script,
            module=module,
            qualname=body.function.qualname,
            function=body.function.name,
            input=_to_builtins(given),
            shown=_to_builtins(wanted),
            secrets=found,
            facts=body.facts(),
            timeout_ms=round(body.timeout * 1000),
            max_output_bytes=self._environment.max_output_bytes,
            max_log_lines=self._environment.max_log_lines,
        )


def _to_builtins(given: Any) -> dict[str, Any]:  # noqa: ANN401 - any mapping
    plain: dict[str, Any] = msgspec.to_builtins(given)
    return plain


async def _first_of(awaited: Awaitable[object], stop: asyncio.Event, patience: float) -> bool:
    """Whether it came before the stop and before patience ran out."""
    first, second = asyncio.ensure_future(awaited), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((first, second), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return first.done()
    finally:
        second.cancel()
        first.cancel()
