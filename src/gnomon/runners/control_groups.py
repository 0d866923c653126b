"""Control groups of commands: limits of the memory and the processes of a command as a whole, where we may make any.

Other limits hold for each process, and none limits the number of processes of root. Only version 2 is used, and only in
a folder that was delegated to the worker: on most systems the service manager owns all others, also if we are root.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_CGROUP, _MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")
_CONTROLLERS = ("memory", "pids")
#: The attributes by which a service manager marks a folder that it has delegated.
_DELEGATED = ("user.delegate", "trusted.delegate")
_PREFIX = "gnomon-"
#: An empty group that is older than this was left behind by a worker that was killed.
_LEFT_BEHIND_SECONDS = 60.0


class ControlGroups:
    """Makes a control group for each command in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Let groups in the folder have limits, and remove those that were left behind; OSError if that is refused."""
        enabled = (self.folder / "cgroup.subtree_control").read_text().split()
        if missing := [f"+{name}" for name in _CONTROLLERS if name not in enabled]:
            (self.folder / "cgroup.subtree_control").write_text(" ".join(missing))
        for group in self.folder.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if time.time() - group.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                    group.rmdir()

    def make(self, mark: str, *, memory: int, processes: int) -> Path | None:
        """A group with these limits, of which 0 is none; None if it cannot be made."""
        group = self.folder / f"{_PREFIX}{mark}"
        try:
            group.mkdir()
            for file, most in (("memory.max", memory), ("pids.max", processes)):
                if most:
                    (group / file).write_text(str(most))
        except OSError:
            remove_group(group)
            return None
        return group


def remove_group(group: Path) -> None:
    """Remove a group whose processes have ended. One that has some left stays, until a worker starts again."""
    with suppress(OSError):
        group.rmdir()


@cache
def delegated_groups() -> ControlGroups | None:
    """The control groups that this process may make; None if it may make none."""
    return next(_usable(_own_folders()), None)


def _usable(folders: Iterator[Path]) -> Iterator[ControlGroups]:
    for folder in folders:
        groups = ControlGroups(folder)
        with suppress(OSError):
            if _is_delegated(folder) and set(_CONTROLLERS) <= set((folder / "cgroup.controllers").read_text().split()):
                groups.prepare()
                yield groups


def _own_folders() -> Iterator[Path]:
    """The folder of our own control group, and the one around it, which holds processes only in groups."""
    with suppress(OSError, StopIteration, ValueError):
        entries = (line.split(":", 2) for line in _CGROUP.read_text().splitlines())
        own = Path(next(path for number, _, path in entries if number == "0"))
        fields = next(line.split() for line in _MOUNTS.read_text().splitlines() if " - cgroup2 " in line)
        root, mount = Path(fields[3]), Path(fields[4])
        folder = mount / own.relative_to(root)
        yield folder
        if folder != mount:
            yield folder.parent


def _is_delegated(folder: Path) -> bool:
    if not all(os.access(folder / name, os.W_OK) for name in (".", "cgroup.procs", "cgroup.subtree_control")):
        return False
    return os.geteuid() != 0 or any(map(_has_mark, (folder,) * len(_DELEGATED), _DELEGATED))


def _has_mark(folder: Path, attribute: str) -> bool:
    try:
        return os.getxattr(folder, attribute) == b"1"
    except OSError:
        return False
