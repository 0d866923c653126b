"""Puts TLS before a server that has none: the relay speaks TLS with clients, and plainly with the server."""

import asyncio
import contextlib
import ssl

from support.certificates import Pair
from support.tcp_relay import TcpRelay

_CHUNK = 65_536
#: How a client of PostgreSQL asks for TLS, and how a server agrees.
_POSTGRES_ASKS, _POSTGRES_AGREES = bytes.fromhex("0000000804d2162f"), b"S"


class TlsRelay(TcpRelay):
    """A relay with a certificate; `postgres` says whether clients ask for TLS in the way of PostgreSQL."""

    def __init__(self, port: int, certificate: Pair, *, postgres: bool = False) -> None:
        super().__init__(port)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate.cert, certificate.key)
        self._postgres = postgres

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            if self._postgres:
                assert await reader.readexactly(len(_POSTGRES_ASKS)) == _POSTGRES_ASKS
                writer.write(_POSTGRES_AGREES)
            await writer.start_tls(self._context)
            plain_reader, plain_writer = await asyncio.open_connection("127.0.0.1", self._to)
            with contextlib.closing(plain_writer):
                await asyncio.wait(
                    [
                        asyncio.ensure_future(_pass_on(reader, plain_writer)),
                        asyncio.ensure_future(_pass_on(plain_reader, writer)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
