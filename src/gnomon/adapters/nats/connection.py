"""One connection to NATS, which comes back by itself."""

import asyncio
import re
from typing import TYPE_CHECKING, Any

from gnomon.config.sections import NatsSettings
from gnomon.errors import BusUnavailable
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client

#: In an address: what nobody else should read.
_WHO = re.compile(r"//[^/,]*@")


class NatsUnavailable(BusUnavailable):
    """NATS does not answer."""


async def connect(settings: NatsSettings, events: Events, *, name: str) -> "Client":
    """A connection that is tried again for ever once it was there; NatsUnavailable if it cannot be had now.

    Answers come to subjects that begin with the user's name, so that a server can keep users apart.
    """
    from nats.aio.client import Client
    from nats.errors import Error

    client = Client()
    seconds = settings.timeout_ms / 1000
    try:
        # It would go on trying for ever also when it has never been there, and a wrong address would never be told.
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
        # It was tried until our patience was over: why it could not be had says more than that.
        why = f"{client.last_error or problem!r}"
        raise NatsUnavailable(f"cannot reach NATS at {_WHO.sub('//', settings.url)}: {why}") from problem
    finally:
        # A server that takes the connection and says nothing would leave us with half of one.
        if not client.is_connected:
            await client.close()
    return client


def _event_callbacks(events: Events, name: str) -> dict[str, Any]:
    """What the client calls when something happens to its connection."""

    async def error(problem: Exception) -> None:
        events.emit("nats_error", error=repr(problem))

    async def gone() -> None:
        events.emit("nats_disconnected", client=name)

    async def back() -> None:
        events.emit("nats_reconnected", client=name)

    return {"error_cb": error, "disconnected_cb": gone, "reconnected_cb": back}
