"""The process that carries out the plan of a command: it starts the programs, without a shell.

It follows the rules of `sh` about pipes, connectors and exit statuses, and reads no text: programs and words come as
they were checked. This file imports nothing of Gnomon, so that guardians of commands start fast.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing this takes longer than the rest.
    from collections.abc import Callable, Sequence
    from typing import NoReturn, TypedDict

    class ProgramStart(TypedDict):
        """One program of a plan."""

        program: bytes
        words: list[bytes]
        #: The environment, with the variables that are assigned before the program.
        environment: dict[bytes, bytes]
        #: The file that it reads; None for the pipe before it, or the input of the command.
        stdin: bytes | None
        #: `inherit`, `null`, or for standard error also `stdout`.
        stdout: str
        stderr: str

    #: Pipelines, each with the connector before it: `always`, `and` or `or`.
    PlanSteps = Sequence[tuple[str, Sequence[ProgramStart]]]

#: A shell adds this to the number of the signal that ended a program.
_SIGNALLED = 128
_NOT_FOUND, _CANNOT_RUN, _CANNOT_OPEN = 127, 126, 1


def run_plan(pipelines: "PlanSteps", tie_to: "Callable[[int], None]") -> int:
    """Run the pipelines one after another, and return the status of the last one that ran.

    Each program calls `tie_to` with the pid of this process, so that it ends together with it.
    """
    status = 0
    for connector, programs in pipelines:
        if connector == "always" or (connector == "and") == (status == 0):
            status = _run_pipeline(programs, tie_to)
    return status


def _run_pipeline(programs: "Sequence[ProgramStart]", tie_to: "Callable[[int], None]") -> int:
    """Run programs side by side, wait for all of them, and return the status of the last one."""
    started: list[int] = []
    source: int | None = None
    for number, program in enumerate(programs, 1):
        following, sink = os.pipe() if number < len(programs) else (None, None)
        started.append(_start(program, source, sink, tie_to))
        for end in (source, sink):
            if end is not None:
                os.close(end)
        source = following
    statuses = [os.waitpid(pid, 0)[1] for pid in started]
    code = os.waitstatus_to_exitcode(statuses[-1])
    return code if code >= 0 else _SIGNALLED - code


def _start(program: "ProgramStart", source: int | None, sink: int | None, tie_to: "Callable[[int], None]") -> int:
    """Start one program that reads from `source` and writes to `sink`, and return its pid."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            tie_to(parent)
            _connect(program, source, sink)
            _execute(program)
        finally:
            os._exit(_CANNOT_RUN)
    return child


def _connect(program: "ProgramStart", source: int | None, sink: int | None) -> None:
    path = program["stdin"]
    if path is not None:
        try:
            source = os.open(path, os.O_RDONLY)
        except OSError as error:
            _end(path, f"cannot open: {error.strerror}", _CANNOT_OPEN)
    if source is not None:
        os.dup2(source, 0)
    if program["stdout"] == "null":
        sink = os.open(os.devnull, os.O_WRONLY)
    if sink is not None:
        os.dup2(sink, 1)
    if program["stderr"] == "stdout":
        os.dup2(1, 2)
    elif program["stderr"] == "null":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _execute(program: "ProgramStart") -> "NoReturn":
    path = program["program"]
    try:
        os.execve(path, program["words"], program["environment"])  # noqa: S606 - the words were checked
    except FileNotFoundError:
        _end(path, "not found", _NOT_FOUND)
    except OSError as error:
        _end(path, str(error.strerror), _CANNOT_RUN)


def _end(path: bytes, reason: str, status: int) -> "NoReturn":
    os.write(2, b"gnomon: %s: %s\n" % (path, reason.encode()))
    os._exit(status)
