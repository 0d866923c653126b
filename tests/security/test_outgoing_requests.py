"""Requests that jobs cause reach public addresses only: over real sockets, with name servers that lie."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from gnomon.adapters.http_client import HttpClient, HttpPingSender, configured_client
from gnomon.core.outgoing import AllowedHosts, internal_kind
from gnomon.core.pings import is_http_url
from gnomon.errors import AddressRefused, FieldError, PingFailed, RequestFailed
from support.certificates import Authority
from support.http_listener import HttpListener, listener

SOON_MS = 5000
SETTING = "security.allowed_hosts"


class ScriptedResolver:
    """Answers with one list of addresses after the other, and counts the questions."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        assert port
        self.asked.append(host)
        return self.answers.pop(0)


def allowed(*entries: str) -> AllowedHosts:
    return AllowedHosts(entries, field=SETTING)


def test_a_listed_name_does_not_lead_to_the_credentials_of_the_machine() -> None:
    """The name server decides where a name leads; an address in the list is the decision of the administrator."""
    for text in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "::ffff:169.254.169.254", "100.100.100.200"):
        with pytest.raises(AddressRefused, match="address"):
            allowed("hooks.internal").check("hooks.internal", ip_address(text), 80)
    allowed("hooks.internal").check("hooks.internal", ip_address("10.0.0.1"), 6379)
    allowed("hooks.internal", "169.254.169.254").check("hooks.internal", ip_address("169.254.169.254"), 80)


@pytest.fixture
async def inside() -> AsyncIterator[HttpListener]:
    """A server inside the network."""
    async with listener() as heard:
        yield heard


# ---- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - not an address to listen on
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "shared"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.8", "reserved"),
        ("198.18.0.1", "benchmarking"),
        ("203.0.113.7", "documentation"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b:1::1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("2002:c0a8:1::1", "private"),
        ("8.8.8.8", None),
        ("172.32.0.1", None),
        ("100.63.255.255", None),
        ("2606:4700::1111", None),
        ("64:ff9b::8.8.8.8", None),
    ],
)
def test_every_spelling_of_an_internal_address_is_known(text: str, kind: str | None) -> None:
    assert internal_kind(ip_address(text)) == kind


@pytest.mark.parametrize("entry", ["", "10.0.0.1/8", "999.1.1.1", "http://x", "a b", "-x", "*", "x/24"])
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(FieldError, match=SETTING):
        allowed(entry)


def test_a_network_covers_the_addresses_that_embed_its_own() -> None:
    policy = allowed("127.0.0.0/8", "[fd00::1]", "hooks.internal")
    for host, text in (
        ("x", "127.0.0.1"),
        ("x", "::ffff:127.0.0.1"),
        ("x", "fd00::1"),
        ("HOOKS.internal.", "10.0.0.1"),
    ):
        policy.check(host, ip_address(text), 6379)
    for host, text in (("x", "10.0.0.1"), ("x", "fd00::2"), ("evil.hooks.internal", "10.0.0.1")):
        with pytest.raises(AddressRefused):
            policy.check(host, ip_address(text), 443)


def test_ports_of_other_protocols_need_a_listed_host() -> None:
    with pytest.raises(AddressRefused, match="port 6379"):
        allowed().check("x", ip_address("8.8.8.8"), 6379)
    allowed("8.8.8.8").check("x", ip_address("8.8.8.8"), 6379)


@pytest.mark.parametrize(
    "url",
    [
        "http://good.example@127.0.0.1/",
        "http://user:password@good.example/",
        "http://@good.example/",
        "http://good.example:0/",
        "http://good.example\\@evil/",
        "http://good.example#@evil/",
        "http://good.example/\t",
        "gopher://good.example/",
        "file:///etc/passwd",
        "unix:/run/x.sock",
        "//good.example/",
    ],
)
def test_other_urls_are_refused_before_anything_is_resolved(url: str) -> None:
    assert not is_http_url(url)


# ---- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0177.0.0.1", "127.1"]
)
async def test_a_job_does_not_reach_this_machine(inside: HttpListener, host: str) -> None:
    sender = HttpPingSender(allowed())
    with pytest.raises((AddressRefused, RequestFailed)):
        await sender.send(f"http://{host}:{inside.port}/", timeout_ms=SOON_MS)

    assert inside.calls == []


