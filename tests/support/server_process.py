"""Third-party servers that tests start: each a process with a folder and a port of its own."""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

_PATIENCE = 90.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_FIRST_PORT, _PORTS = 12_000, 20_000


class ServerProcess(ABC):
    """A process that keeps its folder and port across restarts. It ends with this process."""

    #: The signal for a graceful stop, and the name of its folder.
    ends_by: ClassVar[signal.Signals] = signal.SIGTERM
    prefix: ClassVar[str] = "gnomon-daemon-"
    #: The user that runs it, if not the current one.
    run_by: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self._folder: Path | None = None
        #: The parent of its folder, if not the default for temporary ones.
        self._within: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @abstractmethod
    def _command(self, folder: Path) -> Sequence[str]:
        """The command that starts it."""

    @property
    def pid(self) -> int:
        """The id of its process; if it has several, of their parent."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """The path of its log."""
        assert self._folder is not None
        return self._folder / "log"

    # ---- lifecycle ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self._process is not None:
            return
        if self._folder is None:
            self._folder = self._make_folder()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self._folder),
                # A group of its own, so that an interrupt from the keyboard reaches this process first, which ends it.
                start_new_session=True,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, and no thread is needed for it
                **self.run_by,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop it gracefully."""
        self._end(self.ends_by)

    def kill(self) -> None:
        """Kill it; its stored data stays."""
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it for a while: the kernel accepts connections, but nothing is answered."""
        frozen = [self.pid, *_children(self.pid)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        # Its threads may run and answer for a moment.
        os.waitpid(self.pid, os.WUNTRACED)
        try:
            yield
        finally:
            for pid in frozen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def remove(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    # ---- inside ------------------------------------------------------------------------------

    def _make_folder(self) -> Path:
        """Create a new folder with the files that the server needs."""
        self.port = self.port or free_port()
        return Path(tempfile.mkdtemp(prefix=self.prefix, dir=self._within))

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        # A child would run and answer for a moment: wait until all children are gone, too.
        children = _children(self._process.pid) if how is signal.SIGKILL else []
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        # Waited for by its parent, so that no zombie holds its lock file.
        self._process.wait(_PATIENCE)
        self._process = None
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while any(_alive(pid) for pid in children) and time.monotonic() < deadline:
            time.sleep(0.005)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _die_with_parent() -> None:
    """In the child: end when the parent ends, even if it is killed."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def free_port() -> int:
    """A port that is free at this moment, below the ephemeral range."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
