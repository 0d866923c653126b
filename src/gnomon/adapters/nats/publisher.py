"""Many messages for streams, sent in one breath, and the word of the server for each.

The client's own way makes a name by dice and an object for every answer; this one counts, and looks for errors only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gnomon.adapters.nats.connection import NatsUnavailable
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

#: How many are sent before others have a turn, such as whoever answers requests.
_AT_A_STRETCH = 50


class StreamMessage(NamedTuple):
    """What is to be sent, by the name that it is known by, and what stands above it beside that name."""

    name: str
    subject: str
    body: bytes
    headers: Mapping[str, str]


class StreamPublisher:
    """Sends, and waits for answers on one subject of its own."""

    def __init__(self, client: "Client", events: Events, *, seconds: float) -> None:
        self._client = client
        self._events = events
        self._seconds = seconds
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._count = 0
        #: What is still to be answered, by the number it was sent under.
        self._waiting: dict[str, str] = {}
        self._arrived: set[str] = set()
        self._answered = asyncio.Event()

    async def send(self, messages: Sequence[StreamMessage]) -> frozenset[str]:
        """The names of those that surely arrived come back."""
        if not self._client.is_connected:
            raise NatsUnavailable("not connected")
        if self._subscription is None:
            self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)
        # Whoever has not answered by now never will, or too late.
        self._waiting.clear()
        self._arrived.clear()
        self._answered.clear()
        await self._put_all(messages)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._answered.wait()
        return frozenset(self._arrived)

    async def _put_all(self, messages: Sequence[StreamMessage]) -> None:
        """All of them are on their way, or wait in vain for an answer."""
        from nats.errors import Error, MaxPayloadError

        numbered = []
        for one in messages:
            self._count += 1
            self._waiting[str(self._count)] = one.name
            numbered.append((str(self._count), one))
        try:
            for place, (number, one) in enumerate(numbered, 1):
                if place % _AT_A_STRETCH == 0:
                    await asyncio.sleep(0)
                headers = {"Nats-Msg-Id": one.name, **one.headers}
                try:
                    await self._client.publish(one.subject, one.body, reply=f"{self._inbox}.{number}", headers=headers)
                except MaxPayloadError as error:
                    # What this server finds too large holds up no other.
                    self._waiting.pop(number, None)
                    self._events.emit("nats_error", error=f"{one.name}: {error!r}")
        except (Error, OSError) as error:
            self._events.emit("nats_error", error=repr(error))

    async def _heard(self, message: "Msg") -> None:
        name = self._waiting.pop(message.subject[len(self._inbox) + 1 :], None)
        if name is not None and message.data and b'"error"' not in message.data:
            # Else nobody keeps what is sent there, or whoever does has refused it.
            self._arrived.add(name)
        if not self._waiting:
            self._answered.set()
