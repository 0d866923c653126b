"""Requests that two parsers could understand differently, or that cost more than they should, on a real server."""

import http.client
import socket
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.api_server import background_scheduler
from support.raw_http import answered, connected, headers_of, heard, sent_until_closed, statuses

MIB = 2**20


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parsing") / "gnomon.db"


@pytest.fixture(scope="module")
def address(database: Path) -> Iterator[str]:
    with background_scheduler(database, server__hosts="gnomon.example") as running:
        assert running.address is not None
        yield running.address


@pytest.fixture(scope="module")
def token(database: Path, address: str) -> str:
    assert address
    return database.with_name("gnomon.db.token").read_text().strip()


def request(line: str, *fields: str, body: bytes = b"", host: str | None = "localhost", close: bool = True) -> bytes:
    """A request; its connection closes after the response."""
    named = [f"Host: {host}"] if host is not None else []
    ends = ["Connection: close"] if close else []
    return "\r\n".join([line, *named, *fields, *ends, "", ""]).encode("latin-1") + body


def status(address: str, raw: bytes) -> int:
    return statuses(answered(address, raw))[0]


PLAN = "POST /v1/plan HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
JSON = "Content-Type: application/json"
NOTHING_PLANNED = b'{"jobs":[]}'
CHUNK = b"b\r\n%s\r\n" % NOTHING_PLANNED


# ---- trailers ------------------------------------------------------------------------------------


def test_a_token_in_a_trailer_authenticates_nobody(address: str, token: str) -> None:
    trailer = f"Authorization: Bearer {token}\r\n".encode()

    assert status(address, request(PLAN, JSON, CHUNKED, body=CHUNK + b"0\r\n" + trailer + b"\r\n")) == 401


def test_the_type_of_a_body_is_not_taken_from_a_trailer(address: str, token: str) -> None:
    bearer, trailer = f"Authorization: Bearer {token}", b"Content-Type: application/json\r\n"

    assert status(address, request(PLAN, bearer, CHUNKED, body=CHUNK + b"0\r\n" + trailer + b"\r\n")) == 415


def test_an_ordinary_trailer_changes_nothing(address: str, token: str) -> None:
    bearer = f"Authorization: Bearer {token}"

    body = CHUNK + b"0\r\nX-Checksum: 1\r\nHost: evil.example\r\n\r\n"
    assert status(address, request(PLAN, bearer, JSON, CHUNKED, body=body)) == 200


ENDLESS = {
    "trailers": (b"0\r\n", b"a: b\r\n" * 10_000),
    "long trailers": (b"0\r\n", b"a: " + b"b" * 60_000 + b"\r\n"),
    "a trailer": (b"0\r\na: ", b"b" * 60_000),
    "a chunk extension": (b"1;a=", b"b" * 60_000),
    "chunk extensions": (b"", (b"1;" + b"a" * 5_000 + b"\r\nx\r\n") * 10),
    "chunks of one byte": (b"", b"1\r\nx\r\n" * 10_000),
    "chunks of five bytes": (b"", b"5\r\nabcde\r\n" * 10_000),
    "large chunks": (b"", b"10000\r\n" + b"a" * 65_536 + b"\r\n"),
    "a header": (None, b"X-A: " + b"a" * 60_000),
    "headers": (None, b"X-A: b\r\n" * 10_000),
}


