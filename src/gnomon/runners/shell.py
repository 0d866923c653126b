"""Commands: each runs in the workspace, confined by the kernel, and its descendants are killed when it ends.

An open command is a text for the shell. A guarded one was checked word by word, and its programs are started by the
plan that the check has made: see `plan_process`.
"""

import asyncio
import marshal
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gnomon.config.sections import SecuritySettings, ShellSettings
from gnomon.core.agents.spec import ToolName
from gnomon.core.commands.plan import CommandPlan, PlannedCommand
from gnomon.core.commands.policy import (
    READ_ONLY_TEXT,
    Autonomy,
    CommandPolicy,
    check_command,
    guarded_policy,
    policy_for,
)
from gnomon.core.commands.rules import tool_refusal_text
from gnomon.core.commands.sandbox import Confinement
from gnomon.core.commands.tenants import may_run_commands
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL, Step
from gnomon.errors import CommandRefused, FieldError, UsageError, truncate
from gnomon.runners.agents.file_tools import FileTools
from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.child_process import LineSplitter, SupervisedProcess, attempt_variables
from gnomon.runners.command_sandbox import CommandSandbox
from gnomon.runners.control_groups import remove_group
from gnomon.runners.ipc import ChildResult
from gnomon.runners.kept_output import MOST_BYTES, KeptOutput, KeptText
from gnomon.runners.outcomes import failed_outcome, returned_outcome
from gnomon.runners.private_home import make_private_home, remove_homes_left_behind
from gnomon.runners.process_tree import MARK
from gnomon.runners.real_files import RealFiles
from gnomon.runners.registry import Function
from gnomon.runners.secrets import redactor
from gnomon.runners.shell_restrictions import ShellRestrictions
from gnomon.runners.workspace import Workspace

if TYPE_CHECKING:
    from gnomon.runners.kernel_sandbox import KernelRestrictions
    from gnomon.runners.plan_process import PlanSteps, ProgramStart
    from gnomon.runners.process_guardian import CommandStart

#: The parent processes of the command: they kill its descendants when it ends or the worker dies.
_GUARDIAN = str(Path(__file__).with_name("guardian_main.py"))
_PYTHON = (sys.executable, "-I", "-S")
#: The variables of the worker that its Python may need to start; the guardians see no others.
_GUARDIAN_VARIABLES = ("LD_LIBRARY_PATH",)
_PROGRAM = "/bin/sh"
#: Prefix of the copies of the command's variables, which survive the profile of the login shell.
_ENV_PREFIX = "GNOMON_ENV_"
#: A shell adds this to the number of the signal that ended a command.
_SIGNALLED = 128
#: The exit status of a shell that does not find the program.
_NOT_FOUND = 127
#: The words of `sudo` if it cannot gain privileges; its last line is about containers.
_SUDO_REFUSES = "no new privileges"
#: Less of each stream is not worth keeping.
_FEWEST_BYTES = 64


def _never_called() -> None:
    """Placeholder for the callable of COMMAND: processes run commands."""


COMMAND = Function(SHELL, _never_called)


class ShellInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """A command with its environment, folder and input. It may hold secrets."""

    #: The text for the shell.
    command: str
    #: The programs to start instead, without a shell.
    plan: CommandPlan | None
    #: Whether the shell reads the profile of the user.
    login: bool
    env: Mapping[str, str]
    folder: str
    stdin: str
    base: Mapping[str, str]
    sandbox: "KernelRestrictions | None"
    #: The workspace, if the command gets a home of its own in it, which is removed when it has ended.
    private_home: str | None
    #: The words of a program to start without a shell and without a plan.
    words: tuple[str, ...] = ()
    #: Whether no process of the command may leave a core dump.
    secret: bool
    max_output_bytes: int


