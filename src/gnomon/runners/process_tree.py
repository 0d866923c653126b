"""Find the process tree of an attempt in /proc, and kill it.

The tree is the root with its descendants, the members of its process group and session, and every process that has the
mark of the attempt in its environment. The mark finds daemons, which have left parent, group and session. A daemon that
has also cleared its environment is not found: only the guardian of the attempt, if it lives, finds that one.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: The variable that marks every process of one attempt.
MARK = "GNOMON_TREE"
_PROC = Path("/proc")
_ROUNDS = 200
_PAUSE = 0.01


class _Process(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int


def kill_tree(root: int, mark: str) -> bool:
    """Kill the tree of `root`, which must not have been reaped yet; False if some processes do not exit."""
    for _ in range(_ROUNDS):
        alive = _living(root, mark)
        if not alive:
            return True
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)
    return False


def _living(root: int, mark: str) -> list[int]:
    """The pids of the tree, without zombies."""
    processes = list(_processes())
    members = {root}
    for process in processes:
        if root in (process.group, process.session) or _carries(process.pid, mark):
            members.add(process.pid)
    while more := {process.pid for process in processes if process.parent in members} - members:
        members |= more
    return [process.pid for process in processes if process.pid in members and process.state not in "ZX"]


def _processes() -> Iterator[_Process]:
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The program name is in parentheses and may contain any character, a parenthesis too.
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                yield _Process(int(folder.name), fields[0], int(fields[1]), int(fields[2]), int(fields[3]))


def _carries(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
