"""Runs one command and stays beside it: `python -I -S shell_guardian.py PARENT MARK PROGRAM ARGUMENT…`.

It ends with the status of the command, and kills what that left running; if the command was told to stop, what it
started has time to end by itself. If the worker dies, all of it is killed. It imports nothing of Gnomon, so that it is
there at once.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: What the system sends when the worker has died. The command may use all others.
_ORPHANED = signal.SIGRTMAX
#: What a shell adds to the number of the signal that ended a command.
_SIGNALLED = 128
_LOST = 70


def main() -> NoReturn:
    """Run the command, and be gone when it is."""
    parent, mark, *command = sys.argv[1:]
    told: list[int] = []
    # The command has its own signal. A handler, since what is ignored here would be ignored there, too.
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, lambda number, _: told.append(number))
    signal.signal(_ORPHANED, lambda *_: _orphaned(mark))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, _ORPHANED)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != int(parent):
        os._exit(_LOST)
    environment = os.environ | {"GNOMON_TREE": mark}
    child = os.posix_spawn(command[0], command, environment, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    status = _status(child)
    with suppress(ChildProcessError):
        while told:
            os.wait()
        # Whatever lost its parents is ours: without children there is nothing left.
        os.waitpid(-1, os.WNOHANG)
        _end(mark, status)
    os._exit(status)


def _status(child: int) -> int:
    """How it ended, as a shell says it. Whatever else becomes ours meanwhile is reaped."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _SIGNALLED - code


def _orphaned(mark: str) -> NoReturn:
    """The worker has died. It did so thread by thread, and the system tells us of each: one is enough."""
    signal.signal(_ORPHANED, signal.SIG_IGN)
    try:
        _end(mark, _LOST)
    finally:
        # Whatever went wrong, our own group goes, and we with it.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _end(mark: str, status: int) -> NoReturn:
    """Kill all that is left, and be gone."""
    import runpy

    kill_tree = runpy.run_path(os.path.join(os.path.dirname(__file__), "process_tree.py"))["kill_tree"]  # noqa: PTH118, PTH120 - pathlib takes longer to load than the rest
    kill_tree(os.getpid(), mark, spare=os.getpid())
    os._exit(status)


if __name__ == "__main__":
    main()
