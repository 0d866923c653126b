"""Guardians of processes: they kill all descendants of a command or of an isolated function when it ends.

A guardian is a subreaper: a descendant whose parent process ends becomes a child of the guardian. So it finds all
descendants, whatever session, process group and environment they have. It kills them when the process that it guards
ends, when its own parent process dies, or when KILL_ALL asks for it. Then it ends as the guarded process did.

A command has two guardians, since it may be able to kill one: `python -I -S guardian_main.py PARENT START`. The inner
guardian is the parent process of the command, the outer one is the parent process of the inner one and the child of the
worker. If one of them is killed, the other one kills the descendants. If both are killed at the same moment, the kernel
kills the guarded process itself. After a stop signal the descendants have time to end by themselves.

START is the descriptor of a file with everything about the command (CommandStart), its environment included: the
guardians must not run with variables such as LD_PRELOAD that a job sets. Only the command itself is in the sandbox: its
guardians must reach /proc and signal its processes.

This file imports of Gnomon only files that import nothing else of it, so that it starts fast.
"""

import ctypes
import marshal
import os
import resource
import sys
import time

from gnomon.runners.kernel_sandbox import restrict_process
from gnomon.runners.plan_process import run_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing this takes longer than the rest.
    import signal
    from collections.abc import Sequence
    from typing import NoReturn, TypedDict

    from gnomon.runners.kernel_sandbox import KernelRestrictions
    from gnomon.runners.plan_process import PlanSteps

    class CommandStart(TypedDict):
        """A command, as the worker hands it to the guardians."""

        environment: dict[bytes, bytes]
        #: The words of the program that becomes the command; empty if there is a plan.
        words: list[bytes]
        plan: PlanSteps | None
        #: Limits of each process, by the names of module `resource`.
        limits: dict[str, int]
        open_files: int
        #: How many processes the user may have before the command starts; None if their number is not limited.
        processes: int | None
        #: The capabilities that programs of root can have; None for all, and then programs can gain privileges.
        capabilities: Sequence[int] | None
        #: User, group and groups of the command; None for those of the worker.
        user: tuple[int, int, Sequence[int]] | None
        sandbox: KernelRestrictions | None
        #: The file by which a process joins the control group of the command; None if it has none.
        control_group: str | None
else:
    # The module `signal` makes enumerations of these functions and numbers, which takes as long as all the rest.
    import _signal as signal


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_MOST_CAPABILITIES = 64
#: Kill all descendants. The kernel sends this signal when the parent process has died. The command may use all others.
KILL_ALL = getattr(signal, "SIGRTMAX", signal.SIGTERM)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: A shell adds this to the number of the signal that ended a command.
_SIGNALLED = 128
_CANNOT_START, _LOST = 126, 70
#: How often, and with which pause in seconds, descendants are looked for after they were killed.
_ROUNDS, _PAUSE = 200, 0.01


def main() -> "NoReturn":
    """Run a command under two guardians."""
    parent, descriptor = map(int, sys.argv[1:])
    with os.fdopen(descriptor, "rb") as file:
        start: CommandStart = marshal.load(file)  # noqa: S302 - the worker has written it
    if start["processes"] is not None:
        _set_soft_limit(resource.RLIMIT_NPROC, start["processes"])
    _run(supervise(parent), start)


def supervise(parent: int) -> int:
    """Fork, and guard the child process: return in the child, with the pid of its guardian, and never in the guardian.

    `parent` is the parent process of the guardian. The child has the signal handlers of before.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGCHLD, *_STOP_SIGNALS, KILL_ALL)}
    _guard(parent)
    guardian, child = os.getpid(), fork_within_limit()
    if not child:
        for number, handler in before.items():
            signal.signal(number, handler)
        return guardian
    # The input of the child may be secret.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    code = os.waitstatus_to_exitcode(_wait_for(child))
    _kill_descendants()
    if code < 0:
        _die_by(-code)
    os._exit(code)


def fork_within_limit() -> int:
    """Fork. If the user has more processes than the soft limit, raise it until one more is allowed.

    The kernel counts the processes of the user in all containers, and /proc shows only those in this one.
    """
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            if soft in (hard, resource.RLIM_INFINITY):
                raise
            _set_soft_limit(resource.RLIMIT_NPROC, 2 * soft)


def _set_soft_limit(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _die_by(number: int) -> None:
    """End by the signal that has ended the guarded process: the worker reads it from this process."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _run(outer: int, start: "CommandStart") -> "NoReturn":
    """The inner guardian: run the command, and exit with its status."""
    stop_signals: list[int] = []
    try:
        # Only the user of the worker may join; the guardians stay outside, so that no limit hinders them.
        group = None if start["control_group"] is None else os.open(start["control_group"], os.O_WRONLY)
        _restrict(start)
        _guard(outer, stop_signals)
        child = _start(start, group)
    except OSError as error:
        os.write(2, f"gnomon: the command cannot be started: {error.strerror}\n".encode())
        os._exit(_CANNOT_START)
    code = os.waitstatus_to_exitcode(_wait_for(child))
    try:
        while stop_signals:
            os.wait()
    except ChildProcessError:
        pass
    _kill_descendants()
    os._exit(code if code >= 0 else _SIGNALLED - code)


