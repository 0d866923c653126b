"""Clients that hold connections, do not read, or stall: they cost others no command, no request and no log."""

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import gnomon
from gnomon.adapters import connection_acceptor
from gnomon.api.connection_limits import ParsingPacer, UnreadResponses
from gnomon.app.http_api import connection_limits
from gnomon.config.sections import ServerSettings
from gnomon.core.connection_table import ConnectionLimits
from gnomon.errors import FieldError
from support.api_server import background_scheduler
from support.certificates import Authority
from support.gnomon_processes import up
from support.hostile_target import Launch, Shape, hostile_target
from support.raw_http import answered, connected, headers_of, heard, sent_until_closed, statuses
from support.server_process import free_port

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HALF_SENT = b"GET /livez HTTP/1.1\r\nHost: loc"


@contextmanager
def held(address: str, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that stay open, with a request that is not complete."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(address)) for _ in range(count)]
        for connection in connections:
            connection.sendall(sent)
        yield connections


def token_of(database: Path) -> str:
    return Path(f"{database}.token").read_text().strip()


# ---- descriptors ---------------------------------------------------------------------------------

COMMAND_JOB = """
jobs:
  - { name: beat, schedule: every 1s, command: "ulimit -Sn" }
"""


def test_commands_run_on_time_while_hundreds_of_connections_are_held(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(COMMAND_JOB)
    probes = f"http://127.0.0.1:{free_port()}"
    metrics = {"GNOMON_METRICS__PORT": probes.rpartition(":")[2]}
    arguments = ("--jobs", str(jobs), "--port", "0")
    with up(tmp_path / "gnomon.db", *arguments, imports=(), environment=metrics, open_files=(200, 200)) as running:
        address = "http://" + running.line_with("answering on").rpartition("http://")[2].strip()
        with held(address, 400, HALF_SENT), held(probes, 400, HALF_SENT):
            # Without a descriptor for the next command, there is no next line.
            for _ in range(4):
                running.line_with("+ beat")
            assert statuses(answered(address, LIVEZ)) == [200]
            assert statuses(answered(probes, LIVEZ)) == [200]
        lines = running.output_until_stopped()

    assert not [line for line in lines if line.lstrip().startswith("!") and "beat" in line]
    assert "Traceback" not in "".join(lines)
    assert len(lines) < 100


@pytest.mark.thorough
@pytest.mark.timeout(180)
@pytest.mark.parametrize("shape", [Shape.POSTGRES, Shape.NATS])
def test_a_fleet_runs_commands_on_time_while_hundreds_of_connections_are_held(tmp_path: Path, shape: Shape) -> None:
    ran, probes = tmp_path / "ran", f"http://127.0.0.1:{free_port()}"
    metrics = {"GNOMON_METRICS__PORT": probes.rpartition(":")[2]}
    with hostile_target(shape, tmp_path, Launch(open_files=(200, 200)), **metrics) as target:
        said = {"name": "beat", "every": "1s", "command": f"ulimit -Sn >> {ran}", "overlap": "allow"}
        assert target.ask("POST", "/v1/jobs", said).status_code == 201
        with held(target.address, 400, HALF_SENT), held(probes, 400, HALF_SENT):
            before = len(lines_of(ran))
            deadline = time.monotonic() + 60
            while len(lines_of(ran)) < before + 4:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert statuses(answered(target.address, LIVEZ)) == [200]
            assert statuses(answered(probes, LIVEZ)) == [200]
        target.delete("beat")

        assert set(lines_of(ran)) == {"200"}
        executions = target.ask("GET", "/v1/executions?job=beat&limit=1000").json()["items"]
        assert {one["status"] for one in executions} <= {"pending", "running", "completed"}
        assert max(len(target.log(name).splitlines()) for name in target.processes) < 400


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_the_limit_of_open_files_is_raised_for_the_worker_and_restored_for_commands(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(COMMAND_JOB)
    database = tmp_path / "gnomon.db"
    with up(database, "--jobs", str(jobs), "--port", "0", imports=(), open_files=(300, 700)) as running:
        address = "http://" + running.line_with("answering on").rpartition("http://")[2].strip()
        running.line_with("+ beat")
        limits = Path(f"/proc/{running.pid}/limits").read_text()
        with gnomon.Client(address, token=token_of(database)) as client:
            first = next(one for one in client.executions() if one.status == "completed")
            output = client.execution(first.execution_id).steps[0].output

    assert re.search(r"Max open files +700 +700", limits)
    assert output is not None
    assert "300" in json.dumps(output)


@pytest.mark.parametrize(
    ("settings", "open_files", "limits"),
    [
        (ServerSettings(), 65_536, ConnectionLimits(total=1000, per_address=500)),
        (ServerSettings(), 1024, ConnectionLimits(total=512, per_address=256)),
        (ServerSettings(), 200, ConnectionLimits(total=100, per_address=50)),
        (ServerSettings(), 1, ConnectionLimits(total=1, per_address=1)),
        (ServerSettings(max_connections=50), 1024, ConnectionLimits(total=50, per_address=50)),
        (ServerSettings(max_connections_per_address=1000), 1024, ConnectionLimits(total=512, per_address=512)),
    ],
)
def test_connections_take_at_most_half_of_the_open_files(
    settings: ServerSettings, open_files: int, limits: ConnectionLimits
) -> None:
    assert connection_limits(settings, open_files=open_files) == limits


# ---- slots ---------------------------------------------------------------------------------------


def test_the_connection_that_waits_longest_makes_way_for_a_new_one(tmp_path: Path) -> None:
    with background_scheduler(tmp_path / "gnomon.db", server__max_connections=5) as scheduler:
        assert scheduler.address is not None
        with held(scheduler.address, 5, HALF_SENT) as connections:
            for _ in range(3):
                assert statuses(answered(scheduler.address, LIVEZ)) == [200]
            # The first made way for the first new one, which then closed its connection.
            assert heard(connections[0]) == b""
            connections[4].sendall(LIVEZ[len(HALF_SENT) :])
            assert statuses(heard(connections[4])) == [200]


def test_a_connection_beyond_the_limit_is_refused_if_the_server_works_for_all_others(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    with background_scheduler(database, server__max_connections=2) as scheduler:
        assert scheduler.address is not None
        stream = f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of(database)}\r\n\r\n"
        with held(scheduler.address, 2, stream.encode()) as streams:
            for each in streams:
                assert each.recv(15) == b"HTTP/1.1 200 OK"

            refused = answered(scheduler.address, LIVEZ)

            assert statuses(refused) == [503]
            assert headers_of(refused)["cache-control"] == ["no-store"]
            assert b"too many connections" in refused
        # Closed streams free their slots.
        while statuses(answered(scheduler.address, LIVEZ)) != [200]:
            time.sleep(0.01)


def test_a_stream_ends_with_its_connection_even_if_another_request_follows_it(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    with background_scheduler(database, server__max_streams=1) as scheduler:
        assert scheduler.address is not None
        fields = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of(database)}\r\n\r\n"
        stream = f"GET /v1/stream {fields}".encode()
        for _ in range(3):
            received = b""
            while not received.startswith(b"HTTP/1.1 200"):
                with connected(scheduler.address) as connection:
                    connection.sendall(stream + f"GET /v1/jobs {fields}".encode())
                    received = connection.recv(1000)


# ---- clients that cost time ----------------------------------------------------------------------


async def test_connections_are_parsed_in_turns_and_the_loop_is_free_in_between() -> None:
    pacer, log = ParsingPacer(lambda: False), list[str]()

    def parse(name: str, left: int) -> None:
        log.append(name)
        pacer.spend(400)
        if left > 1:
            pacer.wait(partial(parse, name, left - 1))

    for name in "ab":
        pacer.wait(partial(parse, name, 3))
    for _ in range(5):
        await asyncio.sleep(0)
        log.append("-")

    assert "".join(log).strip("-") == "ab-ab-ab"


# ---- clients that do not read --------------------------------------------------------------------


def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    with background_scheduler(tmp_path / "gnomon.db", server__patience="300ms") as scheduler:
        assert scheduler.address is not None
        parts = urlsplit(scheduler.address)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with closing(socket.socket()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect((parts.hostname, parts.port))
            # The server reads no more than it answers, so that this ends only if it disconnects.
            sent_until_closed(connection, repeat(request * 20))
        assert statuses(answered(scheduler.address, LIVEZ)) == [200]


def test_unread_responses_have_a_budget_and_the_oldest_is_given_up_first() -> None:
    unread = UnreadResponses(max_bytes=1000)
    ours, theirs = (UnreadTransport(600) for _ in range(2))

    unread.add(ours)
    assert not ours.aborted
    unread.add(theirs)

    assert (ours.aborted, theirs.aborted) == (True, False)
    unread.remove(theirs)
    unread.add(UnreadTransport(600))
    assert not theirs.aborted


class UnreadTransport(asyncio.WriteTransport):
    """A transport with bytes that its client does not read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self._size

    def abort(self) -> None:
        self.aborted = True


def test_a_client_that_reads_late_gets_every_response_in_order(tmp_path: Path) -> None:
    with background_scheduler(tmp_path / "gnomon.db") as scheduler:
        assert scheduler.address is not None
        parts = urlsplit(scheduler.address)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with closing(socket.socket()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect((parts.hostname, parts.port))
            connection.sendall(request * 15 + LIVEZ)

            assert statuses(heard(connection)) == [200] * 16


# ---- TLS -----------------------------------------------------------------------------------------


def speaking_tls(folder: Path) -> tuple[Authority, dict[str, object]]:
    authority = Authority(folder)
    server = authority.server()
    return authority, {
        "server__tls_cert_file": server.cert,
        "server__tls_key_file": server.key,
        "server__tls_client_ca_file": authority.file,
        "auth__certificates": ["billing=viewer"],
    }


@pytest.mark.req("C-15")
def test_a_client_certificate_identifies_a_caller_while_handshakes_are_stalled(tmp_path: Path) -> None:
    authority, settings = speaking_tls(tmp_path)
    tls = ssl.create_default_context(cafile=authority.file)
    billing = authority.vouches("billing")
    tls.load_cert_chain(billing.cert, billing.key)
    with background_scheduler(tmp_path / "gnomon.db", server__max_connections=5, **settings) as scheduler:
        assert scheduler.address is not None
        with held(scheduler.address, 20, b"\x16\x03\x01\x02\x00"):
            for _ in range(3):
                with gnomon.Client(scheduler.address, token="", tls=tls) as client:
                    assert list(client.jobs()) == []
                    with pytest.raises(gnomon.errors.Forbidden):
                        client.delete("report")


def test_a_stalled_handshake_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_acceptor, "_HANDSHAKE_SECONDS", 0.2)
    _, settings = speaking_tls(tmp_path)
    with background_scheduler(tmp_path / "gnomon.db", **settings) as scheduler:
        assert scheduler.address is not None
        with held(scheduler.address, 3, b"\x16\x03\x01\x02\x00") as connections:
            assert [heard(each) for each in connections] == [b""] * 3


# ---- access without verification -----------------------------------------------------------------

UNVERIFIED = {"auth__verify_tokens": False, "auth__accept_unverified": True}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])  # noqa: S104 - what is refused
def test_a_server_that_verifies_no_tokens_does_not_start_where_others_can_reach_it(tmp_path: Path, host: str) -> None:
    with pytest.raises(FieldError, match=r"auth\.verify_tokens.*server\.host"):
        background_scheduler(tmp_path / "gnomon.db", server__host=host, **UNVERIFIED)


def test_the_start_of_a_server_that_verifies_no_tokens_is_in_the_audit_trail(tmp_path: Path) -> None:
    with background_scheduler(tmp_path / "gnomon.db", **UNVERIFIED) as scheduler:
        assert scheduler.address is not None
        with gnomon.Client(scheduler.address, token="") as client:
            entries = [(one.action, one.kind, one.name) for one in client.audit()]

    assert ("start_unverified", "server", scheduler.address) in entries
