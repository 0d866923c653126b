"""Addresses of database servers: with what other programs write behind the question mark, and refused in words."""

import pytest
import sqlalchemy as sa

from gnomon.adapters.sql.connect import open_postgres
from gnomon.adapters.sql.postgres import server_address
from gnomon.errors import StoreUnavailable, UsageError
from support.postgres_server import postgres

pytestmark = pytest.mark.req("H-18")


def test_query_parameters_of_the_address_are_passed_to_the_driver() -> None:
    address, reported = server_address(
        "postgres://ada:a%20b@db:6543/gnomon?sslmode=require&application_name=me&connect_timeout=10&sslrootcert="
    )

    assert (address.host, address.port, address.password, dict(address.query)) == ("db", 6543, "a b", {})
    assert reported == {"dsn": "postgresql://?sslmode=require&application_name=me"}


def test_no_parameter_is_passed_that_the_address_lacks() -> None:
    assert server_address("postgresql://db/gnomon")[1] == {}


@pytest.mark.parametrize(
    "odd",
    [
        "postgresql://ada:hunter2@db:/gnomon",
        "postgresql://ada:hunter2@db:port/gnomon",
        "postgresql://ada:hunter2@db:99999/gnomon",
        "postgresql://ada:hunter2@[::1/gnomon",
        "postgresql://ada:hunter2@db/gnomon?sslmode=on",
        "postgresql://ada:hunter2@db/gnomon?channel_binding=require",
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_and_not_repeated(odd: str) -> None:
    with pytest.raises(UsageError, match="the address of the database") as refused:
        server_address(odd)

    assert "hunter2" not in str(refused.value)


async def test_settings_of_the_server_count() -> None:
    async with postgres(16).database() as url:
        store = await open_postgres(f"{url}?sslmode=prefer&application_name=probe")
        try:
            named = await store.transactions.read(lambda conn: conn.scalar(sa.text("SHOW application_name")))
        finally:
            await store.close()

    assert named == "probe"


async def test_a_server_without_tls_is_not_spoken_to_if_that_is_required() -> None:
    async with postgres(16).database() as url:
        with pytest.raises(StoreUnavailable, match="SSL"):
            await open_postgres(f"{url}?sslmode=require")


async def test_a_setting_that_the_server_does_not_know_is_named() -> None:
    async with postgres(16).database() as url:
        with pytest.raises(UsageError, match='unrecognized configuration parameter "aplication_name"'):
            await open_postgres(f"{url}?aplication_name=probe")
