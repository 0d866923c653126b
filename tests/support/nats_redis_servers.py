"""NATS and Redis from wheels, on ports and in folders of their own: never a server that exists already."""

import os
import shutil
import sys
import sysconfig
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from support.server_process import ServerProcess

#: Where no Redis program is installed, an imitation with the same protocol is used.
_IMITATION = """
import sys
from fakeredis import TcpFakeServer
TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
"""


class BusServer(ServerProcess):
    """The common base of NATS and Redis."""

    prefix = "gnomon-bus-"

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for clients."""


class Nats(BusServer):
    """A NATS server with JetStream; `config` is text of its configuration file, beside port and folder."""

    def __init__(self, config: str = "") -> None:
        super().__init__()
        self._config = config

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    def _command(self, folder: Path) -> Sequence[str]:
        written = folder / "nats.conf"
        own = f"host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: '{folder / 'store'}' }}\n"
        written.write_text(own + self._config)
        return [find_program("nats-server"), "-c", str(written)]


class Redis(BusServer):
    """A Redis server that persists every write, so that it survives being killed."""

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self, folder: Path) -> Sequence[str]:
        try:
            program = find_program("redis-server")
        except FileNotFoundError:
            return [sys.executable, "-c", _IMITATION, str(self.port)]
        kept = ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), *kept]


def find_program(name: str) -> str:
    """The program that a wheel has installed beside the interpreter, or one on the path."""
    ours = Path(sysconfig.get_path("scripts")) / name
    found = str(ours) if os.access(ours, os.X_OK) else shutil.which(name)
    if found is None:
        raise FileNotFoundError(name)
    return found