class ShellExecutor:
    """Starts the commands of one worker."""

    def __init__(
        self,
        environment: RunnerEnvironment,
        shell: ShellSettings,
        security: SecuritySettings,
        *,
        workspace: Workspace,
        sandbox: CommandSandbox,
        runs_commands: bool = True,
    ) -> None:
        """Without `runs_commands` this worker refuses them, also those of models."""
        self._environment = environment
        self._runs_commands = runs_commands
        self._tenants = frozenset(shell.tenants)
        self._restrictions = ShellRestrictions(shell)
        self.timeout_ms = shell.timeout_ms
        self._inherit, self._login = shell.inherit, shell.login
        self._workspace = workspace
        self._sandbox = sandbox
        self._security = security
        self._has_tidied = False

    def prepared(self, attempt: RunningAttempt) -> ShellInvocation:
        """The command of an attempt, with everything that it needs to start.

        UsageError if its tenant may not run any, or its step is not valid here; CommandRefused if the policy of
        commands forbids it.
        """
        self._check_tenant(attempt)
        step, given = attempt.assignment.step, attempt.assignment.input
        # Only fields of the step: the caller who triggers a run must not set the variables of a program.
        own = {field: given[field] for field in step.input if field in given}
        filled, found = self._environment.secrets.resolve(own, tenant=attempt.tenant, job=attempt.job)
        if found:
            attempt.log.redact_with(redactor(found))
        env = {name: _variable(name, value) for name, value in filled.get("env", {}).items()}
        folder = self._workspace.folder(
            _text(filled.get("workdir", "")),
            shown=_text(own.get("workdir", "")),
            owner=self._restrictions.owner,
        )
        policy = policy_for(self._security, attempt.assignment.workflow.origin, home=self._restrictions.home)
        plan = (
            None
            if policy is None
            else self._plan(policy, step.command, env, folder, approved=attempt.assignment.approved)
        )
        # A policy that lets commands name any path cannot be held to by a list of folders.
        confined = self._sandbox.confinement(step, guarded=policy is not None and policy.workspace_only)
        private = confined is Confinement.FILES
        return ShellInvocation(
            command=step.command,
            plan=plan,
            # The profile is in the home of the user, which a command with confined files cannot read.
            login=self._login and not private,
            env=env,
            folder=folder,
            stdin=_text(filled.get("stdin", "")),
            base={**self._inherited(), **self._restrictions.variables, **self._sandbox.programs_variable(plan)},
            sandbox=self._sandbox.restrictions(confined, step, workspace=self._workspace.path, plan=plan),
            private_home=self._workspace.path if private else None,
            secret=bool(found),
            max_output_bytes=self._environment.max_output_bytes,
        )

    def refuse_tool(self) -> None:
        """Raise FieldError if an agent with the tool for commands cannot run here."""
        if not self._runs_commands:
            raise FieldError(
                "agent.tools", ToolName.SHELL, "runs commands, which this worker does not (worker.commands)"
            )

    def tool_invocation(self, attempt: RunningAttempt, command: str, *, network: bool) -> ShellInvocation:
        """A command of a model, which is guarded whatever the profile, and gets neither variables nor secrets.

        CommandRefused if the policy forbids it: no approval covers what a model makes up.
        """
        self.refuse_tool()
        self._check_tenant(attempt)
        folder = self._workspace.folder("", owner=self._restrictions.owner)
        plan = self._plan(self._guarded_policy(), command, {}, folder, approved=False, by_model=True)
        step = Step(name=attempt.assignment.step.name, function=SHELL, command=command, network=network)
        confined = self._sandbox.confinement(step, guarded=True)
        private = confined is Confinement.FILES
        return ShellInvocation(
            command=command,
            plan=plan,
            login=False,
            env={},
            folder=folder,
            stdin="",
            base={**self._inherited(), **self._restrictions.variables, **self._sandbox.programs_variable(plan)},
            sandbox=self._sandbox.restrictions(confined, step, workspace=self._workspace.path, plan=plan),
            private_home=self._workspace.path if private else None,
            secret=False,
            max_output_bytes=self._environment.max_output_bytes,
        )

    def server_invocation(
        self,
        attempt: RunningAttempt,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        folders: Sequence[str],
        network: bool,
    ) -> ShellInvocation:
        """The program of a server with tools, which the settings name: no policy of commands applies, but the sandbox.

        It executes nothing in the workspace, where models write. UsageError if there is no such program.
        """
        self._check_tenant(attempt)
        folder = self._workspace.folder("", owner=self._restrictions.owner)
        base = {**self._inherited(), **self._restrictions.variables}
        program = shutil.which(command[0], path=base.get("PATH", os.defpath))
        if program is None:
            raise UsageError(f"there is no program {command[0]}")
        step = Step(name=attempt.assignment.step.name, function=SHELL, command=command[0], network=network)
        confined = self._sandbox.confinement(step, guarded=True)
        private = confined is Confinement.FILES
        return ShellInvocation(
            command=command[0],
            plan=None,
            words=(program, *command[1:]),
            login=False,
            env={**env},
            folder=folder,
            stdin="",
            base=base,
            sandbox=self._sandbox.restrictions(
                confined, step, workspace=self._workspace.path, plan=None, folders=folders
            ),
            private_home=self._workspace.path if private else None,
            secret=bool(env),
            max_output_bytes=self._environment.max_output_bytes,
        )

    @property
    def restrictions(self) -> ShellRestrictions:
        """The restrictions of all commands of the worker."""
        return self._restrictions

    def file_tools(self, attempt: RunningAttempt) -> FileTools:
        """The tools of models for the files of the workspace; FieldError if its tenant may not run commands."""
        self._check_tenant(attempt)
        owner = self._restrictions.owner
        folder = self._workspace.folder("", owner=owner)
        return FileTools(self._guarded_policy(), folder=folder, workspace=self._workspace.path, owner=owner)

    def refuse_changes(self) -> None:
        """Raise CommandRefused if the autonomy is read-only."""
        if self._security.autonomy is Autonomy.READ_ONLY:
            raise CommandRefused(READ_ONLY_TEXT)

    def _guarded_policy(self) -> CommandPolicy:
        return guarded_policy(self._security, home=self._restrictions.home)

    def _check_tenant(self, attempt: RunningAttempt) -> None:
        if not may_run_commands(self._tenants, attempt.tenant):
            raise FieldError("command", attempt.tenant, "is a tenant that may not run commands on this worker")

    def started(self, attempt: RunningAttempt, invocation: ShellInvocation) -> "ShellProcess":
        """Start the command. It ends with the thread that calls this."""
        if invocation.private_home is not None and not self._has_tidied:
            self._has_tidied = True
            remove_homes_left_behind(invocation.private_home)
        return ShellProcess(invocation, self._restrictions, attempt)

    def _plan(
        self,
        policy: CommandPolicy,
        command: str,
        env: Mapping[str, str],
        folder: str,
        *,
        approved: bool,
        by_model: bool = False,
    ) -> CommandPlan:
        """The plan of a guarded command; CommandRefused if the policy forbids it."""
        verdict = check_command(
            policy,
            command,
            variables=env,
            files=RealFiles(folder),
            workspace=self._workspace.path,
            approved=approved,
        )
        if not verdict.allowed:
            raise CommandRefused(tool_refusal_text(verdict) if by_model else verdict.reason)
        if verdict.plan is None:
            raise CommandRefused(f"command not allowed: {truncate(command)} (its patterns match too many files)")
        return verdict.plan

    def _inherited(self) -> dict[str, str]:
        found = {name: value for name in self._inherit if (value := os.environ.get(name)) is not None}
        if "PATH" in found:
            # A relative entry would find programs in the workspace.
            absolute = filter(os.path.isabs, found["PATH"].split(os.pathsep))
            found["PATH"] = os.pathsep.join(absolute) or os.defpath
        return found


