"""A runner that says what it starts, to whoever wants to hear it."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from gnomon.config.sections import ShellSettings, WorkerSettings
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import SHELL, Isolation
from gnomon.ports.execution import Finished, Runner
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.attempt_table import AttemptTable, RunnerEnvironment, RunningAttempt
from gnomon.runners.coroutine_executor import CoroutineExecutor
from gnomon.runners.logs import CAPTURE, TaskLog
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.process_executor import ProcessExecutor
from gnomon.runners.registry import Function, Functions
from gnomon.runners.secrets import SecretSource
from gnomon.runners.shell import COMMAND, ShellRunner
from gnomon.runners.thread_executor import ThreadExecutor


class NotifyingRunner:
    """Another runner, and its announcements."""

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


#: How often bodies are looked for that should have stopped, in seconds.
_MAX_SWEEP_SECONDS, _MIN_SWEEP_SECONDS = 1.0, 0.02
#: How many seconds the system may take to clear away what was killed.
_KILL_WAIT_SECONDS = 2.0
_STOPPING_REASON = "the worker stops"


class FunctionRunner:
    """Runs registered functions and commands. Its threads begin with the first assignment and end when it is closed."""

    def __init__(
        self,
        functions: Functions,
        settings: WorkerSettings,
        *,
        default_timeout_ms: int,
        secrets: SecretSource,
        on_finished: Callable[[], object],
        shell: ShellSettings | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self._functions = _AvailableFunctions(functions)
        self._shell = shell or ShellSettings()
        self._settings = settings
        self._default_timeout_ms = default_timeout_ms
        self._imports = tuple(imports)
        self._attempts = AttemptTable(on_finished)
        self._environment = RunnerEnvironment(
            secrets,
            max_output_bytes=settings.max_output_bytes,
            max_log_lines=settings.max_log_lines,
            grace_ms=settings.kill_grace_ms,
        )
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
        return self._attempts.occupied

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning."""
        return self._attempts.overrunning

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start. What cannot be begun here is NEVER_STARTED."""
        homes = self._open_executors()
        batches: dict[Executor, list[RunningAttempt]] = {}
        for assignment in assignments:
            function = self._functions.get(assignment.step.function)
            if function is None or homes is None:
                reason = _STOPPING_REASON if homes is None else f"no function {assignment.step.function!r} here"
                self._attempts.add_outcome(assignment, AttemptOutcome(result=Result.NEVER_STARTED, error=reason))
                continue
            timeout_ms = assignment.step.timeout_ms or self._usual_timeout_ms(function)
            log = TaskLog(self._environment.max_log_lines)
            body = RunningAttempt(assignment, function, timeout_ms=timeout_ms, log=log)
            self._attempts.add(body)
            batches.setdefault(homes.executor_for(body), []).append(body)
        for home, bodies in batches.items():
            home.start(bodies)

    def _usual_timeout_ms(self, function: Function) -> int:
        return self._shell.timeout_ms if function is COMMAND else self._default_timeout_ms

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._attempts.drain_finished()

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop."""
        for each in held:
            body = self._attempts.find(each)
            if body is not None and self._executors is not None:
                body.request_stop(why)
                self._executors.executor_for(body).stop(body)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        async with self._closing:
            self._stopping = True
            if self._executors is not None and not self._closed:
                await self._end_all(self._executors, drain_ms / 1000, grace_ms / 1000)
                await asyncio.to_thread(self._executors.close)
                CAPTURE.remove()
            self._closed = True

    async def _end_all(self, homes: "_Executors", drain: float, grace: float) -> None:
        """Everything has ended, or was told of as what cannot be ended."""
        self._drop_waiting(homes)
        await self._wait_until_empty(drain)
        self._environment.grace = grace
        self.stop([body.held for body in self._attempts.unreported()], why=Result.INTERRUPTED)
        await self._wait_until_empty(grace)
        await homes.process_executor.wait_until_exited(_KILL_WAIT_SECONDS)
        for body in self._attempts.unreported():
            self._attempts.give_up(body, "; it did not stop")

    def _drop_waiting(self, homes: "_Executors") -> None:
        """Nothing begins any more."""
        for body in self._attempts.unreported():
            if body.claim():
                self._attempts.drop(body, _STOPPING_REASON)
                homes.executor_for(body).stop(body)

    async def _wait_until_empty(self, patience: float) -> None:
        """Wait until nothing occupies a slot, for so long."""
        empty, loop = asyncio.Event(), asyncio.get_running_loop()
        self._attempts.on_empty = partial(loop.call_soon_threadsafe, empty.set)
        try:
            if self._attempts.occupied:
                async with asyncio.timeout(patience):
                    await empty.wait()
        except TimeoutError:
            pass
        finally:
            self._attempts.on_empty = None

    def _open_executors(self) -> "_Executors | None":
        if self._executors is None and not self._stopping:
            CAPTURE.install()
            self._executors = _Executors(self._attempts, self._environment, self._settings, self._shell, self._imports)
        return None if self._stopping else self._executors


class _AvailableFunctions(Collection[str]):
    """The functions that are registered, and the one that stands for commands."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def __contains__(self, name: object) -> bool:
        return name == SHELL or name in self._functions

    def __iter__(self) -> Iterator[str]:
        yield from self._functions
        yield SHELL

    def __len__(self) -> int:
        return len(self._functions) + 1

    def get(self, name: str) -> Function | None:
        """The function of that name."""
        return COMMAND if name == SHELL else self._functions.get(name)


Executor = CoroutineExecutor | ThreadExecutor | ProcessExecutor


class _Executors:
    """Where bodies run, and who looks after them."""

    def __init__(
        self,
        attempts: AttemptTable,
        environment: RunnerEnvironment,
        settings: WorkerSettings,
        shell: ShellSettings,
        imports: Sequence[str],
    ) -> None:
        self._attempts = attempts
        self._environment = environment
        self._control_loop = LoopThread("gnomon-minder")
        self._coroutine_executor = CoroutineExecutor(attempts, environment)
        self._thread_executor = ThreadExecutor(attempts, environment, self._control_loop, threads=settings.threads)
        commands = ShellRunner(environment, shell)
        self.process_executor = ProcessExecutor(
            attempts, environment, self._control_loop, commands, limit=settings.max_concurrent, imports=imports
        )
        self._control_loop.call(self._sweep)

    def executor_for(self, body: RunningAttempt) -> Executor:
        """Where the body belongs."""
        if body.function is COMMAND or body.assignment.step.isolation is Isolation.PROCESS:
            return self.process_executor
        return self._coroutine_executor if body.function.is_coroutine else self._thread_executor

    def close(self) -> None:
        """End all threads that can be ended."""
        self._coroutine_executor.close()
        self._thread_executor.close()
        self._control_loop.close(patience=_KILL_WAIT_SECONDS)

    def _sweep(self) -> None:
        bodies = [body for body in self._attempts.unreported() if self.executor_for(body) is self._coroutine_executor]
        self._coroutine_executor.sweep(bodies)
        pause = min(_MAX_SWEEP_SECONDS, max(_MIN_SWEEP_SECONDS, self._environment.grace / 4))
        self._control_loop.loop.call_later(pause, self._sweep)
