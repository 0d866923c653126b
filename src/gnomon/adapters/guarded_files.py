"""Guarded files: files that grant permissions, such as configuration, jobs, pools, keys and certificates.

Users who can write to such a file can do everything that this process can. It is therefore refused if users other
than its owner, root and members of this process's groups can write to it, or if everybody can put another file in its
place.
"""

import os
import stat
from pathlib import Path

from gnomon.errors import FileError

#: The numbers of users and their private groups begin here; those below are of the system.
_FIRST_USER = 1000


def read_file(path: Path, *, largest: int, guarded: bool, private: bool = False) -> bytes:
    """The content of the file, checked and read through one handle, so that it cannot be swapped in between.

    OSError if it cannot be read, is larger than `largest` bytes, is guarded and others may write to it, or is private
    and everybody may read it. Containers mount secrets read-only with such a mode, which is accepted.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        if guarded:
            refuse_other_writers(path, found)
        if private and found.st_mode & stat.S_IROTH and not _is_read_only(file.fileno()):
            raise OSError(f"everybody may read it: chmod o-r {path}, and replace its content if it was read")
        content = file.read(largest + 1)
    if len(content) > largest:
        size = f"{largest // 2**20} MiB" if largest >= 2**20 else f"{largest} bytes"
        raise OSError(f"it has more than {size}")
    return content


def check_guarded(path: Path) -> None:
    """FileError if others may write to the file. For files that a library opens, which also reports a missing one."""
    try:
        refuse_other_writers(path, path.stat())
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(path, f"cannot be used: {error.strerror or error}") from None


def refuse_other_writers(path: Path, found: os.stat_result) -> None:
    """OSError, with the command that repairs it, if others may write to the file or replace it."""
    _refuse_public_file(path, found)
    if found.st_mode & stat.S_IWGRP and not _is_known_group(found):
        raise OSError(f"a group that this process is not in may write to it: chmod g-w {path}")
    for folder in _folders(path):
        mode = folder.stat().st_mode
        # In a sticky folder, such as /tmp, only the owner of a file can replace it.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not _is_read_only(folder):
            raise OSError(f"everybody may replace it, since everybody may write to its folder: chmod o-w {folder}")


def check_database_file(path: Path) -> None:
    """FileError if everybody may write to the database file or its logs.

    Groups may share a database, and its folder may be a volume that everybody can write to, so neither is refused.
    The file is not opened: closing it would release the locks that this process has on it.
    """
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
        try:
            _refuse_public_file(file, file.stat())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FileError(file, f"cannot be used: {error.strerror or error}") from None


def _refuse_public_file(path: Path, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IWOTH:
        raise OSError(f"everybody may write to it: chmod o-w {path}")


def _is_known_group(found: os.stat_result) -> bool:
    """Whether the group is one of this process, or that of the owner alone.

    Many systems give each user a group of the same number, and new files the mode 664. A container sees such files of
    its host under numbers that it has no names for.
    """
    private = found.st_gid == found.st_uid >= _FIRST_USER
    return private or found.st_gid in {os.getegid(), *os.getgroups()}


def _folders(path: Path) -> list[Path]:
    """All folders that lead to the file, both as it is named and as links resolve it."""
    return list(dict.fromkeys((*path.absolute().parents, *path.resolve().parents)))


def _is_read_only(place: Path | int) -> bool:
    """Whether the folder or open file is mounted read-only, as Kubernetes mounts configuration and secrets.

    It gives them modes that permit everybody everything, and nobody in the container can change these.
    """
    return bool(os.statvfs(place).f_flag & os.ST_RDONLY)


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe without a writer must not block.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
