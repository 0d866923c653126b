"""NATS and Redis out of wheels, on ports and in folders of their own: never a server that is somebody else's."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from support.servers import ends_with_us, free_port

_PATIENCE = 30.0
#: Where there is no program of Redis to be had, its imitation speaks the same over TCP.
_IMITATION = """
import sys
from fakeredis import TcpFakeServer
TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
"""


class Server(ABC):
    """A process with a folder and a port, which it keeps over its deaths. It ends with us."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it."""

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def _command(self, folder: Path) -> Sequence[str]:
        """What starts it."""

    def start(self) -> None:
        """It runs, and takes connections."""
        if self._process is not None:
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gnomon-bus-"))
            self.port = self.port or free_port()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self._folder),
                start_new_session=True,
                stdout=log,
                stderr=log,
                preexec_fn=ends_with_us,  # noqa: PLW1509 - one system call, and no thread is needed for it
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """It has ended in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """It has been cut off, as by a loss of power to the process; what it stored is still there."""
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """For a while it is there, and takes connections, but does nothing and answers nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Its threads may go on for a moment, and answer.
        os.waitpid(self._process.pid, os.WUNTRACED)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Neither it nor its folder is left."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _wait_until_ready(self) -> None:
        assert self._folder is not None
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{type(self).__name__} did not start:\n{(self._folder / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        self._process.wait(_PATIENCE)
        self._process = None


class Nats(Server):
    """A NATS server with JetStream; `config` is text of its configuration file, beside port and folder."""

    def __init__(self, config: str = "") -> None:
        super().__init__()
        self._config = config

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"nats://127.0.0.1:{self.port}"

    def _command(self, folder: Path) -> Sequence[str]:
        written = folder / "nats.conf"
        own = f"host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: '{folder / 'store'}' }}\n"
        written.write_text(own + self._config)
        return [_program("nats-server"), "-c", str(written)]


class Redis(Server):
    """A Redis server that writes everything down, so that it survives being killed."""

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self, folder: Path) -> Sequence[str]:
        try:
            program = _program("redis-server")
        except FileNotFoundError:
            return [sys.executable, "-c", _IMITATION, str(self.port)]
        kept = ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), *kept]


def _program(name: str) -> str:
    """The program that a wheel has put beside our interpreter, or one on the path."""
    ours = Path(sysconfig.get_path("scripts")) / name
    found = str(ours) if os.access(ours, os.X_OK) else shutil.which(name)
    if found is None:
        raise FileNotFoundError(name)
    return found
