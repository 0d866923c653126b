"""A `gnomon up` whose dashboard is read in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

import gnomon
from support.gnomon_processes import GnomonProcess, up


class RunningServer(Struct, frozen=True):
    """A server with a worker, and the token of its owner."""

    process: GnomonProcess
    address: str
    token: str
    database: Path

    def client(self) -> gnomon.Client:
        """A client of its API."""
        return gnomon.Client(self.address, token=self.token)

    def registered(self, name: str, **said: Any) -> str:  # noqa: ANN401 - fields of a job
        """Register a job that runs only when it is triggered, unless it is told otherwise; return its name."""
        with self.client() as client:
            client.register({"name": name, "function": "pages/quick", **said})
        return name


@contextmanager
def running_server(database: Path, port: int = 0) -> Iterator[RunningServer]:
    """Start a server on a database file."""
    with up(database, "--port", str(port), imports=("support.browser_jobs",)) as process:
        address = process.line_with("answering on").split()[-1]
        yield RunningServer(process, address, Path(f"{database}.token").read_text().strip(), database)
