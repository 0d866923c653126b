"""The questions that the check of a command asks a file system, and the answers of one that has only the text."""

import re
from collections.abc import Sequence
from typing import Protocol

#: An empty part of a path, or one of dots.
_NOT_NORMAL = re.compile(r"/(?:/|\.{1,2}(?:/|\Z)|\Z)")


class FileView(Protocol):
    """A file system as a check sees it. A server, which has not the files of the worker, answers by the text alone."""

    def resolve(self, path: str) -> str:
        """The absolute path to which a path leads, seen from the folder of the command, with all links followed.

        Every text has an answer, also one that names no file.
        """
        ...

    def matches(self, pattern: str) -> Sequence[str] | None:
        """The paths that a pattern stands for, in order; None if that cannot be known here.

        In a pattern `*`, `?` and `[…]` have their usual meaning, none of them stands for `/` or for a dot at the
        beginning of a name, and `.` and `..` match no pattern. A special character that stands for itself is in
        brackets, as `glob.escape` writes it: `[*]`. More than MOST_MATCHES paths need not be returned.
        """
        ...

    def program(self, name: str, folders: Sequence[str]) -> str | None:
        """The absolute path of a program in the first of the folders that has it; None if none has."""
        ...


#: A command with more patterns, or whose patterns stand for more paths, is refused.
MOST_PATTERNS = 200
MOST_MATCHES = 10_000


class TextFiles:
    """The view of a process that has not the files: it follows no link, fills in no pattern, and knows no program.

    A check with it refuses what the text alone shows to be wrong. The worker, which has the files, checks again.
    """

    def __init__(self, folder: str) -> None:
        """`folder` is the folder of the command, as an absolute path."""
        self._folder = normal_path(folder)

    def resolve(self, path: str) -> str:
        """The path without `.`, `..` and repeated slashes."""
        return normal_path(path, self._folder)

    def matches(self, pattern: str) -> Sequence[str] | None:  # noqa: ARG002 - part of FileView
        """None: the files are not here."""
        return None

    def program(self, name: str, folders: Sequence[str]) -> str | None:
        """Where the program would be in the first folder: whether it is there, only the worker knows."""
        return normal_path(name, folders[0]) if folders else None


def normal_path(path: str, folder: str = "/") -> str:
    """The absolute path that a path in a folder stands for by its text: links are not followed."""
    if path and "/" not in path and path not in (".", ".."):
        return f"{folder}/{path}" if folder != "/" else f"/{path}"
    whole = path if path.startswith("/") else f"{folder}/{path}"
    if not _NOT_NORMAL.search(whole):
        return whole
    parts: list[str] = []
    for part in whole.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def is_inside(path: str, folder: str) -> bool:
    """Whether a normal path is that of a folder, or of something in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")
