"""A real Gnomon in each shape as the target of attacks: its address, its callers, its processes and their logs.

A job ticks five times a second beside every attack. At the end each of its ticks has been decided, whatever was sent,
and the times between its plan and its decision say how late the scheduler was at worst.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, setrlimit
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from gnomon.app.auth import new_token
from gnomon.config.settings import Settings, load
from gnomon.ports.auth import Role
from support.fleet_processes import QUICK
from support.gnomon_processes import TESTS
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, nats_with_users
from support.postgres_server import postgres

_PATIENCE = 30.0
_UNVERIFIED = ("GNOMON_AUTH__VERIFY_TOKENS", "GNOMON_AUTH__ACCEPT_UNVERIFIED")
#: The job that ticks beside every attack, and how often.
REGULAR_JOB, REGULAR_MS = "regular", 200
_TOKEN_LASTS_MS = 3_600_000
#: The latest that any tick may be decided while the machine is busy with other tests.
_LATEST_MS = 5000


class Shape(StrEnum):
    """How Gnomon is deployed."""

    SQLITE = "sqlite"
    POSTGRES = "postgresql"
    NATS = "postgresql-nats"


@dataclass(frozen=True)
class _Ticks:
    """The decision on a tick, or on several in a row, in milliseconds."""

    first: int
    last: int
    decided: int

    @classmethod
    def of(cls, said: Mapping[str, str]) -> "_Ticks":
        """Read it from a response."""
        return cls(*(round(datetime.fromisoformat(said[name]).timestamp() * 1000) for name in _INSTANTS))


_INSTANTS = ("planned_at", "last_at", "decided_at")


@dataclass
class HostileTarget:
    """A running Gnomon and everything that an attacker or a check needs to know of it."""

    shape: Shape
    address: str
    settings: Settings
    folder: Path
    processes: dict[str, "subprocess.Popen[bytes]"]
    client: httpx.Client
    nats: Nats | None = None
    #: How far each log has been checked.
    _checked: dict[str, int] = field(default_factory=dict)
    _tokens: dict[str, str] = field(default_factory=dict)

    # ---- requests ----------------------------------------------------------------------------

    def ask(  # the parts of a request
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: str = "admin",
        raw: bytes | None = None,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    ) -> httpx.Response:
        """Send a request as `role` or `role/tenant`; as a stranger if the caller is empty."""
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = [("Authorization", f"Bearer {self.token(caller)}")] if caller else []
        if content is not None:
            sent.append(("Content-Type", "application/json"))
        given = headers.items() if isinstance(headers, Mapping) else headers or ()
        replaced = {name.lower() for name, _ in given}
        kept = [(name, value) for name, value in sent if name.lower() not in replaced]
        return self.client.request(method, path, content=content, headers=[*kept, *given])

    def token(self, caller: str) -> str:
        """A token of `role` or `role/tenant`."""
        if caller not in self._tokens:
            role, _, tenant = caller.partition("/")
            self._tokens[caller] = new_token(
                self.settings,
                Role(f"scheduler-{role}"),
                subject=role,
                tenant=tenant or "default",
                lasts_ms=_TOKEN_LASTS_MS,
            ).token
        return self._tokens[caller]

    def send(self, raw: bytes, *, until_closed: bool = False) -> bytes:
        """Send bytes on a connection of their own; return the head of the response, or all until the server closes."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(raw)
            return received(connection, until_closed=until_closed)

    def connect(self) -> socket.socket:
        """A connection to the API."""
        parts = urlsplit(self.address)
        return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)

    def head(self, caller: str = "admin") -> bytes:
        """The headers of a request with a JSON body, without its length."""
        parts = urlsplit(self.address)
        authorization = f"Authorization: Bearer {self.token(caller)}\r\n" if caller else ""
        return f"Host: {parts.netloc}\r\n{authorization}Content-Type: application/json\r\n".encode()

    def register(self, name: str, *, caller: str = "admin", **said: object) -> httpx.Response:
        """Register a job that waits to be triggered."""
        return self.ask("POST", "/v1/jobs", {"name": name, "function": "witness/coroutine", **said}, caller=caller)

    def delete(self, name: str, *, caller: str = "admin") -> None:
        """Delete a job that an attack needed."""
        assert self.ask("DELETE", f"/v1/jobs/{name}", caller=caller).status_code in (200, 204)

    # ---- what must hold ----------------------------------------------------------------------

    def jobs(self) -> list[str]:
        """The names of the jobs of the default tenant."""
        return sorted(one["job"] for one in self.ask("GET", "/v1/jobs?limit=1000").json()["items"])

    def memory_kb(self) -> int:
        """The resident memory of the server."""
        status = Path(f"/proc/{self.processes['server'].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def assert_unharmed(self) -> None:
        """Every process lives, the API answers at once, and no log has a traceback."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {self.log(name)[-2000:]}"
            log = self.log(name)
            new = log[self._checked.get(name, 0) :]
            self._checked[name] = len(log)
            assert "Traceback" not in new, new[-4000:]
        assert self.ask("GET", "/livez", caller="").status_code == 200

    def processor_seconds(self) -> float:
        """The processor time that the processes have used so far: it does not depend on the load of the machine."""
        ticks = 0
        for process in self.processes.values():
            # The name of the program is in parentheses, and may contain anything.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def assert_every_tick_was_decided(self) -> None:
        """No tick of the job beside the attacks is missing between the first and the last."""
        decided = sorted(at for one in self._ticks() for at in range(one.first, one.last + 1, REGULAR_MS))
        assert decided == list(range(decided[0], decided[-1] + 1, REGULAR_MS))

    def worst_lateness_ms(self, since_ms: int = 0) -> int:
        """The longest time between the plan of a tick and its decision, of all ticks from then to now."""
        now = int(time.time() * 1000)
        deadline = time.monotonic() + _PATIENCE
        while not (found := self._ticks(since_ms)) or found[0].last < now:
            assert time.monotonic() < deadline, self.log("server")[-2000:]
            time.sleep(0.02)
        return max(one.decided - one.first for one in found)

    def _ticks(self, since_ms: int = 0) -> list[_Ticks]:
        """The decisions on ticks that were planned since then, the newest first."""
        found: list[_Ticks] = []
        cursor: str | None = ""
        while cursor is not None and (not found or found[-1].first >= since_ms):
            after = f"&cursor={quote(cursor)}" if cursor else ""
            answer = self.ask("GET", f"/v1/ticks?job={REGULAR_JOB}&limit=1000{after}")
            assert answer.status_code == 200, answer.text
            found += [_Ticks.of(one) for one in answer.json()["items"]]
            cursor = answer.json()["next"]
        return [one for one in found if one.first >= since_ms]

    def log(self, process: str) -> str:
        """All that a process has printed."""
        return (self.folder / f"{process}.log").read_text(errors="replace")


def received(connection: socket.socket, *, until_closed: bool = False) -> bytes:
    """The head of a response, or everything until the server closes the connection."""
    heard = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while more := connection.recv(65_536):
            heard += more
            if b"\r\n\r\n" in heard and not until_closed:
                break
    return heard


# ---- starting ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """How the processes of a target are started."""

    #: The command that runs Python.
    python: tuple[str, ...] = (sys.executable,)
    #: Variables of the process that executes tasks, and of no other.
    worker_environment: Mapping[str, str] = field(default_factory=dict)
    #: The soft and the hard limit of files that each may have open.
    open_files: tuple[int, int] | None = None


@contextmanager
def hostile_target(
    shape: Shape, folder: Path, launch: Launch | None = None, **environment: str
) -> Iterator[HostileTarget]:
    """Start Gnomon in a shape, with token verification on and a job that ticks five times a second."""
    with ExitStack() as stack:
        nats = stack.enter_context(nats_with_users()) if shape is Shape.NATS else None
        database = f"sqlite:///{folder / 'gnomon.db'}" if shape is Shape.SQLITE else asyncio.run(postgres(18).fresh())
        # Where no database file exists, the key that signs tokens needs a place of its own.
        key = {} if shape is Shape.SQLITE else {"auth.key_file": str(folder / "signing.key")}
        settings = load(flags={"database.url": database, **key})
        processes = stack.enter_context(_processes(shape, database, folder, nats, launch or Launch(), environment))
        address = _line(folder / "server.log", "answering on ", processes["server"]).split()[-1]
        client = stack.enter_context(httpx.Client(base_url=address, timeout=60))
        target = HostileTarget(shape, address, settings, folder, processes, client, nats)
        assert target.register(REGULAR_JOB, every=f"{REGULAR_MS}ms", overlap="allow").status_code == 201
        _wait_for_tick(target)
        yield target
        target.assert_unharmed()
        target.assert_every_tick_was_decided()
        assert target.worst_lateness_ms() < _LATEST_MS


@contextmanager
def _processes(  # the parts of a fleet
    shape: Shape, database: str, folder: Path, nats: Nats | None, launch: Launch, environment: Mapping[str, str]
) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    imports = ("--import", "support.witness")
    place = ("--database", database)
    commands: dict[Shape, dict[str, tuple[str, ...]]] = {
        Shape.SQLITE: {"server": ("up", *place, "--port", "0", *imports)},
        Shape.POSTGRES: {"server": ("server", *place, "--port", "0"), "worker": ("worker", *place, *imports)},
        Shape.NATS: {"server": ("server", *place, "--port", "0"), "worker": ("worker", *imports)},
    }
    limited = None if launch.open_files is None else partial(setrlimit, RLIMIT_NOFILE, launch.open_files)
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands[shape].items():
            reported = {**_environment(folder, nats, "scheduler" if name == "server" else "worker"), **environment}
            if shape is not Shape.SQLITE:
                reported["GNOMON_AUTH__KEY_FILE"] = str(folder / "signing.key")
            if name == "worker" or shape is Shape.SQLITE:
                reported |= launch.worker_environment
            with (folder / f"{name}.log").open("wb") as log:
                started[name] = subprocess.Popen(
                    [*launch.python, "-m", "gnomon", *command],
                    cwd=TESTS,
                    env={**os.environ, **reported},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=limited,  # noqa: PLW1509 - one system call
                )
        for name, process in started.items():
            _line(folder / f"{name}.log", "Ctrl-C stops", process)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def _environment(folder: Path, nats: Nats | None, user: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    bus = {
        "GNOMON_NATS__URL": nats.url,
        "GNOMON_NATS__USER": user,
        "GNOMON_NATS__PASSWORD": PASSWORDS[user],
    } if nats is not None else {}  # fmt: skip
    quick = {name: value for name, value in QUICK.items() if name not in _UNVERIFIED}
    return {
        **quick,
        **bus,
        "PYTHONPATH": path,
        "GNOMON_WITNESS": str(folder / "witness"),
        "GNOMON_SHELL__WORKSPACE": str(_workspace(folder)),
        # The machine that runs the tests may be busy with other tests.
        "GNOMON_ROUTING__OVERLOAD_PERCENT": "100000",
    }


def _workspace(folder: Path) -> Path:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    return workspace


def _line(log: Path, text: str, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + _PATIENCE
    while True:
        said = log.read_text(errors="replace")
        for line in said.splitlines():
            if text in line:
                return line
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.01)


def _wait_for_tick(target: HostileTarget) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not target.ask("GET", f"/v1/ticks?job={REGULAR_JOB}").json()["items"]:
        assert time.monotonic() < deadline, target.log("server")
        time.sleep(0.05)


def problem(response: httpx.Response) -> dict[str, Any]:
    """The problem document of a refusal: no stack trace, and short."""
    assert response.headers["content-type"] == "application/problem+json", response.text[:500]
    assert "Traceback" not in response.text
    assert len(response.content) < 4000
    found: dict[str, Any] = response.json()
    return found
