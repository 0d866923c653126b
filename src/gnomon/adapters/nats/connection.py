"""Connects to NATS; the client reconnects by itself."""

import asyncio
import re
from typing import TYPE_CHECKING, Any

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

    The inbox subjects contain the user's name, so that the permissions of NATS can separate users.
    """
    from nats.aio.client import Client
    from nats.errors import Error

    client = Client()
    seconds = settings.timeout_ms / 1000
    try:
        # The client would retry for ever even if it never connected, and a wrong address would not be reported.
        async with asyncio.timeout(seconds):
            await client.connect(
                [one.strip() for one in settings.url.split(",")],
                user=settings.user or None,
                password=settings.password or None,
                name=name,
                inbox_prefix=f"_INBOX_{settings.user}" if settings.user else "_INBOX",
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


def _event_callbacks(events: Events, name: str) -> dict[str, Any]:
    """The callbacks that report the state of the connection as events."""

    async def error(problem: Exception) -> None:
        events.emit("nats_error", error=repr(problem))

    async def gone() -> None:
        events.emit("nats_disconnected", client=name)

    async def back() -> None:
        events.emit("nats_reconnected", client=name)

    return {"error_cb": error, "disconnected_cb": gone, "reconnected_cb": back}
