"""A runner on virtual time: scripted functions and commands, and real functions, which end after a scripted time."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, repeat

from msgspec.structs import replace

from gnomon.config.sections import SecretsSettings
from gnomon.config.settings import Settings
from gnomon.core.durations import duration_ms
from gnomon.core.instants import instant_of
from gnomon.core.model import DAY_MS, Result
from gnomon.core.runs.deadlines import deadline_text, earliest
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.workflow import Step
from gnomon.errors import FieldError, UsageError
from gnomon.ports.execution import Finished
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.attempt_table import RunningAttempt, error_outcome
from gnomon.runners.context import AttemptInfo, attempt_info
from gnomon.runners.logs import TaskLog, no_redaction
from gnomon.runners.outcomes import failed_outcome, give_up_outcome, raised_outcome, returned_outcome, with_logs
from gnomon.runners.registry import Function, Span
from gnomon.runners.secrets import SecretSource
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.results import FunctionCall

#: An error, or the class of one.
ErrorSpec = BaseException | type[BaseException]
_LONGEST_MS = 3_650 * DAY_MS
_MAX_BYTES, _MAX_LINES = 1 << 20, 10_000
_LARGEST_STATUS = 255


@dataclass
class FunctionScript:
    """The scripted behaviour of a function or command."""

    #: The real function to call; None if it is only scripted.
    function: Function | None = None
    returns: object = None
    #: One for each call. The last duration repeats for ever; after the last error the function succeeds.
    takes: Iterator[int] = field(default_factory=lambda: repeat(0))
    raises: Iterator[ErrorSpec | None] = field(default_factory=lambda: repeat(None))
    #: For a command: its output and its exit statuses.
    stdout: str = ""
    statuses: Iterator[int] = field(default_factory=lambda: repeat(0))


def function_script(
    function: Function | None,
    *,
    returns: object,
    takes: Span | Sequence[Span],
    raises: ErrorSpec | Sequence[ErrorSpec | None] | None,
) -> FunctionScript:
    """The script of a function."""
    if raises is None or isinstance(raises, Sequence):
        errors: Iterator[ErrorSpec | None] = chain(raises or (), repeat(None))
    else:
        errors = repeat(raises)
    return FunctionScript(function=function, returns=returns, takes=_durations_ms(takes), raises=errors)


def command_script(*, stdout: str, takes: Span | Sequence[Span], status: int | Sequence[int]) -> FunctionScript:
    """The script of a command."""
    for one in [status] if isinstance(status, int) else status:
        if not isinstance(one, int) or not 0 <= one <= _LARGEST_STATUS:
            raise FieldError("status", one, f"must be a number from 0 to {_LARGEST_STATUS}")
    statuses = repeat(status) if isinstance(status, int) else chain(status, repeat(0))
    return FunctionScript(takes=_durations_ms(takes), stdout=stdout, statuses=statuses)


def _durations_ms(takes: Span | Sequence[Span]) -> Iterator[int]:
    spans = takes if isinstance(takes, Sequence) and not isinstance(takes, str) else [takes]
    lasting = [span_ms("takes", one) for one in spans] or [0]
    return chain(lasting, repeat(lasting[-1]))


def span_ms(name: str, span: Span) -> int:
    """The span in milliseconds."""
    value = span.total_seconds() if isinstance(span, timedelta) else span
    return duration_ms(name, value, high=_LONGEST_MS)


class _ScriptedAttempt(RunningAttempt):
    """An attempt with its deadline on the virtual clock."""

    __slots__ = ("_deadline_at",)

    def __init__(self, assignment: Assignment, function: Function, *, timeout_ms: int, now: int) -> None:
        super().__init__(assignment, function, timeout_ms=timeout_ms, log=TaskLog(_MAX_LINES))
        self._deadline_at = earliest(now + timeout_ms, assignment.task.deadline_at)

    def facts(self) -> AttemptInfo:
        return attempt_info(self.assignment, deadline_at=self._deadline_at)


class ScriptedRunner:
    """Runs all functions and commands of a test. Those without a script do nothing and succeed."""

    def __init__(
        self, clock: VirtualClock, queue: EventQueue, settings: Settings, *, on_finished: Callable[[], None]
    ) -> None:
        """`on_finished` is called when an attempt has ended."""
        self._clock = clock
        self._queue = queue
        self._default_timeout_ms = settings.execution.default_timeout_ms
        self._command_timeout_ms = settings.shell.timeout_ms
        self._scripts: dict[str, FunctionScript] = {}
        self._commands: dict[str, FunctionScript] = {}
        self._known: set[str] = set()
        self._pending: list[Assignment] = []
        self._running: dict[AttemptRef, Assignment] = {}
        self._finished: list[Finished] = []
        #: How many outcomes `finished` has returned.
        self.reported_count = 0
        self.calls: dict[str, list[FunctionCall]] = {}
        self.secrets: dict[str, str] = {}
        self._on_finished = on_finished

    def add_known_functions(self, names: Collection[str]) -> None:
        """Add functions that a job names."""
        self._known |= set(names)

    def script_function(self, name: str, script: FunctionScript) -> None:
        """Use this script for the function from now on."""
        self._scripts[name] = script
        self._known.add(name)

    def script_command(self, command: str, script: FunctionScript) -> None:
        """Use this script for the command from now on."""
        self._commands[command] = script

    # ---- runner ------------------------------------------------------------------------------

    @property
    def functions(self) -> Collection[str]:
        """See Runner.functions."""
        return self._known

    @property
    def occupied(self) -> int:
        """See Runner.occupied."""
        return len(self._running)

    @property
    def overrunning(self) -> int:
        """See Runner.overrunning. Scripted attempts stop at once."""
        return 0

    def start(self, assignments: Sequence[Assignment]) -> None:
        """See Runner.start."""
        self._running |= {_attempt_ref(one): one for one in assignments}
        self._pending += assignments

    def finished(self) -> Sequence[Finished]:
        """See Runner.finished."""
        found, self._finished = self._finished, []
        self.reported_count += len(found)
        return found

    def stop(self, held: Collection[AttemptRef], *, why: Result) -> None:
        """See Runner.stop. The attempts end at once."""
        for one in sorted(held):
            if one in self._running:
                self._end(self._running[one], AttemptOutcome(result=why, error=f"was stopped: {why}"))

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        """See Runner.close. Does nothing: the process of a test is never stopped, only killed."""
        del drain_ms, grace_ms

    def die(self) -> None:
        """Drop all attempts, and the outcomes that were not collected."""
        self._running, self._finished, self._pending = {}, [], []

    # ---- attempts ----------------------------------------------------------------------------

    async def run_pending(self) -> None:
        """Call the started functions one after the other; each attempt ends after its scripted time."""
        while self._pending:
            assignment = self._pending.pop(0)
            script = self._script_for(assignment.step)
            self._note(assignment)
            outcome = await self._outcome(assignment, script)
            lasts, timeout = next(script.takes), self._timeout_ms(assignment.step)
            deadline_at = assignment.task.deadline_at
            left = timeout + 1 if deadline_at is None else max(0, deadline_at - self._clock.now())
            if deadline_at is not None and lasts >= left and left <= timeout:
                text = deadline_text(deadline_at)
                outcome, timeout = AttemptOutcome(result=Result.TIMED_OUT, error=text, past_deadline=True), left
            elif lasts > timeout:
                outcome = AttemptOutcome(result=Result.TIMED_OUT, error=f"took longer than {timeout / 1000:g} s")
            self._end_after(min(lasts, timeout), assignment, outcome)

    def _script_for(self, step: Step) -> FunctionScript:
        own = self._commands.get(step.command) if step.is_command else None
        return own or self._scripts.get(step.function) or FunctionScript()

    def _timeout_ms(self, step: Step) -> int:
        return step.timeout_ms or (self._command_timeout_ms if step.is_command else self._default_timeout_ms)

    def _note(self, assignment: Assignment) -> None:
        run = assignment.run
        call = FunctionCall(
            function=assignment.step.function,
            job=run.schedule_id or run.workflow_id,
            step=assignment.step.name,
            execution_id=run.run_id,
            planned_at=instant_of(run.planned_at),
            at=instant_of(self._clock.now()),
            attempt=assignment.attempt,
            input=shown_data(assignment.input),
        )
        self.calls.setdefault(call.function, []).append(call)

    async def _outcome(self, assignment: Assignment, script: FunctionScript) -> AttemptOutcome:
        error = next(script.raises)
        if error is not None:
            return raised_outcome(error if isinstance(error, BaseException) else error(), redact=no_redaction)
        if script.function is None and assignment.step.is_command and script.returns is None:
            return _exited(next(script.statuses), script.stdout)
        if script.function is None:
            return returned_outcome(script.returns, max_bytes=_MAX_BYTES, redact=no_redaction)
        timeout = self._timeout_ms(assignment.step)
        return await self._called(
            _ScriptedAttempt(assignment, script.function, timeout_ms=timeout, now=self._clock.now())
        )

    async def _called(self, attempt: _ScriptedAttempt) -> AttemptOutcome:
        try:
            try:
                call = attempt.call(
                    SecretSource(SecretsSettings(allow=tuple(f"{name}=*" for name in self.secrets)), self.secrets)
                )
            except UsageError as error:
                return give_up_outcome(attempt.log.redact(str(error)))
            value = await call() if attempt.function.is_coroutine else await asyncio.to_thread(call)
            outcome = returned_outcome(value, max_bytes=_MAX_BYTES, redact=attempt.log.redact)
        except Exception as error:  # noqa: BLE001 - any error of a function is its outcome
            outcome = error_outcome(attempt, error)
        return with_logs(outcome, attempt.log.take())

    def _end_after(self, ms: int, assignment: Assignment, outcome: AttemptOutcome) -> None:
        async def end() -> None:
            if self._running.get(_attempt_ref(assignment)) is assignment:
                self._end(assignment, outcome)

        self._queue.after(ms, end)

    def _end(self, assignment: Assignment, outcome: AttemptOutcome) -> None:
        del self._running[_attempt_ref(assignment)]
        self._finished.append(Finished(assignment, outcome))
        self._on_finished()


def _exited(status: int, stdout: str) -> AttemptOutcome:
    """The outcome that a worker reports for this exit status and output."""
    output = {"status": status, "stdout": stdout, "stderr": ""}
    returned = returned_outcome(output, max_bytes=_MAX_BYTES, redact=no_redaction)
    if not status:
        return returned
    return replace(failed_outcome(f"exit status {status}"), output=returned.output)


def _attempt_ref(assignment: Assignment) -> AttemptRef:
    return assignment.task.task_id, assignment.task.fence
