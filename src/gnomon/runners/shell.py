"""Commands: a shell runs each in the workspace, with its own variables; its descendants are killed when it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gnomon.config.sections import ShellSettings
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.errors import FieldError
from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.child_process import CHUNK, LineSplitter, SupervisedProcess, attempt_variables
from gnomon.runners.ipc import ChildResult
from gnomon.runners.logs import Redact, no_redaction, storable
from gnomon.runners.outcomes import failed_outcome, returned_outcome
from gnomon.runners.registry import Function
from gnomon.runners.secrets import redactor

#: The parent process of the command: it kills the descendants when the command ends or the worker dies.
_GUARDIAN = str(Path(__file__).with_name("shell_guardian.py"))
_PROGRAM = "/bin/sh"
#: Prefix of the copies of the command's variables, which survive the profile of the login shell.
_ENV_PREFIX = "GNOMON_ENV_"
#: A shell adds this to the number of the signal that ended a command.
_SIGNALLED = 128
#: Bytes that one character of the output takes in JSON at most.
_MAX_JSON_CHAR_BYTES = 6


def _never_called() -> None:
    """Placeholder for the callable of COMMAND: processes run commands."""


COMMAND = Function(SHELL, _never_called)


class ShellInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """A command with its environment, folder and input. It may hold secrets."""

    command: str
    env: dict[str, str]
    folder: str
    stdin: str
    base: dict[str, str]
    max_output_bytes: int


class ShellRunner:
    """Starts the commands of one worker."""

    def __init__(self, environment: RunnerEnvironment, shell: ShellSettings) -> None:
        self._environment = environment
        self._inherit = shell.inherit
        self._workspace = Path(shell.workspace or Path.cwd()).resolve()

    def started(self, attempt: RunningAttempt) -> "ShellProcess":
        """Start the command; UsageError if its step is not valid here."""
        step, given = attempt.assignment.step, attempt.assignment.input
        # Only fields of the step: the caller who triggers a run must not set the variables of a program.
        own = {field: given[field] for field in step.input if field in given}
        filled, found = self._environment.secrets.resolve(own)
        if found:
            attempt.log.redact = redactor(found)
        plan = ShellInvocation(
            command=step.command,
            env={name: _text(value) for name, value in filled.get("env", {}).items()},
            folder=self._folder(filled.get("workdir", "")),
            stdin=_text(filled.get("stdin", "")),
            base={name: value for name in self._inherit if (value := os.environ.get(name)) is not None},
            max_output_bytes=self._environment.max_output_bytes,
        )
        return ShellProcess(plan, attempt)

    def _folder(self, workdir: object) -> str:
        if not self._workspace.is_dir():
            raise FieldError("shell.workspace", str(self._workspace), "is not a folder")
        wanted = (self._workspace / _text(workdir)).resolve()
        if not wanted.is_relative_to(self._workspace):
            raise FieldError("workdir", workdir, "is outside of the workspace")
        if not wanted.is_dir():
            raise FieldError("workdir", workdir, "is not a folder")
        return str(wanted)


class ShellProcess(SupervisedProcess):
    """A running command: its guardian process with the shell below it."""

    def __init__(self, plan: ShellInvocation, attempt: RunningAttempt) -> None:
        self._plan = plan
        self._facts = attempt.facts()
        self._stop_requested = False
        most = plan.max_output_bytes // _MAX_JSON_CHAR_BYTES // 2
        self._out, self._err = (_TailBuffer(self._log_writer(level), most) for level in ("stdout", "stderr"))
        super().__init__(attempt.log, (self._out, self._err))

    def terminate(self) -> None:
        """Send SIGTERM to the process group, and note that the command did not end by itself."""
        self._stop_requested = self._stop_requested or not self.exited.done()
        super().terminate()

    @property
    def ended(self) -> ChildResult | None:
        """The result of a command that ended by itself."""
        code = self._process.returncode
        if self._stop_requested or code is None or code < 0:
            return None
        return ChildResult(self._outcome(code))

    def _outcome(self, code: int) -> AttemptOutcome:
        redact = self._log.redact
        if code:
            return failed_outcome(f"exit status {code}{_signal(code)}{_after_colon(self._err.last_line(redact))}")
        output: dict[str, Any] = {"status": code, "stdout": self._out.tail(redact)}
        if self._out.cut:
            output["truncated"] = True
        return returned_outcome(output, max_bytes=self._plan.max_output_bytes, redact=redact)

    def _spawn(self, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        out, err = pipes
        plan = self._plan
        later = {_ENV_PREFIX + name: value for name, value in plan.env.items()}
        with os.fdopen(os.memfd_create("gnomon-stdin"), "wb") as file:
            file.write(plan.stdin.encode())
            file.seek(0)
            return subprocess.Popen(  # noqa: S603 - its purpose is to run commands
                [sys.executable, "-I", "-S", _GUARDIAN, str(os.getpid()), self._mark, _PROGRAM, "-lc", _script(plan)],
                stdin=file if plan.stdin else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=plan.folder,
                start_new_session=True,
                env=plan.base | plan.env | later | attempt_variables(self._facts),
            )


class _TailBuffer(LineSplitter):
    """Splits output into lines, and keeps the last `most` bytes of it."""

    def __init__(self, on_line: Callable[[bytes, bool], None], most: int) -> None:
        super().__init__(CHUNK, on_line)
        self._most = most
        self._last = bytearray()
        self.cut = False

    def feed(self, piece: bytes) -> None:
        """See LineSplitter.feed."""
        self._last += piece
        if len(self._last) > self._most:
            del self._last[: -self._most]
            self.cut = True
        super().feed(piece)

    def tail(self, redact: Redact) -> str:
        """The end of the output, without secrets."""
        text = self._last.decode(errors="replace")
        if self.cut and redact is not no_redaction:
            # The cut may have split a secret: drop the first line.
            text = text.partition("\n")[2]
        return storable(redact(text)).rstrip("\n")

    def last_line(self, redact: Redact) -> str:
        """The last line that is not empty."""
        return self.tail(redact).rstrip().rpartition("\n")[2].strip()


def _script(plan: ShellInvocation) -> str:
    """The command, preceded by setting its variables again: the profile of a login shell may have changed them."""
    if not plan.env:
        return plan.command
    again = " ".join(f'{name}="${_ENV_PREFIX}{name}"' for name in plan.env)
    return f"export {again}; unset {' '.join(_ENV_PREFIX + name for name in plan.env)}\n{plan.command}"


def _text(value: object) -> str:
    """The value of a field as text for a program; JSON unless it is a string."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _signal(code: int) -> str:
    with suppress(ValueError):
        return f" ({signal.Signals(code - _SIGNALLED).name})"
    return ""


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""
