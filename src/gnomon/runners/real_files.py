"""The files of this machine, as the check of a command sees them: links are followed, patterns filled in."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import translate

from gnomon.core.commands.files import MOST_MATCHES, normal_path

_MAGIC = re.compile(r"[*?\[]")
#: A special character that stands for itself, as `glob.escape` writes it.
_ESCAPED = re.compile(r"\[([*?\[])\]")
_PARTS = re.compile("(/+)")
#: Patterns of one command that need more looks at names and folders are not filled in: they would keep the worker from
#: other commands. The number also bounds links in a circle, which lead to the same folder again and again.
_MOST_LOOKS = 200_000


class RealFiles:
    """The view from the folder of one command, all of whose patterns together have a limit. See FileView."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._looks = _LooksLeft(_MOST_LOOKS)

    def resolve(self, path: str) -> str:
        """See FileView.resolve."""
        try:
            return os.path.realpath(os.path.join(self._folder, path))  # noqa: PTH118 - pathlib drops slashes
        except ValueError:
            # A NUL is in no name of a file.
            return normal_path(path, self._folder)

    def matches(self, pattern: str) -> Sequence[str] | None:
        """See FileView.matches. The order is that of the bytes, as in the C locale."""
        found: list[str] = []
        try:
            for path in _PatternSearch(self._folder, self._looks).matches(pattern):
                found.append(path)
                if len(found) > MOST_MATCHES:
                    break
        except _TooManyLooksError:
            return None
        return sorted(found, key=os.fsencode)

    def program(self, name: str, folders: Sequence[str]) -> str | None:
        """See FileView.program. A file that nobody may execute is no program."""
        if "/" in name or "\0" in name:
            return None
        paths = (f"{folder}/{name}" for folder in map(normal_path, folders) if folder.startswith("/"))
        return next(filter(_is_program, paths), None)


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a text is wanted, not a path
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)


class _TooManyLooksError(Exception):
    """The patterns of a command need more looks at the file system than a worker has time for."""


class _LooksLeft:
    """The number of looks at names and folders that the patterns of a command may still take."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self) -> None:
        """Count one look; _TooManyLooksError if none is left, now and ever after."""
        if self._left < 1:
            raise _TooManyLooksError
        self._left -= 1


class _PatternSearch:
    """The search for the paths that match one pattern."""

    def __init__(self, folder: str, looks: _LooksLeft) -> None:
        self._folder = folder
        self._looks = looks

    def matches(self, pattern: str) -> Iterator[str]:
        """The paths, in no order, each written as the pattern is: relative, and with as many slashes."""
        # Names and the slashes between them take turns; an absolute pattern begins with an empty name.
        parts = _PARTS.split(pattern)
        return self._below("", parts)

    def _below(self, before: str, parts: Sequence[str]) -> Iterator[str]:
        """The paths that begin with `before`, and go on as the parts say."""
        name, slash, rest = parts[0], "".join(parts[1:2]), parts[2:]
        for one in self._named(before, name):
            path = f"{before}{one}{slash}"
            if not slash:
                yield path
            elif rest == [""]:
                yield from (path,) if self._is_folder(path) else ()
            else:
                yield from self._below(path, rest)

    def _named(self, before: str, name: str) -> Iterator[str]:
        """The names in the folder `before` that match."""
        plain = _ESCAPED.sub(r"\1", name)
        if not _MAGIC.search(_ESCAPED.sub("", name)):
            # A name without special characters needs no look at the others. An empty one is the root folder.
            self._looks.take()
            if not plain or os.path.lexists(self._path(before + plain)):
                yield plain
            return
        shape = re.compile(translate(name))
        for one in self._names_in(before):
            if shape.match(one) and (name[0] == "." or one[0] != "."):
                yield one

    def _names_in(self, folder: str) -> Iterator[str]:
        self._looks.take()
        try:
            with os.scandir(self._path(folder) or self._folder) as entries:
                for entry in entries:
                    self._looks.take()
                    yield entry.name
        except OSError:
            # It is no folder, or one that cannot be read: nothing matches in it.
            return

    def _is_folder(self, path: str) -> bool:
        self._looks.take()
        return os.path.isdir(self._path(path))  # noqa: PTH112

    def _path(self, written: str) -> str:
        return os.path.join(self._folder, written)  # noqa: PTH118 - pathlib drops slashes
