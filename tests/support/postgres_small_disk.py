"""PostgreSQL on a small file system in memory that can be filled. Only root can mount it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.postgres_server import Postgres

_SIZE = "160m"
_PORTION = 1 << 16


class PostgresOnSmallDisk(Postgres):
    """A server whose folder is a file system of its own."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._disk: Path | None = None

    @staticmethod
    def possible() -> bool:
        """Whether this process may mount a file system."""
        return os.geteuid() == 0 and shutil.which("mount") is not None

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Fill the disk for a while; then free it and make sure that the server runs."""
        assert self._disk is not None
        filler = self._disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(_PORTION)) == _PORTION:
                pass
        try:
            yield
        finally:
            filler.unlink()
            # The server ends when its log cannot be written; start it again, as a supervisor would.
            self.start_if_ended()

    def remove(self) -> None:
        """Remove the server and its disk."""
        super().remove()
        if self._disk is not None:
            subprocess.run([_program("umount"), "--lazy", str(self._disk)], check=True)
            self._disk.rmdir()
            self._disk = None

    def _make_folder(self) -> Path:
        self._disk = Path(tempfile.mkdtemp(prefix="gnomon-disk-"))
        mount = [_program("mount"), "-t", "tmpfs", "-o", f"size={_SIZE},mode=755", "none", str(self._disk)]
        subprocess.run(mount, check=True)
        self._within = self._disk
        return super()._make_folder()


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found
