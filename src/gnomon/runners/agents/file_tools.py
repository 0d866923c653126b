"""The tools of agents for files: within the workspace and the allowed roots, by the rules of paths of commands.

A path is resolved and judged, and then opened folder by folder without following a link: a link that another program
puts there after the check is refused.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gnomon.core.commands.paths import PathRules, is_in_repository
from gnomon.core.commands.policy import CommandPolicy
from gnomon.errors import CommandRefused, truncate
from gnomon.runners.real_files import RealFiles

#: The longest text that a model gets of a file, and that it may write, in bytes.
MOST_READ, MOST_WRITTEN = 65_536, 262_144
MOST_LISTED = 500
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ, _WRITE, _EXECUTE = 4, 2, 1


class FileTools:
    """Reads, writes and lists files as the user of commands may."""

    def __init__(self, policy: CommandPolicy, *, folder: str, workspace: str, owner: tuple[int, int] | None) -> None:
        """`owner` is the user of commands, if that is not the one of the worker; relative paths begin in `folder`."""
        self._files = RealFiles(folder)
        self._policy, self._workspace = policy, workspace
        self._owner = owner

    def read_file(self, path: str) -> str:
        """The text of a file, or its beginning; CommandRefused if the policy forbids it, OSError if it is none."""
        with self._parent(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                self._check_mode(os.fstat(descriptor), _READ)
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise IsADirectoryError(0, "it is no regular file")
                raw = file.read(MOST_READ + 1)
        text = raw[:MOST_READ].decode(errors="replace")
        return f"{text}\n[cut after {MOST_READ} bytes]" if len(raw) > MOST_READ else text

    def write_file(self, path: str, content: str) -> str:
        """Write a file, in a folder that exists. CommandRefused if the policy forbids it, OSError if it cannot be."""
        raw = content.encode(errors="replace")
        if len(raw) > MOST_WRITTEN:
            raise OSError(0, f"the content has {len(raw)} bytes; at most {MOST_WRITTEN} are allowed")
        if is_in_repository(path) or is_in_repository(self._allowed(path)):
            # The files there name programs that git starts.
            raise CommandRefused(f"forbidden path argument: {truncate(path)} (it lies in the folder of a repository)")
        with self._parent(path) as (folder, name):
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=folder)
            except FileNotFoundError:
                self._check_mode(os.fstat(folder), _WRITE)
                descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
                if self._owner is not None:
                    os.fchown(descriptor, *self._owner)
            with os.fdopen(descriptor, "wb") as file:
                found = os.fstat(descriptor)
                self._check_mode(found, _WRITE)
                if not stat.S_ISREG(found.st_mode):
                    raise IsADirectoryError(0, "it is no regular file")
                if found.st_nlink > 1:
                    # Another name of the file may lie where the policy forbids it.
                    raise CommandRefused(f"forbidden path argument: {truncate(path)} (the file has other names)")
                os.ftruncate(descriptor, 0)
                file.write(raw)
        return f"wrote {len(raw)} bytes"

    def list_files(self, path: str) -> str:
        """The names in a folder, folders with a slash behind them; sorted."""
        with self._opened(self._allowed(path)) as folder:
            self._check_mode(os.fstat(folder), _READ)
            with os.scandir(folder) as entries:
                found = [f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name for one in entries]
        names = sorted(found)[:MOST_LISTED]
        more = f"\n[{len(found) - len(names)} more]" if len(found) > len(names) else ""
        return "\n".join(names) + more

    def _allowed(self, path: str) -> str:
        """The absolute path without links; CommandRefused if the policy forbids it."""
        if not path or "\0" in path:
            raise CommandRefused("forbidden path argument: it is empty, or no path")
        policy = self._policy
        # A policy that lets commands name any path says nothing about models: they stay in the workspace.
        paths = PathRules(
            self._files,
            self._workspace,
            forbidden=policy.forbidden_paths,
            roots=policy.allowed_roots,
            workspace_only=True,
            home=policy.home,
        )
        if paths.refused(path) is not None:
            raise CommandRefused(f"forbidden path argument: {truncate(path)}{paths.note}")
        return self._files.resolve(path)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The opened folder of a file, and its name in it."""
        folder, _, name = self._allowed(path).rpartition("/")
        with self._opened(folder or "/") as descriptor:
            yield descriptor, name or "."

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        descriptor = os.open("/", _FOLDER)
        try:
            for name in filter(None, folder.split("/")):
                self._check_mode(os.fstat(descriptor), _EXECUTE)
                inner = os.open(name, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _check_mode(self, found: os.stat_result, wanted: int) -> None:
        """PermissionError if the user of commands may not do that; the kernel checks the user of the worker."""
        if self._owner is None:
            return
        user, group = self._owner
        shift = 6 if found.st_uid == user else 3 if found.st_gid == group else 0
        if not found.st_mode >> shift & wanted:
            raise PermissionError(0, "the user of commands may not do that")


def text_argument(arguments: Mapping[str, object], name: str, default: str | None = None) -> str:
    """The argument of a call, which is a text; ValueError if it is none."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")  # noqa: TRY004 - an argument, and no type of ours
    return value