@pytest.mark.parametrize(("first", "piece"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("authenticated", [False, True], ids=["stranger", "admin"])
def test_a_request_without_end_is_refused_before_it_fills_the_memory(
    address: str, token: str, *, first: bytes | None, piece: bytes, authenticated: bool
) -> None:
    bearer = [f"Authorization: Bearer {token}"] if authenticated else []
    start = request(PLAN, *bearer, JSON, CHUNKED, close=False)
    with connected(address) as connection:
        connection.sendall(start[:-2] if first is None else start + first)
        sent = sent_until_closed(connection, repeat(piece, 100 * MIB // len(piece)))

    # The buffers of the kernel take some of it.
    assert sent < 40 * MIB


def test_a_client_that_sends_its_body_slowly_and_is_refused_sees_why(address: str) -> None:
    with connected(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request(PLAN, JSON, "Content-Length: 2000000", close=False))
        # Every segment may arrive on its own.
        assert sent_until_closed(connection, repeat(b" " * 1_000, 2_000)) == 2_000_000
        connection.shutdown(socket.SHUT_WR)

        assert statuses(heard(connection)) == [401]


def test_a_request_has_one_response_even_if_its_body_breaks_off_after_it(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(request(PLAN, JSON, CHUNKED, body=CHUNK, close=False))
        refused = connection.recv(65_536)
        connection.sendall(b"no chunk\r\n")

        assert statuses(refused + heard(connection)) == [401]


# ---- Host and target -----------------------------------------------------------------------------

HEALTH = "GET /v1/health HTTP/1.1"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (request(HEALTH), 200),
        (request(HEALTH, host="LOCALHOST:8062"), 200),
        (request(HEALTH, host="127.0.0.1"), 200),
        (request(HEALTH, host="[::1]:8062"), 200),
        (request(HEALTH, host="10.1.2.3:8062"), 200),  # a port that is forwarded, or a probe of Kubernetes
        (request(HEALTH, host="gnomon.example"), 200),
        (request(HEALTH, host="Gnomon.Example.:80"), 200),
        (request("GET http://localhost/v1/health HTTP/1.1"), 200),
        (request("GET /livez HTTP/1.0", host=None), 200),
        (request(HEALTH, host=None), 400),
        (request(HEALTH, "Host: localhost"), 400),
        (request(HEALTH, "host: evil.example"), 400),
        (request("GET /livez HTTP/1.0", "Host: localhost"), 400),
        (request(HEALTH, host=""), 400),
        (request(HEALTH, host="localhost, evil.example"), 400),
        (request(HEALTH, host="localhost/evil.example"), 400),
        (request(HEALTH, host="user@localhost"), 400),
        (request(HEALTH, host="localhost:80:80"), 400),
        (request(HEALTH, host="[::1"), 400),
        (request("GET http://evil.example/v1/health HTTP/1.1"), 400),
        (request("GET http://localhost:81/v1/health HTTP/1.1"), 400),
        (request("GET http://user@localhost/v1/health HTTP/1.1"), 400),
        (request("GET http://localhost HTTP/1.1"), 400),
        (request("GET http://localhost/v1/health HTTP/1.0", host=None), 400),
        (request("OPTIONS * HTTP/1.1"), 400),
        (request(HEALTH, host="evil.example"), 421),
        (request(HEALTH, host="localhost.evil.example"), 421),
        (request(HEALTH, host="127.0.0.1.evil.example"), 421),
        (request(HEALTH, host="0x7f.1"), 421),
    ],
)
def test_a_request_names_one_host_that_the_server_answers_for(address: str, raw: bytes, expected: int) -> None:
    assert status(address, raw) == expected


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v1/health", "/v1/jobs", "/openapi.json", "/nothing"])
def test_every_path_refuses_a_name_that_was_rebound(address: str, token: str, path: str) -> None:
    raw = request(f"GET {path} HTTP/1.1", f"Authorization: Bearer {token}", host="rebound.example")

    response = answered(address, raw)

    assert statuses(response) == [421]
    assert b"urn:gnomon:problem:unknown_host" in response


# ---- the token -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Bearer  {}",
        "Bearer\t{}",
        "Bearer{}",
        "Bearer {}\xa0",
        "Bearer {}\x85",
        "Bearer \xa0{}",
        "Bearer {} {}",
        "Bearer {},",
        'Bearer "{}"',
        "Basic {}",
    ],
)
def test_a_token_has_one_form(address: str, token: str, header: str) -> None:
    raw = request("GET /v1/jobs HTTP/1.1", f"Authorization: {header.replace('{}', token)}")

    assert status(address, raw) == 401


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER {}", "  Bearer {}  "])
def test_the_scheme_has_any_case_and_white_space_around_a_header_does_not_count(
    address: str, token: str, header: str
) -> None:
    assert status(address, request("GET /v1/jobs HTTP/1.1", f"Authorization: {header.format(token)}")) == 200


# ---- other protocols -----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
def test_a_request_for_another_protocol_is_answered_in_http_with_its_whole_body(
    address: str, token: str, protocol: str
) -> None:
    hidden = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    fields = [f"Upgrade: {protocol}", f"Authorization: Bearer {token}", JSON]
    length = f"Content-Length: {len(NOTHING_PLANNED)}"
    whole = request(PLAN, "Connection: Upgrade", *fields, length, body=NOTHING_PLANNED, close=False)
    smuggled = request(PLAN, "Connection: Upgrade", *fields, f"Content-Length: {len(hidden)}", body=hidden, close=False)

    assert statuses(answered(address, whole)) == [200]
    # The body is a body, never a second request.
    assert statuses(answered(address, smuggled)) == [400]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, (400,)),
        (request("GET /livez HTTP/2.0"), (400, 505)),
        (request("GET /livez HTTP/0.9"), (400, 505)),
        (request("GET /livez HTTP/1.2"), (400, 505)),
        (request("CONNECT localhost:22 HTTP/1.1"), (400, 501)),
        (request("CONNECT / HTTP/1.1"), (400, 501)),
        (request(PLAN, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), (501,)),
        (request(PLAN, "Transfer-Encoding: identity"), (400, 501)),
        (request("POST /v1/plan HTTP/1.0", CHUNKED, body=b"0\r\n\r\n"), (400, 501)),
        (request(PLAN, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), (400, 501)),
        (request(PLAN, "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n"), (400,)),
        (request(PLAN, "Transfer-Encoding : chunked", body=b"0\r\n\r\n"), (400,)),
        (request(PLAN, "Content-Length: +5", body=b"12345"), (400,)),
        (request(PLAN, "Content-Length: 5", "Content-Length: 5", body=b"12345"), (400,)),
        (request("GET /livez HTTP/1.1", "X-Folded: a\r\n b"), (400,)),
        (request("GET /livez HTTP/1.1", "X-Zero: a\0b"), (400,)),
        (b"GET /livez HTTP/1.1\nHost: localhost\n\n", (400,)),
    ],
)
def test_ambiguous_requests_and_other_protocols_are_refused(
    address: str, raw: bytes, expected: tuple[int, ...]
) -> None:
    assert status(address, raw) in expected