async def test_the_refusal_names_the_setting_and_not_the_address(inside: HttpListener) -> None:
    with pytest.raises(AddressRefused) as refused:
        await HttpPingSender(allowed()).send(inside.url("/my-key"), timeout_ms=SOON_MS)

    assert SETTING in str(refused.value)
    assert "loopback" in str(refused.value)
    assert "127.0.0.1" not in str(refused.value)


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "hooks.internal"])
async def test_a_listed_host_is_reached(inside: HttpListener, entry: str) -> None:
    host = entry if entry == "hooks.internal" else "x.example"
    client = HttpClient(allowed(entry), resolve=ScriptedResolver(["127.0.0.1"]))

    assert (await client.get(f"http://{host}:{inside.port}/a", timeout_ms=SOON_MS)).status == 200
    assert inside.calls == ["/a"]
    assert inside.hosts == [f"{host}:{inside.port}"]


async def test_a_name_with_one_internal_address_is_refused(inside: HttpListener) -> None:
    client = HttpClient(allowed(), resolve=ScriptedResolver(["8.8.8.8", "127.0.0.1"]))
    with pytest.raises(AddressRefused, match="loopback"):
        await client.get(f"http://x.example:{inside.port}/", timeout_ms=SOON_MS)

    assert inside.calls == []


async def test_a_name_is_resolved_once_so_that_a_second_answer_cannot_change_the_address(inside: HttpListener) -> None:
    # The first answer is permitted and refuses the connection; the second would be the server.
    resolver = ScriptedResolver(["127.0.0.2"], ["127.0.0.1"])
    client = HttpClient(allowed("127.0.0.2"), resolve=resolver)
    with pytest.raises(RequestFailed, match="cannot be called"):
        await client.get(f"http://x.example:{inside.port}/", timeout_ms=SOON_MS)

    assert resolver.asked == ["x.example"]
    assert inside.calls == []


async def test_names_that_are_never_resolved_hold_up_neither_threads_nor_configured_urls(
    inside: HttpListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, resolve = threading.Event(), socket.getaddrinfo

    def resolved(host: str, *rest: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is called
        if host == "silent.example":
            silent.wait()
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    sender = HttpPingSender(allowed())
    try:
        urls = [f"http://silent.example/{number}" for number in range(50)]
        sent = [sender.send(url, timeout_ms=50) for url in urls]
        assert all(isinstance(one, PingFailed) for one in await asyncio.gather(*sent, return_exceptions=True))

        async with asyncio.timeout(30):
            assert await asyncio.to_thread(lambda: "a command is killed in such a thread")
            await sender.send(f"http://localhost:{inside.port}/alive", timeout_ms=SOON_MS, configured=True)
    finally:
        silent.set()
    assert inside.calls == ["/alive"]


async def test_a_url_of_the_configuration_leads_anywhere(inside: HttpListener) -> None:
    await HttpPingSender(allowed()).send(inside.url("/own"), timeout_ms=SOON_MS, configured=True)

    assert inside.calls == ["/own"]


async def test_a_proxy_of_the_environment_is_not_used(inside: HttpListener, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listener() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        await configured_client().get(inside.url("/x"), timeout_ms=SOON_MS)

        assert (inside.calls, proxy.calls) == (["/x"], [])


async def test_a_large_answer_is_cut_off() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    with pytest.raises(RequestFailed, match="more than 1000 bytes"):
        await configured_client().get(url, timeout_ms=SOON_MS, max_bytes=1000)
    server.close()


async def test_tls_is_asked_for_the_name_although_the_connection_goes_to_the_address(tmp_path: Path) -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def asked(_: object, name: str | None, __: object) -> int:
        names.append(name)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context.sni_callback = asked
    certificate = Authority(tmp_path).server()
    context.load_cert_chain(*certificate)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    client = HttpClient(allowed("127.0.0.1"), resolve=ScriptedResolver(["127.0.0.1"]))
    with pytest.raises(RequestFailed):
        await client.get(f"https://x.example:{server.sockets[0].getsockname()[1]}/", timeout_ms=SOON_MS)
    server.close()

    assert names == ["x.example"]


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).server())
    calls: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    with pytest.raises(RequestFailed, match="cannot be called"):
        await configured_client().get(url, timeout_ms=SOON_MS)
    server.close()

    assert calls == []
