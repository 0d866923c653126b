"""The private home of a command: a hidden folder in the workspace, removed when the command has ended.

Commands of the same workspace may rename it and put something else in its place, also between two steps of this module.
So the folder is known by its descriptor: nothing else is given away or emptied, and no link is followed. A home is
locked while its worker lives. One that is not locked was left behind by a worker that was killed.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFIX = ".gnomon-home-"
_NAME = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A home of another worker is not locked for a moment after it was made.
_LEFT_BEHIND_SECONDS = 60.0


class PrivateHome:
    """A folder that is home and holds the temporary files of one command."""

    def __init__(self, workspace: str, name: str) -> None:
        """Open the folder `name` of the workspace; OSError if it is none, or a link."""
        self._workspace = workspace
        self._name = name
        with _opened(workspace) as folder:
            self._home = os.open(name, _FOLDER, dir_fd=folder)

    @property
    def path(self) -> str:
        """The absolute path under which the folder was opened."""
        return f"{self._workspace}/{self._name}"

    @property
    def is_new(self) -> bool:
        """Whether the folder is one that this process has made, and that nobody has used yet."""
        found = os.fstat(self._home)
        return found.st_uid == os.geteuid() and not found.st_mode & 0o077 and not _names_in(self._home)

    @property
    def age(self) -> float:
        """The seconds since something in it was made, renamed or removed."""
        return time.time() - os.fstat(self._home).st_mtime

    def lock(self) -> None:
        """Lock the folder until this process ends or removes it; OSError if another process has."""
        fcntl.flock(self._home, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def give(self, owner: tuple[int, int]) -> None:
        """Give the folder to a user and a group."""
        os.fchown(self._home, *owner)

    def remove(self) -> None:
        """Remove the folder with all that a command has left in it, as far as that is possible."""
        with suppress(OSError):
            for name in _names_in(self._home):
                _remove(name, self._home)
            with _opened(self._workspace) as folder:
                found = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
                if os.path.samestat(found, os.fstat(self._home)):
                    os.rmdir(self._name, dir_fd=folder)
        self.close()

    def close(self) -> None:
        """Close the folder, and so unlock it."""
        os.close(self._home)


def make_private_home(workspace: str, owner: tuple[int, int] | None) -> PrivateHome | None:
    """A new home, which belongs to `owner`, a user and a group; None if the workspace is not writable."""
    name = _PREFIX + secrets.token_hex(8)
    try:
        with _opened(workspace) as folder:
            os.mkdir(name, 0o700, dir_fd=folder)
        home = PrivateHome(workspace, name)
    except OSError:
        return None
    try:
        if home.is_new:
            home.lock()
            if owner is not None:
                home.give(owner)
            return home
    except OSError:
        pass
    home.close()
    return None


def remove_homes_left_behind(workspace: str) -> None:
    """Remove the homes in the workspace that belong to no living worker."""
    with suppress(OSError):
        for name in filter(_NAME.fullmatch, _names_in(workspace)):
            with suppress(OSError):
                _remove_unless_used(PrivateHome(workspace, name))


def _remove_unless_used(home: PrivateHome) -> None:
    try:
        home.lock()
        is_used = home.age < _LEFT_BEHIND_SECONDS
    except OSError:
        is_used = True
    if is_used:
        home.close()
    else:
        home.remove()


def _names_in(folder: int | str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


@contextmanager
def _opened(workspace: str) -> Iterator[int]:
    folder = os.open(workspace, _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)


def _remove(name: str, folder: int) -> None:
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            return
    except OSError:
        return
    # Folders may be nested deeper than they can be removed.
    with suppress(RecursionError):
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
