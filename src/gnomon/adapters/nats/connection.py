"""Connects to NATS; the client reconnects by itself."""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.adapters.nats.credentials import read_credentials
from gnomon.config.sections import NatsSettings
from gnomon.errors import BusUnavailable
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client

#: The credentials in an address, which errors must not show.
_CREDENTIALS = re.compile(r"//[^/,]*@")


class NatsUnavailable(BusUnavailable):
    """NATS does not answer."""


async def connect(settings: NatsSettings, events: Events, *, name: str) -> "Client":
    """A connection that reconnects for ever once it was established; NatsUnavailable if it cannot be established now.

    If one of the addresses says `tls://`, nothing is sent to a server without TLS. The inbox subjects contain the
    name of the user, so that the permissions of NATS can separate users. FileError if the file of the credentials
    cannot be used.
    """
    from nats.aio.client import Client
    from nats.errors import Error

    from gnomon.adapters.nats.encrypted_client import EncryptedClient

    identification = _identification(settings)
    addresses = [one.strip() for one in settings.url.split(",")]
    client = EncryptedClient() if any(one.startswith("tls://") for one in addresses) else Client()
    seconds = settings.timeout_ms / 1000
    try:
        # The client would retry for ever even if it never connected, and a wrong address would not be reported.
        async with asyncio.timeout(seconds):
            await client.connect(
                addresses,
                name=name,
                **identification,
                connect_timeout=seconds,  # type: ignore[arg-type]
                reconnect_time_wait=settings.reconnect_ms / 1000,  # type: ignore[arg-type]
                max_reconnect_attempts=-1,
                **_event_callbacks(events, name),
            )
    except (OSError, Error) as problem:
        # The last error of the client says more than our timeout.
        why = f"{client.last_error or problem!r}"
        raise NatsUnavailable(f"cannot reach NATS at {_CREDENTIALS.sub('//', settings.url)}: {why}") from problem
    finally:
        # A server that accepts the connection and sends nothing leaves it half open.
        if not client.is_connected:
            await client.close()
    return client


def _identification(settings: NatsSettings) -> dict[str, Any]:
    """The arguments of the client that say who we are."""
    if not settings.creds_file:
        inbox = f"_INBOX_{settings.user}" if settings.user else "_INBOX"
        return {"user": settings.user or None, "password": settings.password or None, "inbox_prefix": inbox}
    found = read_credentials(Path(settings.creds_file))
    return {
        # The client identifies itself only if it has a user name; with a signature it does not send the name.
        "user": found.name,
        "user_jwt_cb": found.claims.encode,
        "signature_cb": found.signature,
        "inbox_prefix": found.inbox,
    }


def _event_callbacks(events: Events, name: str) -> dict[str, Any]:
    """The callbacks that report the state of the connection as events."""

    async def error(problem: Exception) -> None:
        events.emit("nats_error", error=repr(problem))

    async def gone() -> None:
        events.emit("nats_disconnected", client=name)

    async def back() -> None:
        events.emit("nats_reconnected", client=name)

    return {"error_cb": error, "disconnected_cb": gone, "reconnected_cb": back}
