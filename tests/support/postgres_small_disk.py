"""PostgreSQL on a disk that can be full: a small one in memory, which only root can have."""

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
    """A server whose folder is a disk of its own."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._disk: Path | None = None

    @staticmethod
    def possible() -> bool:
        """Whether we may have a disk of our own."""
        return os.geteuid() == 0 and shutil.which("mount") is not None

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """For a while nothing more can be written; then there is room again, and it runs."""
        assert self._disk is not None
        filler = self._disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(_PORTION)) == _PORTION:
                pass
        try:
            yield
        finally:
            filler.unlink()
            # It gives up when its log cannot be written; whoever minds it starts it again.
            self.start_if_ended()

    def remove(self) -> None:
        """Neither it nor its disk is left."""
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
