"""A client of NATS that refuses servers without TLS."""

from typing import Any

from nats.aio.client import Client
from nats.errors import Error


class EncryptedClient(Client):
    """Refuses a server without TLS, before any credentials are sent.

    The client of the library uses TLS only if the server asks for it, also at an address that begins with `tls://`:
    an attacker in the place of the server could have the credentials sent in the clear.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as the library calls it
        if initial_connection and not info.get("tls_required"):
            raise Error("the address says tls://, and the server has no TLS")
        await super()._process_info(info, initial_connection)
