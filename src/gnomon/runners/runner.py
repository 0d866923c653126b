"""A runner that says what it starts, to whoever wants to hear it."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from gnomon.config.sections import Shell, Working
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, Outcome
from gnomon.core.runs.workflow import SHELL, Isolation
from gnomon.ports.execution import Finished, Runner
from gnomon.ports.tasks import Held
from gnomon.runners.attempt_table import Body, Desk, Shop
from gnomon.runners.coroutine_executor import Coroutines
from gnomon.runners.logs import CAPTURE, TaskLog
from gnomon.runners.loop_thread import LoopThread
from gnomon.runners.process_executor import Processes
from gnomon.runners.registry import Function, Functions
from gnomon.runners.secrets import SecretSource
from gnomon.runners.shell import COMMAND, Commands
from gnomon.runners.thread_executor import Threaded


class AnnouncingRunner:
    """Another runner, and its announcements."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        #: Called with what has been started.
        self.on_start: Callable[[Sequence[Assignment]], None] = lambda _: None

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
        self.on_start(assignments)

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._runner.finished()

    def stop(self, held: Collection[Held], *, why: Result) -> None:
        """See Runner.stop."""
        self._runner.stop(held, why=why)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        await self._runner.close(drain_ms=drain_ms, grace_ms=grace_ms)


#: How often bodies are looked for that should have stopped, in seconds.
_SLOWEST_SWEEP, _QUICKEST_SWEEP = 1.0, 0.02
#: How many seconds the system may take to clear away what was killed.
_BURIAL = 2.0
_STOPS = "the worker stops"


class FunctionRunner:
    """Runs registered functions and commands. Its threads begin with the first assignment and end when it is closed."""

    def __init__(
        self,
        functions: Functions,
        settings: Working,
        *,
        default_timeout_ms: int,
        secrets: SecretSource,
        on_finished: Callable[[], object],
        shell: Shell | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self._functions = _Offered(functions)
        self._shell = shell or Shell()
        self._settings = settings
        self._default_timeout_ms = default_timeout_ms
        self._imports = tuple(imports)
        self._desk = Desk(on_finished)
        self._shop = Shop(
            secrets,
            max_output_bytes=settings.max_output_bytes,
            max_log_lines=settings.max_log_lines,
            grace_ms=settings.kill_grace_ms,
        )
        self._homes: _Homes | None = None
        self._closing = asyncio.Lock()
        self._refuses = False
        self._closed = False

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._functions

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return self._desk.occupied

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning."""
        return self._desk.overrunning

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start. What cannot be begun here is NEVER_STARTED."""
        homes = self._opened()
        batches: dict[Home, list[Body]] = {}
        for assignment in assignments:
            function = self._functions.get(assignment.step.function)
            if function is None or homes is None:
                reason = _STOPS if homes is None else f"no function {assignment.step.function!r} here"
                self._desk.tell(assignment, Outcome(result=Result.NEVER_STARTED, error=reason))
                continue
            timeout_ms = assignment.step.timeout_ms or self._usual_timeout_ms(function)
            log = TaskLog(self._shop.max_log_lines)
            body = Body(assignment, function, timeout_ms=timeout_ms, log=log)
            self._desk.enter(body)
            batches.setdefault(homes.of(body), []).append(body)
        for home, bodies in batches.items():
            home.start(bodies)

    def _usual_timeout_ms(self, function: Function) -> int:
        return self._shell.timeout_ms if function is COMMAND else self._default_timeout_ms

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        return self._desk.collect()

    def stop(self, held: Collection[Held], *, why: Result) -> None:
        """See Runner.stop."""
        for each in held:
            body = self._desk.find(each)
            if body is not None and self._homes is not None:
                body.ask(why)
                self._homes.of(body).stop(body)

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close."""
        async with self._closing:
            self._refuses = True
            if self._homes is not None and not self._closed:
                await self._ended(self._homes, drain_ms / 1000, grace_ms / 1000)
                await asyncio.to_thread(self._homes.close)
                CAPTURE.remove()
            self._closed = True

    async def _ended(self, homes: "_Homes", drain: float, grace: float) -> None:
        """Everything has ended, or was told of as what cannot be ended."""
        self._drop_waiting(homes)
        await self._emptied(drain)
        self._shop.grace = grace
        self.stop([body.held for body in self._desk.unreported()], why=Result.INTERRUPTED)
        await self._emptied(grace)
        await homes.processes.buried(_BURIAL)
        for body in self._desk.unreported():
            self._desk.give_up(body, "; it did not stop")

    def _drop_waiting(self, homes: "_Homes") -> None:
        """Nothing begins any more."""
        for body in self._desk.unreported():
            if body.claim():
                self._desk.drop(body, _STOPS)
                homes.of(body).stop(body)

    async def _emptied(self, patience: float) -> None:
        """Wait until nothing occupies a slot, for so long."""
        empty, loop = asyncio.Event(), asyncio.get_running_loop()
        self._desk.when_empty = partial(loop.call_soon_threadsafe, empty.set)
        try:
            if self._desk.occupied:
                async with asyncio.timeout(patience):
                    await empty.wait()
        except TimeoutError:
            pass
        finally:
            self._desk.when_empty = None

    def _opened(self) -> "_Homes | None":
        if self._homes is None and not self._refuses:
            CAPTURE.install()
            self._homes = _Homes(self._desk, self._shop, self._settings, self._shell, self._imports)
        return None if self._refuses else self._homes


class _Offered(Collection[str]):
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


Home = Coroutines | Threaded | Processes


class _Homes:
    """Where bodies run, and who looks after them."""

    def __init__(self, desk: Desk, shop: Shop, settings: Working, shell: Shell, imports: Sequence[str]) -> None:
        self._desk = desk
        self._shop = shop
        self._minder = LoopThread("gnomon-minder")
        self._coroutines = Coroutines(desk, shop)
        self._threaded = Threaded(desk, shop, self._minder, threads=settings.threads)
        commands = Commands(shop, shell)
        self.processes = Processes(desk, shop, self._minder, commands, limit=settings.max_concurrent, imports=imports)
        self._minder.call(self._sweep)

    def of(self, body: Body) -> Home:
        """Where the body belongs."""
        if body.function is COMMAND or body.assignment.step.isolation is Isolation.PROCESS:
            return self.processes
        return self._coroutines if body.function.is_coroutine else self._threaded

    def close(self) -> None:
        """End all threads that can be ended."""
        self._coroutines.close()
        self._threaded.close()
        self._minder.close(patience=_BURIAL)

    def _sweep(self) -> None:
        bodies = [body for body in self._desk.unreported() if self.of(body) is self._coroutines]
        self._coroutines.sweep(bodies)
        pause = min(_SLOWEST_SWEEP, max(_QUICKEST_SWEEP, self._shop.grace / 4))
        self._minder.loop.call_later(pause, self._sweep)
