"""The parent process of one command: `python -I -S shell_guardian.py PARENT MARK PROGRAM ARGUMENT…`.

It exits with the status of the command, and kills the descendants that are left. After a stop signal the descendants
have time to end by themselves. If the worker dies, it kills the whole tree. It imports nothing of Gnomon, so that it
starts fast.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: The kernel sends this signal when the worker has died. The command may use all others.
_ORPHANED = signal.SIGRTMAX
#: A shell adds this to the number of the signal that ended a command.
_SIGNALLED = 128
_LOST = 70


def main() -> NoReturn:
    """Run the command, and exit when it has ended."""
    parent, mark, *command = sys.argv[1:]
    stop_signals: list[int] = []
    # The command receives the signals of the group itself. Handlers, since the command would inherit SIG_IGN.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    signal.signal(_ORPHANED, lambda *_: _kill_orphans(mark))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, _ORPHANED)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != int(parent):
        os._exit(_LOST)
    environment = os.environ | {"GNOMON_TREE": mark}
    child = os.posix_spawn(command[0], command, environment, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    status = _status(child)
    with suppress(ChildProcessError):
        while stop_signals:
            os.wait()
        # Orphans become children of this process. Without children this raises, and there is nothing to kill.
        os.waitpid(-1, os.WNOHANG)
        _kill_and_exit(mark, status)
    os._exit(status)


def _status(child: int) -> int:
    """The exit status of the child, encoded as by a shell. Reaps orphans that exit in the meantime."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _SIGNALLED - code


def _kill_orphans(mark: str) -> NoReturn:
    """Kill the tree after the worker has died. The kernel signals the end of each of its threads; the first counts."""
    signal.signal(_ORPHANED, signal.SIG_IGN)
    try:
        _kill_and_exit(mark, _LOST)
    finally:
        # If that fails, at least kill the process group, this process included.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_and_exit(mark: str, status: int) -> NoReturn:
    """Kill the rest of the tree, and exit."""
    import runpy

    kill_tree = runpy.run_path(os.path.join(os.path.dirname(__file__), "process_tree.py"))["kill_tree"]  # noqa: PTH118, PTH120 - pathlib takes longer to load than the rest
    kill_tree(os.getpid(), mark, spare=os.getpid())
    os._exit(status)


if __name__ == "__main__":
    main()
