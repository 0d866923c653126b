"""TLS to NATS, PostgreSQL and Redis: a certificate of a private authority is accepted, any other refused.

NATS speaks TLS itself. The builds of PostgreSQL and Redis that the tests have do not, so a relay does it for them.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from cryptography import x509

from gnomon.adapters.nats.connection import NatsUnavailable, connect
from gnomon.adapters.redis.connection import RedisUnavailable, create_client, translated_errors
from gnomon.adapters.sql.connect import open_store
from gnomon.config.sections import NatsSettings, RedisSettings
from gnomon.errors import StoreUnavailable
from gnomon.services.observed_events import NullEvents
from support.certificates import Authority, Pair
from support.nats_redis_servers import Nats, Redis
from support.postgres_server import postgres
from support.tls_relay import TlsRelay

#: The variable that names the authorities that every program on OpenSSL trusts by default.
TRUSTED = "SSL_CERT_FILE"


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """The authority that has signed the certificates of all servers."""
    return Authority(tmp_path)


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "foreign")


def of_another_host(ours: Authority) -> Pair:
    return ours.vouches("elsewhere", x509.DNSName("elsewhere.example"))


# ---- NATS ----------------------------------------------------------------------------------------


def nats_with(pair: Pair) -> Nats:
    return Nats(f"tls {{ cert_file: '{pair.cert}', key_file: '{pair.key}' }}\n")


@pytest.fixture
def nats(ours: Authority) -> Iterator[Nats]:
    with nats_with(ours.server()) as running:
        yield running


async def answer_of_nats(nats: Nats, scheme: str = "tls") -> str:
    """Connect as servers and workers do, and make a round trip."""
    settings = NatsSettings(url=f"{scheme}://127.0.0.1:{nats.port}")
    client = await connect(settings, NullEvents(), name="test")
    await client.flush()
    version = client.connected_server_version
    await client.close()
    return str(version)


async def test_nats_with_a_certificate_of_a_private_authority_is_accepted(
    nats: Nats, ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, ours.file)

    assert await answer_of_nats(nats)


@pytest.mark.req("H-22")
@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_nats_with_a_certificate_of_another_authority_is_refused(
    nats: Nats, foreign: Authority, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv(TRUSTED, foreign.file)

    with pytest.raises(NatsUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await answer_of_nats(nats, scheme)


async def test_nats_with_a_certificate_for_another_host_is_refused(
    ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, ours.file)

    with nats_with(of_another_host(ours)) as other, pytest.raises(NatsUnavailable, match="IP address mismatch"):
        await answer_of_nats(other)


async def test_nats_without_tls_is_refused_if_the_address_says_tls() -> None:
    with Nats() as plain, pytest.raises(NatsUnavailable, match="the server has no TLS"):
        await answer_of_nats(plain)


async def test_after_a_lost_connection_nothing_is_sent_to_nats_without_tls(
    nats: Nats, ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, ours.file)
    refused = asyncio.Event()
    settings = NatsSettings(url=f"tls://127.0.0.1:{nats.port}")
    client = await connect(settings, ErrorEvents(refused), name="test")
    nats.kill()
    with Nats() as plain:
        plain.kill()
        plain.port = nats.port
        plain.start()
        await refused.wait()

    assert not client.is_connected
    await client.close()


class ErrorEvents(NullEvents):
    """Sets an event when the client reports a server without TLS."""

    def __init__(self, refused: asyncio.Event) -> None:
        self._refused = refused

    def emit(self, name: str, **facts: object) -> None:
        if name == "nats_error" and "the server has no TLS" in str(facts["error"]):
            self._refused.set()


# ---- PostgreSQL ----------------------------------------------------------------------------------


async def answer_of_postgres(port: int, **parameters: str) -> str | None:
    """Open a store over that port, and read from it."""
    address = (await postgres(18).fresh()).replace(f":{postgres(18).port}/", f":{port}/")
    store = await open_store(f"{address}?{urlencode(parameters)}")
    try:
        return await store.transactions.read(lambda conn: conn.scalar(sa.text("SELECT 'answered'")))
    finally:
        await store.close()


@pytest.fixture
def encrypted_postgres(ours: Authority) -> Iterator[TlsRelay]:
    with TlsRelay(postgres(18).port, ours.server(), postgres=True) as relay:
        yield relay


async def test_postgresql_with_a_certificate_of_a_private_authority_is_accepted(
    encrypted_postgres: TlsRelay, ours: Authority
) -> None:
    answer = await answer_of_postgres(encrypted_postgres.port, sslmode="verify-full", sslrootcert=ours.file)

    assert answer == "answered"


@pytest.mark.req("H-22")
async def test_postgresql_with_a_certificate_of_another_authority_is_refused(
    encrypted_postgres: TlsRelay, foreign: Authority
) -> None:
    with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await answer_of_postgres(encrypted_postgres.port, sslmode="verify-full", sslrootcert=foreign.file)


async def test_postgresql_with_a_certificate_for_another_host_is_refused(ours: Authority) -> None:
    with (
        TlsRelay(postgres(18).port, of_another_host(ours), postgres=True) as relay,
        pytest.raises(StoreUnavailable, match="IP address mismatch"),
    ):
        await answer_of_postgres(relay.port, sslmode="verify-full", sslrootcert=ours.file)


async def test_postgresql_without_tls_is_refused_if_the_address_requires_it() -> None:
    with pytest.raises(StoreUnavailable, match="rejected SSL upgrade"):
        await answer_of_postgres(postgres(18).port, sslmode="require")


# ---- Redis ---------------------------------------------------------------------------------------


async def answer_of_redis(port: int, authority: Authority) -> bool:
    """Connect as servers do, and make a round trip."""
    client = create_client(RedisSettings(url=f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.file}"))
    try:
        with translated_errors():
            return bool(await client.ping())
    finally:
        await client.aclose()


@pytest.fixture
def encrypted_redis(ours: Authority) -> Iterator[TlsRelay]:
    with Redis() as redis, TlsRelay(redis.port, ours.server()) as relay:
        yield relay


async def test_redis_with_a_certificate_of_a_private_authority_is_accepted(
    encrypted_redis: TlsRelay, ours: Authority
) -> None:
    assert await answer_of_redis(encrypted_redis.port, ours)


@pytest.mark.req("H-22")
async def test_redis_with_a_certificate_of_another_authority_is_refused(
    encrypted_redis: TlsRelay, foreign: Authority
) -> None:
    with pytest.raises(RedisUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await answer_of_redis(encrypted_redis.port, foreign)


async def test_redis_with_a_certificate_for_another_host_is_refused(ours: Authority) -> None:
    with (
        Redis() as redis,
        TlsRelay(redis.port, of_another_host(ours)) as relay,
        pytest.raises(RedisUnavailable, match="IP address mismatch"),
    ):
        await answer_of_redis(relay.port, ours)
