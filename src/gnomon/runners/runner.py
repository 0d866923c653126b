"""The runner of a worker: it starts functions, commands, calls and agents on the executor for their kind.

FunctionRunner keeps coroutines and HTTP calls on one event loop, other functions on threads, isolated functions,
commands and agents in processes. NotifyingRunner wraps any runner and reports the assignments that it starts.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from gnomon.config.sections import SecuritySettings, ShellSettings, WorkerSettings
from gnomon.core.model import Result
from gnomon.core.runs.deadlines import deadline_text, has_passed
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, Isolation
from gnomon.ports.execution import Finished, ProgressWriter, Runner
from gnomon.ports.http import HttpSender
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.agents.agent_runner import AGENT_CALL, AgentEnvironment, AgentRunner
from gnomon.runners.agents.function_tools import FunctionTools
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt
from gnomon.runners.command_sandbox import CommandSandbox
from gnomon.runners.coroutine_executor import CoroutineExecutor
from gnomon.runners.http_calls import HTTP_CALL, HttpCallRunner
from gnomon.runners.kernel_support import KernelSupport
from gnomon.runners.logs import CAPTURE, TaskLog
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.process_executor import ProcessExecutor
from gnomon.runners.progress import ProgressReporter
from gnomon.runners.registry import Function, Functions
from gnomon.runners.secrets import SecretSource
from gnomon.runners.shell import COMMAND, ShellExecutor
from gnomon.runners.thread_executor import ThreadExecutor
from gnomon.runners.workspace import Workspace


class NotifyingRunner:
    """Wraps a runner, and reports the assignments that it has started."""

    def __init__(self, runner: Runner, on_start: Callable[[Sequence[Assignment]], None]) -> None:
        """`on_start` is called with the assignments that have been started."""
        self._runner = runner
        self._on_start = on_start

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._runner.functions

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return self._runner.occupied

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning."""
        return self._runner.overrunning

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start."""
        self._runner.start(assignments)
        self._on_start(assignments)

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._runner.finished()

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop."""
        self._runner.stop(held, why=why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        await self._runner.close(drain_ms=drain_ms, grace_ms=grace_ms)


#: Bounds of the interval between checks for attempts that should have stopped, in seconds.
_MAX_SWEEP_SECONDS, _MIN_SWEEP_SECONDS = 1.0, 0.02
#: Seconds that the kernel may take to end killed processes.
_KILL_WAIT_SECONDS = 2.0
_STOPPING_REASON = "the worker stops"
#: How long an attempt waits for a thread or a process.
_SLOT_WAIT_MS = 10_000


class FunctionRunner:
    """Runs registered functions, commands, HTTP calls and agents.

    Its threads start with the first assignment and end with `close`.
    """

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        functions: Functions,
        settings: WorkerSettings,
        *,
        default_timeout_ms: int,
        secrets: SecretSource,
        on_finished: Callable[[], object],
        shell: ShellSettings | None = None,
        workspace: Workspace | None = None,
        http: HttpSender | None = None,
        agents: AgentEnvironment | None = None,
        security: SecuritySettings | None = None,
        kernel: KernelSupport | None = None,
        imports: Sequence[str] = (),
        slot_wait_ms: int = _SLOT_WAIT_MS,
        progress: ProgressWriter | None = None,
    ) -> None:
        """`workspace` is the folder for commands, the current folder if not given.

        Without `http` it makes no calls, and without `agents` it asks no models.
        `kernel` is what the kernel can do to confine commands; it is found out if not given.
        An attempt that waits for a thread or a process for `slot_wait_ms` is given back, so that another worker may
        have it. `progress` keeps logs and usage while attempts go on.
        """
        self._functions = _AvailableFunctions(
            functions, has_commands=settings.commands, has_http=http is not None, has_agents=agents is not None
        )
        self._shell = shell or ShellSettings()
        self._settings = settings
        self._default_timeout_ms = default_timeout_ms
        self._imports = tuple(imports)
        self._table = AttemptTable(on_finished)
        self._environment = RunnerEnvironment(
            secrets,
            max_output_bytes=settings.max_output_bytes,
            max_log_lines=settings.max_log_lines,
            grace_ms=settings.kill_grace_ms,
            slot_wait_ms=slot_wait_ms,
        )
        security = security or SecuritySettings()
        self._commands = ShellExecutor(
            self._environment,
            self._shell,
            security,
            workspace=workspace or Workspace(Path(self._shell.workspace)),
            sandbox=CommandSandbox(self._shell, security, kernel),
            runs_commands=settings.commands,
        )
        tools = FunctionTools(functions, self._environment, self._imports)
        self._reporter = None if progress is None else ProgressReporter(progress, self._table.unreported)
        self._agents = (
            None if agents is None else AgentRunner(self._environment, agents, self._commands, tools, self._reporter)
        )
        self._http_calls = None if http is None else HttpCallRunner(self._environment, http)
        self._executors: _Executors | None = None
        self._closing = asyncio.Lock()
        self._stopping = False
        self._closed = False

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._functions

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return self._table.occupied

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning."""
        return self._table.overrunning

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start. An assignment that cannot be started here ends as NEVER_STARTED."""
        executors = self._open_executors()
        batches: dict[Executor, list[RunningAttempt]] = {}
        for assignment in assignments:
            function = self._functions.get(assignment.step.function)
            if function is None or executors is None:
                reason = _STOPPING_REASON if executors is None else f"no function {assignment.step.function!r} here"
                self._table.add_outcome(assignment, AttemptOutcome(result=Result.NEVER_STARTED, error=reason))
                continue
            deadline_at = assignment.task.deadline_at
            if has_passed(deadline_at, time.time_ns() // 1_000_000):
                self._table.add_outcome(assignment, _late_outcome(deadline_at or 0))
                continue
            timeout_ms = assignment.step.timeout_ms or self._usual_timeout_ms(function)
            log = TaskLog(self._environment.max_log_lines)
            attempt = RunningAttempt(assignment, function, timeout_ms=timeout_ms, log=log)
            self._table.add(attempt)
            batches.setdefault(executors.executor_for(attempt), []).append(attempt)
        for executor, attempts in batches.items():
            executor.start(attempts)

    def _usual_timeout_ms(self, function: Function) -> int:
        return self._shell.timeout_ms if function is COMMAND else self._default_timeout_ms

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._table.drain_finished()

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop."""
        for each in held:
            attempt = self._table.find(each)
            if attempt is not None and self._executors is not None:
                attempt.request_stop(why)
                self._executors.executor_for(attempt).stop(attempt)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        async with self._closing:
            self._stopping = True
            if self._executors is not None and not self._closed:
                await self._end_all(self._executors, drain_ms / 1000, grace_ms / 1000)
                await asyncio.to_thread(self._executors.close)
                CAPTURE.remove()
            self._closed = True

    async def _end_all(self, executors: "_Executors", drain: float, grace: float) -> None:
        """End all attempts, and report those that do not end."""
        self._drop_waiting(executors)
        await self._table.wait_until_empty(drain)
        self._environment.change_grace(grace)
        self.stop([attempt.ref for attempt in self._table.unreported()], why=Result.INTERRUPTED)
        await self._table.wait_until_empty(grace)
        await executors.process_executor.wait_until_exited(_KILL_WAIT_SECONDS)
        await executors.process_executor.close()
        for attempt in self._table.unreported():
            self._table.give_up(attempt, "; it did not stop")

    def _drop_waiting(self, executors: "_Executors") -> None:
        """Drop the attempts that have not begun."""
        for attempt in self._table.unreported():
            if attempt.claim():
                self._table.drop(attempt, _STOPPING_REASON)
                executors.executor_for(attempt).stop(attempt)

    def _open_executors(self) -> "_Executors | None":
        if self._executors is None and not self._stopping:
            CAPTURE.install()
            self._executors = _Executors(
                self._table,
                self._environment,
                self._settings,
                self._commands,
                self._agents,
                self._http_calls,
                self._imports,
            )
            if self._reporter is not None:
                self._executors.start(self._reporter)
        return None if self._stopping else self._executors


def _late_outcome(deadline_at: int) -> AttemptOutcome:
    error = f"{deadline_text(deadline_at)}, before it began"
    return AttemptOutcome(result=Result.TIMED_OUT, error=error, never_began=True, past_deadline=True)


class _AvailableFunctions(Collection[str]):
    """The names of the registered functions, and those that stand for commands, HTTP calls and agents if it has any."""

    def __init__(self, functions: Functions, *, has_commands: bool, has_http: bool, has_agents: bool) -> None:
        self._functions = functions
        commands = {SHELL: COMMAND} if has_commands else {}
        self._built_in = (
            commands | ({HTTP: HTTP_CALL} if has_http else {}) | ({AGENT: AGENT_CALL} if has_agents else {})
        )

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._functions

    def __iter__(self) -> Iterator[str]:
        yield from self._functions
        yield from self._built_in

    def __len__(self) -> int:
        return len(self._functions) + len(self._built_in)

    def get(self, name: str) -> Function | None:
        """The function of that name."""
        return self._built_in.get(name) or self._functions.get(name)


Executor = CoroutineExecutor | ThreadExecutor | ProcessExecutor


class _Executors:
    """The executors of a runner, and the control loop that watches their attempts."""

    def __init__(
        self,
        table: AttemptTable,
        environment: RunnerEnvironment,
        settings: WorkerSettings,
        commands: ShellExecutor,
        agents: AgentRunner | None,
        http_calls: HttpCallRunner | None,
        imports: Sequence[str],
    ) -> None:
        self._table = table
        self._environment = environment
        self._control_loop = LoopThread("gnomon-minder")
        self._coroutine_executor = CoroutineExecutor(table, environment, http_calls)
        self._thread_executor = ThreadExecutor(table, environment, self._control_loop, threads=settings.threads)
        self.process_executor = ProcessExecutor(
            table, environment, self._control_loop, commands, agents, limit=settings.max_concurrent, imports=imports
        )
        self._control_loop.call(self._sweep)

    def start(self, reporter: ProgressReporter) -> None:
        """Report the progress of the attempts from the control loop."""
        self._control_loop.call(reporter.start)

    def executor_for(self, attempt: RunningAttempt) -> Executor:
        """The executor for the kind of the attempt."""
        if attempt.function in (COMMAND, AGENT_CALL) or attempt.assignment.step.isolation is Isolation.PROCESS:
            return self.process_executor
        if attempt.function is HTTP_CALL or attempt.function.is_coroutine:
            return self._coroutine_executor
        return self._thread_executor

    def close(self) -> None:
        """End all threads that no function blocks."""
        self._coroutine_executor.close()
        self._thread_executor.close()
        self._control_loop.close(patience=_KILL_WAIT_SECONDS)

    def _sweep(self) -> None:
        coroutines = self._coroutine_executor
        coroutines.sweep([one for one in self._table.unreported() if self.executor_for(one) is coroutines])
        pause = min(_MAX_SWEEP_SECONDS, max(_MIN_SWEEP_SECONDS, self._environment.grace / 4))
        self._control_loop.loop.call_later(pause, self._sweep)
