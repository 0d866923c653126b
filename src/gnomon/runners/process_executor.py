"""Attempts in processes: isolated functions, commands and agents, which can be killed with all their descendants."""

import asyncio
import os
from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import Result
from gnomon.core.runs.fair_share import TenantQueue
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import AGENT, SHELL
from gnomon.errors import CommandRefused, UsageError
from gnomon.runners.agents.agent_runner import AgentRunner
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt, stopped_outcome
from gnomon.runners.child_process import ChildProcess, SupervisedProcess, output_limit
from gnomon.runners.child_requests import attempt_request
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.outcomes import denied_outcome, failed_outcome, give_up_outcome, raised_outcome
from gnomon.runners.shell import ShellExecutor


class ProcessSlots:
    """The processes that may run at once, shared fairly between tenants."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._queue = TenantQueue[asyncio.Future[None]]()

    async def acquire(self, tenant: str) -> None:
        """Wait for the tenant's turn."""
        if self._free > 0:
            self._free -= 1
            self._queue.started(tenant)
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.add(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release(tenant)
            raise

    def release(self, tenant: str) -> None:
        """Give the slot to the next in turn."""
        self._queue.ended(tenant)
        while self._queue:
            following, turn = self._queue.pop()
            if not turn.done():
                turn.set_result(None)
                return
            self._queue.ended(following)
        self._free += 1


class ProcessExecutor:
    """Starts processes from the control thread, which outlives them: the kernel kills them when that thread ends."""

    def __init__(
        self,
        table: AttemptTable,
        environment: RunnerEnvironment,
        control_loop: LoopThread,
        commands: ShellExecutor,
        agents: AgentRunner | None,
        *,
        limit: int,
        imports: Sequence[str],
    ) -> None:
        self._commands = commands
        self._agents = agents
        self._table = table
        self._environment = environment
        self._control_loop = control_loop
        self._imports = tuple(imports)
        self._slots = ProcessSlots(limit)
        self._stops: dict[RunningAttempt, asyncio.Event] = {}

    def start(self, attempts: Sequence[RunningAttempt]) -> None:
        """Schedule all of them on the control loop."""
        self._control_loop.call(self._begin, attempts)

    def stop(self, attempt: RunningAttempt) -> None:
        """End the process of an attempt that was asked to stop."""
        self._control_loop.call(self._stop, attempt)

    async def wait_until_exited(self, patience: float) -> None:
        """Wait until no process is left, at most `patience` seconds."""
        tasks = [attempt.task for attempt in list(self._stops) if attempt.task is not None]
        if tasks:
            done = asyncio.run_coroutine_threadsafe(asyncio.wait(tasks, timeout=patience), self._control_loop.loop)
            await asyncio.wrap_future(done)

    async def close(self) -> None:
        """End the process that starts agents."""
        if self._agents is not None:
            done = asyncio.run_coroutine_threadsafe(self._close(self._agents), self._control_loop.loop)
            await asyncio.wrap_future(done)

    @staticmethod
    async def _close(agents: AgentRunner) -> None:
        agents.close()

    def _begin(self, attempts: Sequence[RunningAttempt]) -> None:
        for attempt in attempts:
            self._stops[attempt] = asyncio.Event()
            attempt.set_task(self._control_loop.loop.create_task(self._perform(attempt)))

    def _stop(self, attempt: RunningAttempt) -> None:
        if attempt in self._stops:
            self._stops[attempt].set()

    async def _perform(self, attempt: RunningAttempt) -> None:
        stop, tenant = self._stops[attempt], attempt.assignment.run.tenant
        try:
            patience = min(self._environment.slot_wait, max(0.0, attempt.left_of_task))
            if not await _first_of(self._slots.acquire(tenant), stop, patience):
                self._drop_waiting(attempt)
                return
            try:
                if attempt.claim():
                    self._table.end(attempt, await self._run_safely(attempt, stop))
            finally:
                self._slots.release(tenant)
        finally:
            del self._stops[attempt]

    def _drop_waiting(self, attempt: RunningAttempt) -> None:
        if not attempt.claim():
            return
        if attempt.stop_result:
            self._table.drop(attempt, "was stopped before it began")
        else:
            waited = f"no process was free within {self._environment.slot_wait:g} s"
            self._table.drop(attempt, waited, waited_for_slot=True)

    async def _run_safely(self, attempt: RunningAttempt, stop: asyncio.Event) -> AttemptOutcome:
        try:
            return await self._outcome(attempt, stop)
        except CommandRefused as error:
            return denied_outcome(error, attempt.log.redact)
        except UsageError as error:
            # The worker lacks something that the attempt needs. Processes raise no such errors.
            return replace(give_up_outcome(attempt.log.redact(str(error))), never_began=True)
        except Exception as error:  # noqa: BLE001 - the input cannot be encoded, or no process can be started
            return raised_outcome(error, redact=attempt.log.redact)

    async def _outcome(self, attempt: RunningAttempt, stop: asyncio.Event) -> AttemptOutcome:
        if not hasattr(os, "pidfd_open"):
            return give_up_outcome("running in a separate process needs Linux")
        attempt.begin_timeout()
        try:
            child = await self._started_process(attempt)
        except OSError as error:
            # An agent that never began has spent nothing.
            usage = AgentSpending() if attempt.assignment.step.is_agent else None
            return replace(raised_outcome(error, redact=attempt.log.redact), usage=usage)
        try:
            await self._wait_for_exit(attempt, child, stop)
        finally:
            gone = await child.kill_tree_and_drain()
        if not gone:
            attempt.request_stop(Result.TIMED_OUT)
            self._table.give_up(attempt, "; its process cannot be killed")
            await child.exited
            child.reap()
        return replace(_outcome_of(attempt, child), usage=child.usage)

    async def _started_process(self, attempt: RunningAttempt) -> SupervisedProcess:
        if attempt.assignment.step.function == SHELL:
            # The check of a command looks at files, which may take its time.
            invocation = await asyncio.to_thread(self._commands.prepared, attempt)
            return self._commands.started(attempt, invocation)
        if self._agents is not None and attempt.assignment.step.function == AGENT:
            return await self._agents.started(attempt, await asyncio.to_thread(self._agents.prepared, attempt))
        return ChildProcess(
            attempt_request(attempt, self._environment, self._imports),
            attempt.log,
            limit=output_limit(self._environment.max_output_bytes),
        )

    async def _wait_for_exit(self, attempt: RunningAttempt, child: SupervisedProcess, stop: asyncio.Event) -> None:
        """Wait for the exit; on a timeout or a stop request terminate the process and wait for the grace period."""
        if await _first_of(asyncio.shield(child.exited), stop, attempt.timeout):
            return
        attempt.request_stop(Result.TIMED_OUT)
        child.terminate()
        await asyncio.wait([child.exited], timeout=self._environment.grace)


async def _first_of(awaited: Awaitable[object], stop: asyncio.Event, patience: float) -> bool:
    """Whether the awaitable finished before the stop event and within `patience` seconds."""
    first, second = asyncio.ensure_future(awaited), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((first, second), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return first.done()
    finally:
        second.cancel()
        first.cancel()


def _outcome_of(attempt: RunningAttempt, child: SupervisedProcess) -> AttemptOutcome:
    """The outcome of a process that has ended."""
    ended = child.ended
    if attempt.stop_result is not None and (ended is None or ended.cancelled):
        return replace(stopped_outcome(attempt), output=child.partial_output)
    if ended is not None:
        return ended.outcome
    return replace(failed_outcome(child.exit_description), output=child.partial_output)
