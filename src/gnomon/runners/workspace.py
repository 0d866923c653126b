"""The workspace: the folder in which commands run, and which must not hold the files of the scheduler itself."""

import os
from collections.abc import Sequence
from pathlib import Path

from gnomon.errors import FieldError


class Workspace:
    """A folder for commands. Paths out of it are refused, also those through links."""

    def __init__(self, folder: Path, *, create: bool = False, protected: Sequence[Path] = ()) -> None:
        """With `create` the folder is made when the first command needs it; it must hold none of the `protected`."""
        self._folder = folder.resolve()
        self._create = create
        self._protected = [path.resolve() for path in protected]

    @property
    def path(self) -> str:
        """The absolute path of the folder."""
        return str(self._folder)

    def check(self) -> None:
        """Raise FieldError if the workspace holds a protected file or folder."""
        for path in self._protected:
            if path.is_relative_to(self._folder):
                reason = f"holds {path.name}, which commands must not read: name a folder without it, or move that"
                raise FieldError("shell.workspace", str(self._folder), reason)

    def folder(self, workdir: str, *, shown: str = "", owner: tuple[int, int] | None = None) -> str:
        """The folder for a command. A folder that is made belongs to `owner`, a user and a group.

        An error names `shown` instead of `workdir`, which may hold a secret.
        """
        self.check()
        if self._create:
            self._make(owner)
        if not self._folder.is_dir():
            raise FieldError("shell.workspace", str(self._folder), "is not a folder")
        try:
            wanted = (self._folder / workdir).resolve()
            is_folder = wanted.is_dir()
        except (OSError, ValueError):
            raise FieldError("workdir", shown, "is no path") from None
        if not wanted.is_relative_to(self._folder):
            raise FieldError("workdir", shown, "is outside of the workspace")
        if not is_folder:
            raise FieldError("workdir", shown, "is not a folder")
        return str(wanted)

    def _make(self, owner: tuple[int, int] | None) -> None:
        try:
            self._folder.mkdir(mode=0o700)
        except FileExistsError:
            return
        except OSError as error:
            raise FieldError("shell.workspace", str(self._folder), f"cannot be made: {error.strerror}") from None
        if owner is not None:
            os.chown(self._folder, *owner)
