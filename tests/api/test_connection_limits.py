"""Connections: slow and greedy clients, client certificates, and the rate limit."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from cryptography.x509 import DNSName, UniformResourceIdentifier
from msgspec.structs import replace
from uvicorn.protocols.http.flow_control import FlowControl

import gnomon
from gnomon import errors
from gnomon.api.server import listen, tls_context
from gnomon.config.sections import ServerSettings
from gnomon.core.auth import CertificateGrant, read_certificates
from gnomon.core.instants import instant_of
from gnomon.ports.auth import Caller, Role
from gnomon.ports.change_log import Change
from support.api_fixture import ApiFixture
from support.api_server import serve_api_fixture, serve_fixture_on
from support.certificates import Authority, Pair

HASTY = ServerSettings(patience_ms=300, max_header=4096)


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        yield connection


def heard(connection: socket.socket) -> bytes:
    """All bytes until the peer closes the connection, with or without a reset."""
    found = b""
    try:
        while more := connection.recv(65_536):
            found += more
    except ConnectionResetError:
        pass
    return found


def test_answers_leave_at_once_and_do_not_wait_until_their_heads_are_acknowledged() -> None:
    with (
        closing(listen(ServerSettings(port=0))) as listening,
        connected(f"http://127.0.0.1:{listening.getsockname()[1]}"),
    ):
        taken, _ = listening.accept()
        with closing(taken):
            # asyncio sets TCP_NODELAY only for sockets with an explicit protocol.
            assert taken.proto == socket.IPPROTO_TCP


SLOW = {
    "nothing": b"",
    "half a line": b"GET /v1/jo",
    "half of the headers": b"GET /v1/jobs HTTP/1.1\r\nHost: gnomon\r\nAuthoriz",
    "half of a body": b"POST /v1/jobs HTTP/1.1\r\nHost: gnomon\r\nAuthorization: Bearer admin\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_sends_no_request_is_disconnected(sent: bytes) -> None:
    with serve_api_fixture(ApiFixture(server=HASTY)) as address, connected(address) as connection:
        connection.sendall(sent)

        assert heard(connection) == b""


@pytest.mark.parametrize("size", [5_000, 10_000_000])
@pytest.mark.parametrize("where", ["GET /v1/jobs?x={} HTTP/1.1\r\n", "GET /v1/jobs HTTP/1.1\r\nX-Long: {}\r\n"])
def test_a_request_that_is_too_large_is_refused(where: str, size: int) -> None:
    with serve_api_fixture(ApiFixture(server=HASTY)) as address, connected(address) as connection:
        try:
            connection.sendall(where.format("a" * size).encode() + b"Host: gnomon\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            assert heard(connection).startswith((b"HTTP/1.1 431", b""))
        with gnomon.Client(address, token="admin") as client:  # noqa: S106 - a role
            assert client.health().status == "ok"


def test_many_headers_are_as_much_as_a_long_one() -> None:
    with serve_api_fixture(ApiFixture(server=HASTY)) as address, connected(address) as connection:
        lines = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 50) for number in range(100))
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: gnomon\r\n" + lines + b"\r\n")

        assert heard(connection).startswith(b"HTTP/1.1 431")


def test_a_body_that_arrives_in_one_piece_with_its_headers_is_a_body_however_large() -> None:
    api_setup = ApiFixture()
    with serve_api_fixture(api_setup) as address, connected(address) as connection:
        jobs = [{"name": f"j{number}", "function": "f", "input": {"a": "b" * 1000}} for number in range(250)]
        body = msgspec.json.encode({"jobs": jobs})
        head = "POST /v1/apply HTTP/1.1\r\nHost: gnomon\r\nAuthorization: Bearer admin\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

        assert heard(connection).startswith(b"HTTP/1.1 200")


def test_a_malformed_request_is_refused_as_a_problem() -> None:
    with serve_api_fixture(ApiFixture()) as address, connected(address) as connection:
        connection.sendall(b"something\r\n\r\n")
        head, _, body = heard(connection).partition(b"\r\n\r\n")

        assert b"content-type: application/problem+json" in head
        assert msgspec.json.decode(body)["status"] == 400


async def test_a_follower_of_the_stream_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = asyncio.Event()
    monkeypatch.setattr(FlowControl, "resume_writing", lambda _: lost.set())
    api_setup, stop, listening = ApiFixture(server=HASTY), asyncio.Event(), listen(ServerSettings(port=0))
    loop, address = asyncio.get_running_loop(), listening.getsockname()
    serving = asyncio.create_task(serve_fixture_on(api_setup, listening, stop))
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        asked = b"GET /v1/stream HTTP/1.1\r\nHost: gnomon\r\nAuthorization: Bearer admin\r\n\r\n"
        await loop.sock_sendall(connection, asked)
        assert await loop.sock_recv(connection, 10) == b"HTTP/1.1 2"
        while not lost.is_set():
            api_setup.change_stream.publish([Change("task", "default", instant_of(0), {"job": "x" * 10_000})])
            await asyncio.sleep(0)
        stop.set()
        await serving


# ---- certificates --------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def api_setup(authority: Authority) -> ApiFixture:
    server = authority.server()
    found = ApiFixture(
        server=ServerSettings(tls_cert_file=server.cert, tls_key_file=server.key, tls_client_ca_file=authority.file)
    )
    operator = frozenset({Role.OPERATOR})
    services = {
        "billing": Caller("billing", operator),
        "spiffe://corp/etl": Caller("spiffe://corp/etl", operator, "other"),
    }
    found.put(replace(found.services, certificates=services))
    return found


def shown(authority: Authority, pair: Pair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


@pytest.mark.req("C-15")
def test_a_service_is_known_by_its_certificate(api_setup: ApiFixture, authority: Authority) -> None:
    with serve_api_fixture(api_setup) as address:
        assert address.startswith("https://")
        with gnomon.Client(address, token="admin", tls=shown(authority, None)) as admin:  # noqa: S106 - a role
            admin.register({"name": "report", "function": "f"})
        with gnomon.Client(address, token="", tls=shown(authority, authority.vouches("billing"))) as billing:
            started = billing.trigger("report")
            with pytest.raises(errors.Forbidden):
                billing.delete("report")
            user = billing.execution(started.execution_id).user_id

    assert user == "billing"


def test_a_service_sees_only_what_is_its_tenants(api_setup: ApiFixture, authority: Authority) -> None:
    etl = authority.vouches("etl", UniformResourceIdentifier("spiffe://corp/etl"))
    with serve_api_fixture(api_setup) as address:
        with gnomon.Client(address, token="admin", tls=shown(authority, None)) as admin:  # noqa: S106 - a role
            admin.register({"name": "report", "function": "f"})
        with gnomon.Client(address, token="", tls=shown(authority, etl)) as other:
            assert list(other.jobs()) == []


def test_a_token_that_is_shown_beside_a_certificate_is_what_counts(api_setup: ApiFixture, authority: Authority) -> None:
    with serve_api_fixture(api_setup) as address:
        tls = shown(authority, authority.vouches("billing"))
        with gnomon.Client(address, token="stolen", tls=tls) as somebody, pytest.raises(errors.Unauthenticated):  # noqa: S106
            somebody.job("report")


def test_an_unlisted_certificate_does_not_authenticate(api_setup: ApiFixture, authority: Authority) -> None:
    # The common name is ignored if there is an alternative name.
    stranger = authority.vouches("billing", DNSName("stranger"))
    with serve_api_fixture(api_setup) as address:
        tls = shown(authority, stranger)
        with gnomon.Client(address, token="", tls=tls) as somebody, pytest.raises(errors.Unauthenticated):
            somebody.job("report")


def test_a_certificate_of_another_authority_is_refused(
    api_setup: ApiFixture, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "evil").mkdir()
    forged = Authority(tmp_path / "evil", "evil").vouches("billing")
    with serve_api_fixture(api_setup) as address:
        tls = shown(authority, forged)
        with gnomon.Client(address, token="", tls=tls) as somebody, pytest.raises(errors.Unavailable):
            somebody.job("report")


def test_the_role_of_a_certificate_is_read() -> None:
    assert read_certificates(("billing=operator", "CN=x=viewer/acme")) == {
        "billing": CertificateGrant("operator"),
        "CN=x": CertificateGrant("viewer", "acme"),
    }


@pytest.mark.parametrize("entry", ["billing", "=admin", "billing=root", "billing=admin/", "billing=admin/A B"])
def test_a_malformed_rule_for_certificates_is_refused(entry: str) -> None:
    with pytest.raises(errors.FieldError, match=r"auth\.certificates"):
        read_certificates([entry])


def test_a_certificate_is_named_once() -> None:
    with pytest.raises(errors.FieldError, match="a second time"):
        read_certificates(["a=viewer", "a=admin"])


@pytest.mark.parametrize(
    ("server", "field"),
    [
        (ServerSettings(tls_key_file="x"), "server.tls_key_file"),
        (ServerSettings(tls_client_ca_file="x"), "server.tls_client_ca_file"),
        (ServerSettings(tls_cert_file="none.pem"), "server.tls_cert_file"),
    ],
)
def test_certificates_that_cannot_be_used_are_refused_at_the_start(server: ServerSettings, field: str) -> None:
    with pytest.raises(errors.FieldError) as refused:
        tls_context(server)

    assert refused.value.field == field


# ---- how often -----------------------------------------------------------------------------------


async def test_a_caller_over_its_rate_is_told_when_to_retry() -> None:
    api_setup = ApiFixture(server=ServerSettings(rate_limit=60, rate_burst=3))
    async with api_setup.caller("viewer") as viewer, api_setup.caller("admin") as admin:
        answers = [await viewer.get("/v1/jobs") for _ in range(4)]
        others = await admin.get("/v1/jobs")
        probe = await viewer.get("/v1/health")
        api_setup.clock.advance(1000)
        again = await viewer.get("/v1/jobs")

    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    assert answers[3].headers["retry-after"] == "1"
    assert answers[3].json()["type"] == "urn:gnomon:problem:too_many"
    assert [one.status_code for one in (others, probe, again)] == [200, 200, 200]


async def test_a_token_may_be_as_long_as_the_settings_say() -> None:
    api_setup = ApiFixture()
    api_setup.put(replace(api_setup.services, max_token_length=20))
    async with api_setup.caller(None) as somebody:
        long = await somebody.get("/v1/jobs", Authorization="Bearer admin/" + "x" * 20)
        short = await somebody.get("/v1/jobs", Authorization="Bearer admin/" + "x" * 5)

    assert (long.status_code, short.status_code) == (401, 200)