class ShellProcess(SupervisedProcess):
    """A running command: its guardian process with the shell or the programs below it."""

    def __init__(
        self,
        invocation: ShellInvocation,
        restrictions: ShellRestrictions,
        attempt: RunningAttempt,
        streams: Sequence[LineSplitter] = (),
    ) -> None:
        """`streams` receive its output instead of the log of the attempt."""
        self._invocation = invocation
        self._restrictions = restrictions
        self._facts = attempt.facts()
        self._stop_requested = False
        self._out, self._err = (KeptOutput(self._log_writer(level)) for level in ("stdout", "stderr"))
        self._group: Path | None = None
        workspace = invocation.private_home
        self._home = None if workspace is None else make_private_home(workspace, restrictions.owner)
        try:
            super().__init__(attempt.log, streams or (self._out, self._err))
        except BaseException:
            self._clean_up()
            raise

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

    @property
    def partial_output(self) -> bytes | None:
        """The output of a command that has no exit status."""
        redact = self._log.redact
        return self._output(None, self._out.text(redact), self._err.text(redact))

    async def kill_tree(self) -> bool:
        """See SupervisedProcess.kill_tree. Afterwards nothing uses the private home and the group any more."""
        gone = await super().kill_tree()
        await asyncio.to_thread(self._clean_up)
        return gone

    def _clean_up(self) -> None:
        """Remove the private home and the control group."""
        if self._home is not None:
            self._home.remove()
            self._home = None
        if self._group is not None:
            remove_group(self._group)

    def _outcome(self, code: int) -> AttemptOutcome:
        out, err = (kept.text(self._log.redact) for kept in (self._out, self._err))
        output = self._output(code, out, err)
        if not code:
            return AttemptOutcome(result=Result.SUCCEEDED, output=output)
        said = err.tail or err.head
        advice = _advice(code, said, self._invocation.folder)
        failed = failed_outcome(f"exit status {code}{_signal(code)}{_after_colon(_last_line(said))}{advice}")
        return msgspec.structs.replace(failed, output=output)

    def _output(self, code: int | None, out: KeptText, err: KeptText) -> bytes | None:
        """The status and what was printed, as much as the limit of outputs allows."""
        most, limit = MOST_BYTES, self._invocation.max_output_bytes
        while True:
            (stdout, cut_out), (stderr, cut_err) = out.shortened(most), err.shortened(most)
            output = {"status": code, "stdout": stdout, "stderr": stderr}
            if cut_out or cut_err:
                output["truncated"] = True
            if most <= _FEWEST_BYTES or len(msgspec.json.encode(output)) <= limit:
                return returned_outcome(output, max_bytes=limit, redact=self._log.redact).output
            most //= 2

    def _spawn(self, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        given = self._invocation.stdin
        with _memory_file("stdin", given.encode()) as stdin:
            return self._spawn_with(stdin.fileno() if given else subprocess.DEVNULL, pipes)

    def _spawn_with(self, stdin: int, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        """Start the guardian with this input."""
        out, err = pipes
        with _memory_file("start", self._start()) as start:
            return subprocess.Popen(  # noqa: S603 - its purpose is to run commands
                [*_PYTHON, _GUARDIAN, str(os.getpid()), str(start.fileno())],
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=self._invocation.folder,
                start_new_session=True,
                pass_fds=(start.fileno(),),
                env={name: value for name in _GUARDIAN_VARIABLES if (value := os.environ.get(name)) is not None},
            )

    def _start(self) -> bytes:
        """Everything about the command, for its guardians."""
        given, environment = self._invocation, self._variables()
        self._group = self._restrictions.control_group(self._mark)
        shell = () if given.plan is not None else (_PROGRAM, "-lc" if given.login else "-c", _script(given))
        words = given.words or shell
        start: CommandStart = {
            "environment": environment,
            "words": [os.fsencode(word) for word in words],
            "plan": None if given.plan is None else _steps(given.plan, environment),
            "limits": {},
            "open_files": 0,
            "processes": None,
            "capabilities": None,
            "user": None,
            "sandbox": given.sandbox,
            "control_group": None if self._group is None else str(self._group / "cgroup.procs"),
        }
        self._restrictions.apply(start, secrets=given.secret)
        # Builtin types only, although the type of the record says less.
        return marshal.dumps(dict(start))

    def _variables(self) -> dict[bytes, bytes]:
        """The environment of the command."""
        given = self._invocation
        later = (
            {}
            if given.plan is not None or given.words
            else {_ENV_PREFIX + name: value for name, value in given.env.items()}
        )
        home = {} if self._home is None else {"HOME": self._home.path, "TMPDIR": self._home.path}
        merged = {**given.base, **home, **given.env, **later, **attempt_variables(self._facts), MARK: self._mark}
        return {os.fsencode(name): os.fsencode(value) for name, value in merged.items()}


def _steps(plan: CommandPlan, environment: Mapping[bytes, bytes]) -> "PlanSteps":
    """The plan in the form that `plan_process` carries out."""
    return [
        (pipeline.connector.value, [_program(command, environment) for command in pipeline.commands])
        for pipeline in plan.pipelines
    ]


def _program(command: PlannedCommand, environment: Mapping[bytes, bytes]) -> "ProgramStart":
    assigned = {os.fsencode(name): os.fsencode(value) for name, value in command.variables.items()}
    return {
        "program": os.fsencode(command.program),
        "words": [os.fsencode(word) for word in command.words],
        "environment": {**environment, **assigned},
        "stdin": None if command.stdin is None else os.fsencode(command.stdin),
        "stdout": command.stdout.value,
        "stderr": command.stderr.value,
    }


def _memory_file(name: str, content: bytes) -> BinaryIO:
    """A file in memory, for a process that is to be started. It needs no limit on its size, as a pipe would."""
    file = os.fdopen(os.memfd_create(f"gnomon-{name}"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _script(given: ShellInvocation) -> str:
    """The command, preceded by setting its variables again: the profile of a login shell may have changed them."""
    if not given.env:
        return given.command
    again = " ".join(f'{name}="${_ENV_PREFIX}{name}"' for name in given.env)
    return f"export {again}; unset {' '.join(_ENV_PREFIX + name for name in given.env)}\n{given.command}"


def _text(value: object) -> str:
    """The value of a field as text for a program; JSON unless it is a string."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _variable(name: str, value: object) -> str:
    text = _text(value)
    if "\0" in text:
        raise FieldError(f"env.{name}", "[hidden]", "has a NUL character, which no variable can have")
    return text


def _signal(code: int) -> str:
    with suppress(ValueError):
        return f" ({signal.Signals(code - _SIGNALLED).name})"
    return ""


def _last_line(text: str) -> str:
    """The last line that is not empty."""
    return text.rstrip().rpartition("\n")[2].strip()


def _advice(code: int, said: str, folder: str) -> str:
    """The setting that a failure is about, if a shell or `sudo` says so in words that do not name it."""
    if _SUDO_REFUSES in said:
        return " (commands gain privileges only with shell.privileges: keep)"
    if code == _NOT_FOUND:
        return f" (in the folder {Path(folder).name}, see shell.workspace)"
    return ""


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""