# ---- pipelining ----------------------------------------------------------------------------------

LIVEZ = request("GET /livez HTTP/1.1", close=False)


def test_pipelined_requests_are_answered_in_order(address: str) -> None:
    nothing = request("GET /nothing HTTP/1.1", close=False)

    responses = answered(address, LIVEZ + nothing + LIVEZ + request("GET /v1/jobs HTTP/1.1"))

    assert statuses(responses) == [200, 404, 200, 401]


def test_a_malformed_request_does_not_overtake_the_response_before_it(address: str) -> None:
    assert statuses(answered(address, LIVEZ + b"nonsense\r\n\r\n"))[0] == 200


def test_a_flood_of_pipelined_requests_is_refused(address: str) -> None:
    assert statuses(answered(address, LIVEZ * 5_000))[:1] in ([200], [400])
    assert status(address, request("GET /livez HTTP/1.1")) == 200


def test_a_client_that_expects_100_gets_it_and_then_its_response(address: str, token: str) -> None:
    fields = [f"Authorization: Bearer {token}", JSON, f"Content-Length: {len(NOTHING_PLANNED)}", "Expect: 100-continue"]
    with connected(address) as connection:
        connection.sendall(request(PLAN, *fields, close=False))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(NOTHING_PLANNED)

        assert statuses(heard(connection)) == [200]


def test_after_a_refusal_instead_of_100_nothing_more_is_read_from_the_connection(address: str) -> None:
    fields = [JSON, "Content-Length: 1000", "Expect: 100-continue"]

    # The second request would be read as the body of the first.
    assert statuses(answered(address, request(PLAN, *fields, close=False))) == [401]


# ---- headers of responses ------------------------------------------------------------------------

SECURE = {
    "cache-control": ["no-store"],
    "x-content-type-options": ["nosniff"],
    "referrer-policy": ["no-referrer"],
    "x-frame-options": ["DENY"],
    "content-security-policy": ["default-src 'none'; frame-ancestors 'none'"],
}


@pytest.mark.parametrize(
    "raw",
    [
        request(HEALTH),
        request("HEAD /v1/health HTTP/1.1"),
        request("GET /livez HTTP/1.1"),
        request("GET /openapi.json HTTP/1.1"),
        request("GET /v1/jobs HTTP/1.1"),
        request("GET /nothing HTTP/1.1"),
        request("DELETE /livez HTTP/1.1"),
        request("GET /v1/../livez HTTP/1.1"),
        request(HEALTH, host="evil.example"),
        b"nonsense\r\n\r\n",
    ],
)
def test_every_response_has_the_security_headers_once(address: str, raw: bytes) -> None:
    found = headers_of(answered(address, raw))

    assert {name: found.get(name) for name in SECURE} == SECURE


def test_responses_with_data_have_the_security_headers_too(address: str, token: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    for path in ("/v1/jobs", "/v1/stream"):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200
        assert {name: response.headers.get_all(name) for name in SECURE} == SECURE
        if path == "/v1/jobs":
            response.read()
    connection.close()
