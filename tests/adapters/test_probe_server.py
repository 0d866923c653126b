"""The small server for those who look from outside, with callers of every kind."""

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from gnomon.adapters.probe_server import ProbeResponse, ProbeServer
from gnomon.core.served_hosts import ServedHosts
from gnomon.errors import UsageError
from gnomon.testing.clock import Recorder
from support.raw_http import headers_of

HOSTS = ServedHosts(["x"], bound_to="127.0.0.1")


async def fine() -> ProbeResponse:
    return ProbeResponse(body=b"fine\n")


async def ill() -> ProbeResponse:
    return ProbeResponse(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"ill\n")


async def broken() -> ProbeResponse:
    raise RuntimeError("password=hunter2")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = ProbeServer({"/fine": fine, "/ill": ill, "/broken": broken}, Recorder(), HOSTS)
    yield await server.listen("127.0.0.1", 0)
    await server.close()


async def reported(port: int, request: bytes) -> bytes:
    """All that the server says to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def asked(line: str) -> bytes:
    return f"{line}\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /fine HTTP/1.1", 200),
        ("GET /fine?since=yesterday HTTP/1.0", 200),
        ("HEAD /fine HTTP/1.1", 200),
        ("GET /ill HTTP/1.1", 503),
        ("GET /broken HTTP/1.1", 500),
        ("GET /elsewhere HTTP/1.1", 404),
        ("GET /../fine HTTP/1.1", 404),
        ("GET //fine HTTP/1.1", 404),
        ("POST /fine HTTP/1.1", 405),
        ("GET @evil.example HTTP/1.1", 400),
        ("GET http://evil.example/fine HTTP/1.1", 400),
        ("GET /fine HTTP/1.1\r\nHost: x", 400),
        ("GET /fine HTTP/2.0", 400),
        ("GET /fine", 400),
        ("\x16\x03\x01", 400),
        ("GET /fi ne HTTP/1.1", 400),
    ],
)
async def test_every_request_has_its_answer(port: int, line: str, status: int) -> None:
    assert (await reported(port, asked(line))).startswith(f"HTTP/1.1 {status} ".encode())


async def test_the_body_is_what_the_page_says(port: int) -> None:
    assert (await reported(port, asked("GET /fine HTTP/1.1"))).endswith(b"\r\n\r\nfine\n")


async def test_a_head_has_no_body(port: int) -> None:
    assert (await reported(port, asked("HEAD /fine HTTP/1.1"))).endswith(b"\r\n\r\n")


async def test_a_page_that_fails_does_not_say_why(port: int) -> None:
    assert b"hunter2" not in await reported(port, asked("GET /broken HTTP/1.1"))


async def test_a_head_that_is_too_large_is_refused(port: int) -> None:
    assert (await reported(port, b"GET /fine HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")).startswith(
        b"HTTP/1.1 400"
    )


async def test_callers_who_say_nothing_do_not_keep_others_from_being_answered(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]

    assert b" 200 " in await reported(port, asked("GET /fine HTTP/1.1"))

    for _, writer in silent:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /fine HTTP/1.1\r\nHost: 10.0.0.7:9090\r\n\r\n", 200),
        (b"GET /fine HTTP/1.1\r\nhost:\tlocalhost \r\n\r\n", 200),
        (b"GET /fine HTTP/1.0\r\n\r\n", 200),
        (b"GET /fine HTTP/1.1\r\n\r\n", 400),
        (b"GET /fine HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 400),
    ],
)
async def test_a_request_names_a_host_that_the_server_answers_for(port: int, request_: bytes, status: int) -> None:
    assert (await reported(port, request_)).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("line", ["GET /fine HTTP/1.1", "GET /ill HTTP/1.1", "GET /elsewhere HTTP/1.1", "nonsense"])
async def test_every_response_has_the_security_headers(port: int, line: str) -> None:
    found = headers_of(await reported(port, asked(line)))

    assert found["cache-control"] == ["no-store"]
    assert found["x-content-type-options"] == ["nosniff"]
    assert found["x-frame-options"] == ["DENY"]


async def test_a_port_that_is_taken_is_refused_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=rf"metrics\.port: {port} on 127\.0\.0\.1 is taken by another process"):
            await ProbeServer({}, Recorder(), HOSTS).listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
async def test_a_host_that_is_not_ours_is_refused_with_its_setting(host: str) -> None:
    with pytest.raises(UsageError, match=r"metrics\.host"):
        await ProbeServer({}, Recorder(), HOSTS).listen(host, 0)
