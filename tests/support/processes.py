"""`gnomon up` in a process of its own, to be watched and killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: Where ours is looked for, and then where whoever runs the tests looks.
_PATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


class UpProcess:
    """A running `gnomon up`, and what it says."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def line_with(self, text: str) -> str:
        """The next line that contains the text; fails if the process ends before."""
        assert self._process.stdout is not None
        seen = []
        for line in self._process.stdout:
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {''.join(seen)}")

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
) -> Iterator[UpProcess]:
    """The process, once it says that it runs; killed at the end if it still does."""
    command = [sys.executable, "-m", "gnomon", "up", "--database", str(database), *arguments]
    if "--port" not in arguments:
        # Many of them run at once.
        command.append("--no-api")
    command += [word for name in imports for word in ("--import", name)]
    process = subprocess.Popen(
        command,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": _PATH, "PYTHONUNBUFFERED": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = UpProcess(process)
    try:
        running.line_with("Ctrl-C stops")
        yield running
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
