"""`gnomon up`, `server` and `worker` as processes, for tests that read their output and kill them."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from support.sqlite_files import new_sqlite_file

TESTS = Path(__file__).parents[1]
#: Where ours is looked for, and then where whoever runs the tests looks.
_PATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


class GnomonProcess:
    """A running gnomon process and its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        #: The lines that were read until now.
        self.read: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def line_with(self, text: str) -> str:
        """The next line that contains the text; fails if the process ends before."""
        assert self._process.stdout is not None
        before = len(self.read)
        for line in self._process.stdout:
            self.read.append(line)
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {''.join(self.read[before:])}")

    def output_until_stopped(self) -> list[str]:
        """Stop it; return all lines that were not read before."""
        assert self._process.stdout is not None
        self.signal(signal.SIGTERM)
        return list(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self, *, within: float = 30) -> int:
        """Its exit code, once it has ended."""
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            pass
        return self._process.wait(timeout=within)

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()


@contextmanager
def up(
    database: Path | str,
    *arguments: str,
    imports: Sequence[str] = ("support.witness",),
    environment: Mapping[str, str] | None = None,
    open_files: tuple[int, int] | None = None,
) -> Iterator[GnomonProcess]:
    """Start `gnomon up`; yield it once it runs, and kill it at the end if it still does.

    `open_files` are the soft and the hard limit of files that it may have open.
    """
    # Many of them run at once.
    quietly = () if "--port" in arguments else ("--no-api",)
    words = (*arguments, *quietly, *_import_flags(imports))
    with _running("up", database, *words, environment=environment, open_files=open_files) as running:
        yield running


@contextmanager
def worker(
    database: Path | str,
    *arguments: str,
    imports: Sequence[str] = ("support.witness",),
    environment: Mapping[str, str] | None = None,
) -> Iterator[GnomonProcess]:
    """Start `gnomon worker`, as `up` does."""
    with _running("worker", database, *arguments, *_import_flags(imports), environment=environment) as running:
        yield running


@contextmanager
def server(
    database: Path | str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[GnomonProcess]:
    """Start `gnomon server`, as `up` does."""
    open_to_all = {"GNOMON_AUTH__VERIFY_TOKENS": "false", "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true"}
    said = {**open_to_all, **(environment or {})}
    with _running("server", database, "--port", "0", *arguments, environment=said) as running:
        yield running


@contextmanager
def policy_server(file: Path, transport: str, port: int = 0) -> Iterator[tuple[GnomonProcess, int]]:
    """Start `gnomon policy serve`; yield it and its port."""
    words = ("policy", "serve", "-f", str(file), f"--{transport}", f"127.0.0.1:{port}")
    with _started(words, {}) as running:
        yield running, int(running.read[-1].rpartition("port ")[2].partition(";")[0])


def _import_flags(modules: Sequence[str]) -> list[str]:
    return [word for name in modules for word in ("--import", name)]


@contextmanager
def _running(
    command: str,
    database: Path | str,
    *arguments: str,
    environment: Mapping[str, str] | None,
    open_files: tuple[int, int] | None = None,
) -> Iterator[GnomonProcess]:
    if isinstance(database, Path) and database.parent.is_dir() and not database.exists():
        # The process finds what its migrations would make; hundreds of them start.
        new_sqlite_file(database)
    words = (command, "--database", str(database), *arguments)
    with _started(words, environment or {}, open_files=open_files) as running:
        yield running


@contextmanager
def _started(
    words: Sequence[str], environment: Mapping[str, str], *, open_files: tuple[int, int] | None = None
) -> Iterator[GnomonProcess]:
    limited = None if open_files is None else partial(resource.setrlimit, resource.RLIMIT_NOFILE, open_files)
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", *words],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": _PATH, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limited,  # noqa: PLW1509 - one system call
    )
    running = GnomonProcess(process)
    try:
        running.line_with("Ctrl-C stops")
        yield running
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
