"""Requests that no client library sends, on a real socket."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from support.api_fixture import ApiFixture
from support.api_server import serve_api_fixture


@pytest.fixture
def address(api_setup: ApiFixture) -> Iterator[str]:
    with serve_api_fixture(api_setup) as found:
        yield found
    assert api_setup.unhandled_errors == []


def answered(address: str, raw: bytes) -> bytes:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall(raw)
        heard = b""
        while more := connection.recv(65_536):
            heard += more
            if b"\r\n\r\n" in heard:
                break
    return heard


HEAD = b"Host: gnomon\r\nAuthorization: Bearer admin\r\nContent-Type: application/json\r\n"
ODD = {
    "two lengths": b"POST /v1/jobs HTTP/1.1\r\n" + HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"POST /v1/jobs HTTP/1.1\r\n"
    + HEAD
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no request": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "another host in the line": b"GET @evil.example HTTP/1.1\r\nHost: gnomon\r\n\r\n",
    "climbing": b"GET /v1/jobs/..%2f..%2fmetrics HTTP/1.1\r\n" + HEAD + b"\r\n",
    "no slash": b"GET v1/health HTTP/1.1\r\nHost: gnomon\r\n\r\n",
    "a zero in the address": b"GET /v1/jobs/a%00b HTTP/1.1\r\n" + HEAD + b"\r\n",
}


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD)
def test_ambiguous_requests_are_refused(address: str, raw: bytes) -> None:
    assert answered(address, raw).startswith(b"HTTP/1.1 400")


def test_a_declared_gigabyte_is_refused_before_it_is_sent(address: str) -> None:
    heard = answered(address, b"POST /v1/jobs HTTP/1.1\r\n" + HEAD + b"Content-Length: 1073741824\r\n\r\n")

    assert heard.startswith(b"HTTP/1.1 413")


def test_many_slow_callers_keep_nobody_waiting(address: str) -> None:
    parts = urlsplit(address)
    slow = [socket.create_connection((parts.hostname or "", parts.port or 0)) for _ in range(300)]
    for connection in slow:
        connection.sendall(b"G")

    heard = answered(address, b"GET /livez HTTP/1.1\r\nHost: gnomon\r\n\r\n")

    for connection in slow:
        connection.close()
    assert heard.startswith(b"HTTP/1.1 200")
