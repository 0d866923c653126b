"""How late ticks are decided and bodies begin beside each attack on the API of the same process.

An attack is a coroutine in the table `_ATTACKS`; it runs until the time is over. A new attack needs a coroutine and a
row.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any
from urllib.parse import urlsplit

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gnomon.app.auth import new_token
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings, load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.ports.auth import Role
from report import table, write_section
from support.nats_redis_servers import Nats
from support.postgres_server import postgres

_WARM_SECONDS = 3
_BEAT = "import gnomon\n\n\n@gnomon.function('beat')\nasync def beat(): pass\n"
#: The schedules whose ticks are measured, and how often each fires.
_BEATS, _EVERY_MS = 10, 200
#: The connections of an attack that repeats a request.
_CONNECTIONS = 16
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class AttackedServer:
    """The server as an attacker sees it."""

    address: str
    tokens: dict[str, str]
    #: When the attack ends, by the monotonic clock.
    until: float

    @property
    def over(self) -> bool:
        """Whether the attack is over."""
        return monotonic() >= self.until

    def headers(self, role: str) -> dict[str, str]:
        """The headers of a request by a caller with this role; of a stranger, if it is empty."""
        return {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of its own."""
        parts = urlsplit(self.address)
        return await asyncio.open_connection(parts.hostname, parts.port)

    def head(self, role: str, path: str, length: str) -> bytes:
        """The head of a POST; `length` is the header that announces the body."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(self.address).netloc}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers(role).items()]
        return "\r\n".join([*lines, length, "", ""]).encode()


@dataclass(frozen=True)
class Attack:
    """A row of the table: an attack, the role of the attacker, and what it does."""

    name: str
    role: str
    run: Callable[[AttackedServer, str], Coroutine[Any, Any, None]]


# ---- requests that cost much ---------------------------------------------------------------------


def repeated(method: str, path: str, body: object = None) -> Callable[[AttackedServer, str], Coroutine[Any, Any, None]]:
    """An attack that sends a request again and again on several connections."""
    content = None if body is None else json.dumps(body, separators=(",", ":")).encode()

    async def attack(server: AttackedServer, role: str) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(send(session, server, role) for _ in range(_CONNECTIONS)))

    async def send(session: aiohttp.ClientSession, server: AttackedServer, role: str) -> None:
        headers = {**server.headers(role), "Content-Type": "application/json"}
        while not server.over:
            with suppress(aiohttp.ClientError, TimeoutError):
                left = aiohttp.ClientTimeout(total=max(0.1, server.until - monotonic()))
                async with session.request(
                    method, server.address + path, data=content, headers=headers, timeout=left
                ) as answer:
                    await answer.read()

    return attack


def visited(path: str) -> Callable[[AttackedServer, str], Coroutine[Any, Any, None]]:
    """An attack that signs in, and loads a page again and again on several connections."""

    async def attack(server: AttackedServer, role: str) -> None:
        # A cookie for an address instead of a name.
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=jar) as session:
            form = {"token": server.tokens[role]}
            async with session.post(
                f"{server.address}/ui/login", data=form, headers={"Origin": server.address}
            ) as page:
                page.raise_for_status()
            await asyncio.gather(*(visit(session, server) for _ in range(_CONNECTIONS)))

    async def visit(session: aiohttp.ClientSession, server: AttackedServer) -> None:
        while not server.over:
            with suppress(aiohttp.ClientError, TimeoutError):
                left = aiohttp.ClientTimeout(total=max(0.1, server.until - monotonic()))
                async with session.get(server.address + path, timeout=left) as page:
                    await page.read()

    return attack


def planned(*jobs: object) -> Callable[[AttackedServer, str], Coroutine[Any, Any, None]]:
    """An attack that plans these jobs for a year, again and again."""
    return repeated("POST", "/v1/plan", {"jobs": jobs, "days": 366})


def _job(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a job
    return {"name": name, **({} if "dag" in fields else {"function": "f"}), **fields}


def _doubled_schema(levels: int) -> dict[str, Any]:
    """A schema in which two branches reach the next level, at each level."""
    found: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**found, f"a{levels}": {}}, "$ref": "#/$defs/a0"}


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


_SELF = {"$ref": "#"}
_NUMBERS = list(range(11_000))
_RECURSIVE = {"properties": {"x": {"anyOf": [_SELF, _SELF]}}, "required": ["q"]}
_COSTLY = {"properties": {"x": {"items": {"allOf": [{"type": "integer"}] * 25}}}}
_CONDITION = " or ".join(f"input.a{n} == {n}" for n in range(45))
_STEPS = [{"step": f"s{n}", "function": "f"} for n in range(900)]
_BRANCHES = [{**one, "if": _CONDITION} for one in _STEPS[:60]]
_YEARS = {"from": "1970-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
_COSTLY_INPUT = {"input": {"x": _NUMBERS}}
#: An input as large as one may be, a condition that names it as often as it can, and a step that repeats it.
_LARGE_INPUT: dict[str, Any] = {"input": {"x": [[]] * 20_000}}
_NAMED_OFTEN = [{**one, "if": " or ".join(["input.x == 1"] * 60)} for one in _STEPS[:60]]
_REPEATED = [{"step": "s", "function": "f", "input": {"y": ["${input.x}"] * 4000}}]
#: A pattern that took 2.5 s to compile, and jobs with patterns that cost nearly as much as they may.
_ESCAPES = {"properties": {"p": {"pattern": r"\S" * 1400}}}
_PATTERNS = [_job(f"p{n}", input_schema={"pattern": r"\S" * 85 + str(n)}) for n in range(40)]
#: As many rules as fit.
_TOPICS = ", ".join(f"topic-{n}.*" for n in range(60))
_POLICY = {
    "body": "rules:\n"
    + "".join(f"  - {{id: rule-{n}, match: {{topics: [{_TOPICS}]}}, decision: allow}}\n" for n in range(250))
}
_SECONDS = [_job(f"s{n}", schedule="* * * * * *") for n in range(100)]


# ---- connections that are held -------------------------------------------------------------------


async def endless_trailers(server: AttackedServer, role: str) -> None:
    """Send a chunked body whose trailers do not end."""
    while not server.over:
        with suppress(OSError):
            _, writer = await server.connection()
            writer.write(server.head(role, "/v1/plan", "Transfer-Encoding: chunked") + b"0\r\n")
            while not server.over:
                writer.write(b"a: b\r\n" * 10_000)
                await asyncio.wait_for(writer.drain(), 1)
        await asyncio.sleep(0.01)


def held(
    head: Callable[[AttackedServer, str], bytes], count: int
) -> Callable[[AttackedServer, str], Coroutine[Any, Any, None]]:
    """An attack that opens connections, sends the beginning of a request on each, and nothing more."""

    async def attack(server: AttackedServer, role: str) -> None:
        open_connections = []
        for _ in range(count):
            with suppress(OSError):
                _, writer = await server.connection()
                writer.write(head(server, role))
                open_connections.append(writer)
        await asyncio.sleep(max(0.0, server.until - monotonic()))
        for writer in open_connections:
            writer.close()

    return attack


def flooded(raw: bytes, *, reads: bool = True) -> Callable[[AttackedServer, str], Coroutine[Any, Any, None]]:
    """An attack that opens a connection, sends these bytes, and does so again when the server closes it."""

    async def attack(server: AttackedServer, role: str) -> None:
        del role
        await asyncio.gather(*(send(server) for _ in range(_CONNECTIONS)))

    async def send(server: AttackedServer) -> None:
        while not server.over:
            with suppress(OSError, TimeoutError):
                reader, writer = await server.connection()
                with closing(writer):
                    async with asyncio.timeout(max(0.1, min(1.0, server.until - monotonic()))):
                        writer.write(raw)
                        await writer.drain()
                        if reads:
                            await reader.read()

    return attack


_LOCAL = b"Host: localhost\r\n"
_DESCRIPTION = b"GET /openapi.json HTTP/1.1\r\n" + _LOCAL + b"\r\n"
_SIGN_IN = b"token=" + b"%41" * 20_000
_SIGNS_IN = (
    b"POST /ui/login HTTP/1.1\r\n"
    + _LOCAL
    + b"Origin: http://localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    + f"Content-Length: {len(_SIGN_IN)}\r\n\r\n".encode()
    + _SIGN_IN
)
_CHUNKED = b"POST /v1/plan HTTP/1.1\r\n" + _LOCAL + b"Transfer-Encoding: chunked\r\n\r\n"


def _half_a_head(server: AttackedServer, role: str) -> bytes:
    return server.head(role, "/v1/plan", "Content-Length: 100")[:40]


def _held_body(server: AttackedServer, role: str) -> bytes:
    return server.head(role, "/v1/plan", "Content-Length: 8388000") + b" " * 8_380_000


def _stream(server: AttackedServer, role: str) -> bytes:
    return server.head(role, "/v1/stream", "").replace(b"POST", b"GET", 1)


async def nothing(server: AttackedServer, role: str) -> None:
    """No attack: the lateness of an undisturbed server."""
    del role
    await asyncio.sleep(max(0.0, server.until - monotonic()))


_ATTACKS = (
    Attack("nothing", "", nothing),
    Attack("a schema that doubles 40 times", "viewer", planned(_job("x", input_schema=_doubled_schema(40)))),
    Attack("a recursive schema, a deep input", "viewer", planned(_job("x", input_schema=_RECURSIVE, input=_deep(60)))),
    Attack("a schema that costs most", "viewer", planned(_job("x", input_schema=_COSTLY, input={"x": _NUMBERS}))),
    Attack("a pattern of 1400 escapes", "viewer", planned(_job("x", input_schema=_ESCAPES))),
    Attack("40 patterns that cost most", "viewer", planned(*_PATTERNS)),
    Attack("30 graphs with long conditions", "viewer", planned(*(_job(f"x{n}", dag=_BRANCHES) for n in range(30)))),
    Attack("a graph of 900 steps", "viewer", planned(_job("x", dag=_STEPS))),
    Attack("100 jobs every second for a year", "viewer", planned(*_SECONDS)),
    Attack("a sentence of unknown words", "viewer", planned(_job("x", schedule="abc " * 125))),
    Attack("6 MB of numbers", "viewer", planned(list(range(900_000)))),
    Attack("1000 times of a yearly job", "viewer", repeated("GET", "/v1/jobs/leap?coming=1000&last=1000")),
    Attack("10,001 coming fires", "viewer", repeated("GET", "/v1/schedule?hours=8784&limit=10001")),
    Attack("1000 jobs in a list", "viewer", repeated("GET", "/v1/jobs?limit=1000")),
    Attack("a backfill of 56 years", "viewer", repeated("POST", "/v1/jobs/leap/backfill/preview", _YEARS)),
    Attack("explanations of 100 ticks", "viewer", repeated("GET", "/v1/jobs/leap/why?last=100")),
    Attack("inputs that cost most", "operator", repeated("POST", "/v1/jobs/checked/trigger", _COSTLY_INPUT)),
    Attack("a large input of long conditions", "operator", repeated("POST", "/v1/jobs/branches/trigger", _LARGE_INPUT)),
    Attack("an input that references multiply", "operator", repeated("POST", "/v1/jobs/repeats/trigger", _LARGE_INPUT)),
    Attack("20,000 items of a step", "operator", repeated("POST", "/v1/jobs/items/trigger", _LARGE_INPUT)),
    Attack("simulations", "viewer", repeated("POST", "/v1/simulate", {"jobs": _SECONDS, "days": 366})),
    Attack("a policy to compare", "viewer", repeated("POST", "/v1/policy/diff", _POLICY)),
    Attack("a policy over the history", "viewer", repeated("POST", "/v1/policy/replay", {**_POLICY, "since": 0})),
    Attack("the rulings of a policy", "viewer", repeated("POST", "/v1/jobs/branches/policy", _POLICY)),
    Attack("the first page", "viewer", visited("/ui/")),
    Attack("a page with a large definition", "viewer", visited("/ui/jobs/branches?tab=definition")),
    Attack("forms that sign in", "", flooded(_SIGNS_IN)),
    Attack("a forged cursor", "viewer", repeated("GET", "/v1/schedule?cursor=W1sxLDQwMDAwMDAsMl0sIjAwMDAiXQ==")),
    Attack("requests without a token", "", repeated("GET", "/v1/jobs")),
    Attack("the description of the API", "", repeated("GET", "/openapi.json")),
    Attack("trailers without end", "", endless_trailers),
    Attack("300 half requests", "", held(_half_a_head, 300)),
    Attack("2000 half requests", "", held(_half_a_head, 2000)),
    Attack("connections that are closed at once", "", flooded(b"", reads=False)),
    Attack("requests that are not HTTP", "", flooded(b"nonsense\r\n\r\n")),
    Attack("5000 pipelined requests", "", flooded((b"GET /livez HTTP/1.1\r\n" + _LOCAL + b"\r\n") * 5000)),
    Attack("50,000 headers", "", flooded(b"GET /livez HTTP/1.1\r\n" + _LOCAL + b"a: b\r\n" * 50_000)),
    Attack("100,000 small chunks", "", flooded(_CHUNKED + b"5\r\nabcde\r\n" * 100_000)),
    Attack("a chunk extension of 1 MB", "", flooded(_CHUNKED + b"1;a=" + b"b" * 1_000_000)),
    Attack(
        "responses that are not read",
        "",
        flooded(_DESCRIPTION * 15, reads=False),
    ),
    Attack("4 bodies of 8 MB held back", "viewer", held(_held_body, 4)),
    Attack("120 streams", "viewer", held(_stream, 120)),
)


# ---- the measurement -----------------------------------------------------------------------------


async def fill(settings: Settings) -> None:
    """Create the database with the jobs that fire, and those that attackers ask for."""
    said = [_job(f"beat-{n}", function="beat", every=f"{_EVERY_MS}ms", overlap="allow") for n in range(_BEATS)]
    said += [_job(f"job-{n:04}", schedule=f"{n % 60} {n % 24} {n % 28 + 1} * *") for n in range(1000)]
    said += [
        _job("leap", schedule="0 0 29 2 *", timezone="Pacific/Chatham"),
        _job("checked", input_schema=_COSTLY, overlap="skip"),
        _job("branches", dag=_NAMED_OFTEN, overlap="skip"),
        _job("repeats", dag=_REPEATED, overlap="skip"),
        _job("items", dag=[{"step": "s", "function": "f", "foreach": "${input.x}"}], overlap="skip"),
    ]
    async with Operations.open(settings) as operations:
        now = int(time() * 1000)
        await operations.jobs.apply([read_job(one, Defaults(), now=now) for one in said], actor="bench")


@contextmanager
def served(place: "AttackedPlace") -> Iterator[str]:
    """Start Gnomon in the shape of the place; yield the address of its API."""
    (place.folder / "beat.py").write_text(_BEAT)
    with ExitStack() as stack:
        bus = {"GNOMON_NATS__URL": stack.enter_context(Nats()).url} if place.shape == "nats" else {}
        environment = {**os.environ, **bus, "GNOMON_METRICS__PORT": "0", "PYTHONUNBUFFERED": "1"}
        environment["GNOMON_AUTH__KEY_FILE"] = place.settings.auth.key_file
        for name, words in place.commands().items():
            command = [sys.executable, "-m", "gnomon", *words]
            log = stack.enter_context((place.folder / name).open("wb"))
            process = subprocess.Popen(command, cwd=place.folder, env=environment, stdout=log, stderr=log)  # noqa: S603 - our own program
            stack.callback(process.communicate)
            stack.callback(process.terminate)
        yield _address(place.folder / "server")


@dataclass(frozen=True)
class AttackedPlace:
    """A database and the folder of the processes on it."""

    shape: str
    folder: Path
    settings: Settings

    def commands(self) -> dict[str, tuple[str, ...]]:
        """The commands of the processes."""
        database, imports = ("--database", self.settings.database.url), ("--import", "beat")
        if self.shape == "sqlite":
            return {"server": ("up", *database, *imports, "--port", "0")}
        worker = ("worker", *imports) if self.shape == "nats" else ("worker", *database, *imports)
        return {"server": ("server", *database, "--port", "0"), "worker": worker}

    def rows(self, query: str) -> list[Any]:
        """The rows of a query."""
        url = self.settings.database.url
        if self.shape != "sqlite":
            return asyncio.run(postgres(18).run(query, url=url))
        with closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as file:
            return file.execute(query).fetchall()


def new_place(shape: str, folder: Path) -> AttackedPlace:
    """An empty database of the shape."""
    url = f"sqlite:///{folder / 'gnomon.db'}" if shape == "sqlite" else asyncio.run(postgres(18).fresh())
    key = folder / "signing.key"
    return AttackedPlace(shape, folder, load(flags={"database.url": url, "auth.key_file": str(key)}))


def _address(log: Path) -> str:
    for _ in range(300):
        sleep(0.1)
        for line in log.read_text().splitlines():
            if "answering on" in line:
                return line.split()[-1]
    raise TimeoutError("the scheduler does not answer")


_DECIDED = (
    "SELECT planned_at, count, decided_at FROM tick"
    " WHERE schedule_id LIKE 'beat-%' AND planned_at >= {} AND planned_at < {}"
)
_BEGUN = (
    "SELECT planned_at, 1, started_at FROM run"
    " WHERE schedule_id LIKE 'beat-%' AND started_at IS NOT NULL AND planned_at >= {} AND planned_at < {}"
)


def lateness(place: AttackedPlace, query: str, since: int, until: int) -> list[int]:
    """The lateness of each tick that was planned in that time, in milliseconds, sorted."""
    found = place.rows(query.format(since, until))
    # One row holds the decision on several ticks in a row.
    return sorted(done - planned - number * _EVERY_MS for planned, count, done in found for number in range(count))


def measure(place: AttackedPlace, server: AttackedServer, attack: Attack, seconds: float) -> list[str]:
    """A row of the table."""
    since = int(time() * 1000)
    asyncio.run(attack.run(AttackedServer(server.address, server.tokens, monotonic() + seconds), attack.role))
    until = since + int(seconds * 1000)
    # Let the last ticks be decided and begin, and the connections of the attack end.
    sleep(2)
    planned = _BEATS * (until - since) // _EVERY_MS
    decided, begun = (lateness(place, query, since, until) for query in (_DECIDED, _BEGUN))
    missing = planned - len(decided)
    return [
        attack.name,
        attack.role or "stranger",
        f"**{missing:,} of {planned:,} UNDECIDED**" if missing > 0 else "none",
        _at(decided, planned * 99 // 100),
        _at(decided, planned - 1),
        _at(begun, len(begun) * 99 // 100),
        _at(begun, len(begun) - 1),
    ]


def _at(late: list[int], place: int) -> str:
    """The lateness at a place in the order of all; a tick that is missing came never."""
    return f"{late[place]} ms" if 0 <= place < len(late) else "never"


_SHAPES = {
    "sqlite": "one process on a SQLite file",
    "postgresql": "a server and a worker on PostgreSQL 18",
    "nats": "a server on PostgreSQL 18 and a worker over NATS",
}
_TITLE = "Hostile: ticks beside attacks on the API"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=6.0)
    arguments.add_argument("--only", default="", help="only attacks whose name contains this text")
    arguments.add_argument("--shape", choices=_SHAPES, default="sqlite")
    given = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        place = new_place(given.shape, Path(name))
        asyncio.run(fill(place.settings))
        with served(place) as address:
            tokens = {
                role.value.removeprefix("scheduler-"): new_token(
                    place.settings, role, subject="eve", tenant="default", lasts_ms=_DAY_MS
                ).token
                for role in Role
            }
            sleep(_WARM_SECONDS)
            for attack in _ATTACKS:
                if given.only in attack.name:
                    rows.append(measure(place, AttackedServer(address, tokens, 0.0), attack, given.seconds))
                    print(rows[-1], flush=True)
    undecided = [f"{attack}: {said}" for attack, _, said, *_ in rows if said != "none"]
    verdict = "; ".join(undecided) or "Every tick was decided beside every attack."
    print(f"\n{verdict}\n", flush=True)
    titles = ["attack", "by", "undecided ticks", "p99 decided late by", "worst", "p99 begun late by", "worst"]
    if not given.only:
        write_section(
            _TITLE if given.shape == "sqlite" else f"{_TITLE}, {_SHAPES[given.shape]}",
            f"{_BEATS} schedules that fire every {_EVERY_MS} ms, {_SHAPES[given.shape]}, and an attacker with "
            f"{_CONNECTIONS} connections on the same machine, {given.seconds:g} s for each attack. A tick that was not "
            f"decided counts as one that is late for ever. {verdict}\n\n{table(titles, rows)}",
        )


if __name__ == "__main__":
    main()
