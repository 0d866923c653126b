"""A view of the files of a folder, for checks of commands: it follows links, fills in patterns, and finds programs."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from pathlib import Path

_MAGIC = re.compile(r"[*?\[]")


class FolderFiles:
    """The files of a machine, seen from one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def resolve(self, path: str) -> str:
        return os.path.realpath(self._folder / path)

    def matches(self, pattern: str) -> Sequence[str] | None:
        head = re.match("/*", pattern)
        assert head is not None
        return sorted(self._matches(head[0], re.split("(/+)", pattern[head.end() :])), key=os.fsencode)

    def program(self, name: str, folders: Sequence[str]) -> str | None:
        found = (Path(folder, name) for folder in folders)
        return next((str(path) for path in found if path.is_file() and os.access(path, os.X_OK)), None)

    def _matches(self, before: str, parts: list[str]) -> Iterator[str]:
        """The paths that begin with `before`; names and the slashes between them take turns in `parts`."""
        name, slash, rest = parts[0], "".join(parts[1:2]), parts[2:]
        if not _MAGIC.search(name):
            found = [name] if (self._folder / before / name).exists() else []
        else:
            folder = self._folder / before
            shape = re.compile(translate(name))
            names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            found = [one for one in names if shape.match(one) and (name[0] == "." or one[0] != ".")]
        for one in found:
            path = before + one + slash
            if not slash:
                yield path
            elif (self._folder / path).is_dir():
                yield from self._matches(path, rest) if rest != [""] else iter((path,))
