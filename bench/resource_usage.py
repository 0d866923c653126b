"""Resource usage of runs: processor time of each process, statements and round trips, bytes written."""

import os
import re
from collections import defaultdict
from pathlib import Path

from support.postgres_server import Postgres

_TICKS = os.sysconf("SC_CLK_TCK")
_LOGGED = re.compile(r"duration: ([\d.]+) ms  (parse|bind|execute|statement)[^:]*: (.*)")
_TABLES = ("schedule", "tick", "run", "task", "attempt", "payload")
#: Logs the statements of this database only, without their parameters.
_LOG_ALL = {"log_min_messages": "log", "log_min_duration_statement": "0", "log_parameter_max_length": "0"}


def processor_seconds(pid: int) -> float:
    """The processor time of a process with its children; of this process, without them."""
    spent = 0
    for one in (pid, *(() if pid == os.getpid() else _children(pid))):
        try:
            numbers = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # User and system time, then the same of its ended children.
        spent += sum(map(int, numbers[11 : 13 if pid == os.getpid() else 15]))
    return spent / _TICKS


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class ResourceUsage:
    """The resources used on one database since a moment."""

    def __init__(self, server: Postgres, url: str) -> None:
        self._server, self._url = server, url
        self._name = url.rpartition("/")[2]
        self._read = 0
        self._wal = 0

    async def log_everything(self) -> None:
        """Log every statement of new connections with its duration."""
        for name, value in _LOG_ALL.items():
            await self._server.run(f"ALTER DATABASE {self._name} SET {name} = {value}")

    async def log_nothing(self) -> None:
        """Stop logging the statements of new connections."""
        await self._server.run(f"ALTER DATABASE {self._name} RESET ALL")

    async def open(self) -> None:
        """Start to measure."""
        self._read = self._server.log.stat().st_size
        self._wal = await self._position()

    async def written(self) -> int:
        """Bytes of WAL since then."""
        return await self._position() - self._wal

    async def _position(self) -> int:
        [(position,)] = await self._server.run("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return int(position)

    def statements(self) -> dict[str, tuple[int, float]]:
        """The count of each statement since then, and its total time in milliseconds."""
        with self._server.log.open(errors="replace") as log:
            log.seek(self._read)
            lines = log.read().replace("\n\t", " ").splitlines()
        found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for line in lines:
            said = _LOGGED.search(line)
            if said is None:
                continue
            count, took = found[key := shortened(said[3])]
            found[key] = count + (said[2] in ("execute", "statement")), took + float(said[1])
        return found

    async def bytes_a_row(self) -> dict[str, tuple[int, int]]:
        """The number of rows of each table, and the bytes per row including indexes."""
        found = {}
        for name in _TABLES:
            asked = f"SELECT count(*), pg_total_relation_size('{name}') FROM {name}"  # noqa: S608 - our own names
            [(rows, size)] = await self._server.run(asked, url=self._url)
            if rows:
                found[name] = rows, size // rows
        return found


def shortened(statement: str) -> str:
    """The statement, shortened for a table."""
    plain = " ".join(statement.split())
    plain = re.sub(r"^(SELECT) .{40,}? (FROM )", r"\1 … \2", plain)
    plain = re.sub(r"\$\d+::(\w+\[\])", r"\1", plain).replace("|", "/")
    return plain if len(plain) <= 110 else f"{plain[:109]}…"
