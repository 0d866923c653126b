"""HTTP as bytes on a socket, for requests that no client library sends."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 60.0


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A connection to the server at a URL."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_PATIENCE_SECONDS) as connection:
        yield connection


def heard(connection: socket.socket) -> bytes:
    """All bytes until the peer closes the connection, with or without a reset."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            found += more
    return bytes(found)


def answered(address: str, raw: bytes) -> bytes:
    """All bytes that the server sends for these bytes, until it closes the connection."""
    with connected(address) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(raw)
        return heard(connection)


def statuses(responses: bytes) -> list[int]:
    """The statuses of all responses, one after another, in bytes of a connection."""
    found = []
    while responses:
        head, _, rest = responses.partition(b"\r\n\r\n")
        found.append(int(head.split(b" ")[1]))
        length = headers_of(head).get("content-length", ["0"])[0]
        responses = rest[int(length) :]
    return found


def headers_of(response: bytes) -> dict[str, list[str]]:
    """The values of each header of a response."""
    found: dict[str, list[str]] = {}
    for line in response.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(": ")
        found.setdefault(name.lower(), []).append(value)
    return found


def sent_until_closed(connection: socket.socket, pieces: Iterable[bytes]) -> int:
    """How many bytes the server takes before it closes the connection, or all."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    return sent