def _start(start: "CommandStart", group: int | None) -> int:
    """Start the command with the usual signal handlers, and return its pid. The kernel kills it with this process.

    OSError if it cannot be started: in this process, or in the child, which must then end.
    """
    guardian, usual = os.getpid(), signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    # A signal to stop that arrives now must reach the command, and not a handler of this process in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, usual)
    try:
        child = os.fork()
        if not child:
            _die_with(guardian)
            for number in usual:
                signal.signal(number, signal.SIG_DFL)
            before = set()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not child:
        _become(start, group)
    return child


def _become(start: "CommandStart", group: int | None) -> "NoReturn":
    """Join the control group, enter the sandbox, and become the command."""
    if group is not None:
        os.write(group, b"0")
        os.close(group)
    if start["sandbox"] is not None:
        restrict_process(start["sandbox"])
    if start["plan"] is not None:
        os._exit(run_plan(start["plan"], _die_with))
    os.execve(start["words"][0], start["words"], start["environment"])  # noqa: S606 - the command is a shell


def _die_with(parent: int) -> None:
    """Have the kernel kill this process, and the program that it executes, when its parent process has died."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_LOST)


def _guard(parent: int, stop_signals: list[int] | None = None) -> None:
    """Become the subreaper of all descendants, and kill them if the parent process dies. Exit if it has died already.

    `stop_signals` collects the signals to stop. They also reach the guarded process, which is in the same group.
    """
    received = [] if stop_signals is None else stop_signals
    # Handlers, since the command would inherit SIG_IGN. The worker may ignore SIGCHLD, and then no child can be waited
    # for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda stop, _: received.append(stop))
    signal.signal(KILL_ALL, lambda *_: _kill_and_exit())
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _prctl(_PR_SET_PDEATHSIG, KILL_ALL)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        os._exit(_LOST)


def _prctl(*arguments: int) -> None:
    ctypes.CDLL(None).prctl(*arguments)


def _wait_for(child: int) -> int:
    """The wait status of the child. Reaps orphans that exit in the meantime."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def _kill_and_exit() -> "NoReturn":
    # The kernel signals the end of each thread of the parent process; the first counts.
    signal.signal(KILL_ALL, signal.SIG_IGN)
    try:
        _kill_descendants()
        os._exit(_LOST)
    finally:
        # If that fails, at least kill the process group, this process included.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_descendants() -> None:
    """Kill and reap all descendants. Gives up on processes that the kernel does not end."""
    for _ in range(_ROUNDS):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        stopped: set[int] = set()
        # Stop them first: a process that is stopped starts no others.
        while found := _descendants() - stopped:
            _signal_all(found, signal.SIGSTOP)
            stopped |= found
        _signal_all(stopped, signal.SIGKILL)
        time.sleep(_PAUSE)


def _signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            # It has ended, or belongs to another user.
            continue


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to load than the rest
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    # The program name is in parentheses and may contain any character, a parenthesis too.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        more = children.get(ahead.pop(), ())
        ahead += more
        found.update(more)
    return found


def _restrict(start: "CommandStart") -> None:
    """Give up privileges, limit resources and change the user, for this process and the command."""
    if start["capabilities"] is not None:
        _drop_privileges(start["capabilities"])
    # The worker has raised this limit for itself; a command may do the same.
    _set_soft_limit(resource.RLIMIT_NOFILE, start["open_files"])
    limits = dict(start["limits"])
    if start["processes"] is not None:
        limits["RLIMIT_NPROC"] += resource.getrlimit(resource.RLIMIT_NPROC)[0]
    for name, value in limits.items():
        limit = getattr(resource, name)
        highest = resource.getrlimit(limit)[1]
        wanted = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(limit, (wanted, wanted))
    if start["user"] is not None:
        user, group, groups = start["user"]
        os.setgroups(groups)
        os.setgid(group)
        os.setuid(user)


def _drop_privileges(kept: "Sequence[int]") -> None:
    """Leave only these capabilities, and let no program gain others, for instance by set-user-ID files."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if not os.geteuid():
        for number in range(_MOST_CAPABILITIES):
            if number not in kept:
                _prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
