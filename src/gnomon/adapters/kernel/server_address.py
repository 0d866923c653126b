"""The addresses and the certificate of a server that is a policy kernel."""

from typing import NamedTuple

from gnomon.errors import FieldError

#: How long a server that stops waits for the answers under way.
GRACE_SECONDS = 5.0


class ServerAddress(NamedTuple):
    """A host and a port; the port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerCertificate(NamedTuple):
    """A certificate with its chain, and its private key, in PEM, and the files that they are from."""

    chain: bytes
    key: bytes
    chain_file: str
    key_file: str


def read_address(field: str, text: str) -> ServerAddress:
    """The address in a text such as `127.0.0.1:50051` or `[::1]:0`; FieldError if it is none."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise FieldError(field, text, "must be HOST:PORT, such as 127.0.0.1:50051")
    return ServerAddress(host, int(port))
