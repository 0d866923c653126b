"""Calls over HTTP, to real servers: good ones, bad ones, silent ones and none at all."""

import asyncio
import socket

import pytest

from gnomon.adapters.http_client import HttpPingSender
from gnomon.core.outgoing import AllowedHosts
from gnomon.errors import PingFailed
from gnomon.version import __version__
from support.http_listener import listener

SOON_MS = 5000


def sender() -> HttpPingSender:
    return HttpPingSender(AllowedHosts(["127.0.0.1"], field="security.allowed_hosts"))


async def test_a_call_asks_for_the_path_and_says_who_calls() -> None:
    async with listener() as heard:
        await sender().send(heard.url("/ping/5a2c?rid=1"), timeout_ms=SOON_MS)

        assert heard.calls == ["/ping/5a2c?rid=1"]
        assert heard.agents == [f"gnomon/{__version__}"]


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_an_answer_that_is_not_good_is_a_failure(status: int) -> None:
    async with listener() as heard:
        heard.statuses = [status]
        with pytest.raises(PingFailed, match=f"answered {status}"):
            await sender().send(heard.url("/x"), timeout_ms=SOON_MS)


async def test_redirects_to_other_hosts_are_not_followed() -> None:
    async with listener() as heard:
        heard.statuses = [302]
        await sender().send(heard.url("/x"), timeout_ms=SOON_MS)

        assert heard.calls == ["/x"]


async def test_a_server_that_hangs_is_given_up() -> None:
    async with listener() as heard:
        heard.hangs = True
        with pytest.raises(PingFailed, match=r"no answer within 0.05 s"):
            await sender().send(heard.url("/x"), timeout_ms=50)


async def test_a_server_that_sends_without_end_and_says_nothing_is_given_up() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 100_000)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(PingFailed, match="cannot be called"):
        await sender().send(f"http://127.0.0.1:{port}/", timeout_ms=SOON_MS)
    server.close()


async def test_where_nobody_listens_nothing_is_answered() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PingFailed, match="cannot be called"):
        await sender().send(f"http://127.0.0.1:{port}/my-key", timeout_ms=SOON_MS)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a\r\nX: y", "file:///etc/passwd", "", "http://127.0.0.1/\x00"])
async def test_an_invalid_address_is_not_called(url: str) -> None:
    with pytest.raises(PingFailed, match="not an http or https URL"):
        await sender().send(url, timeout_ms=SOON_MS)
