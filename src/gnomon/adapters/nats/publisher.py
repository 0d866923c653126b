"""Publishes batches of messages to streams, and waits for the acknowledgements of all of them together.

The client's own publish makes a random name and a future for every acknowledgement; this one numbers its messages and
only looks for errors.
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

#: How many messages are sent before other tasks of the event loop run, such as answers to requests.
_YIELD_EVERY = 50


class StreamMessage(NamedTuple):
    """A message to publish: its name for deduplication, and headers besides that name."""

    name: str
    subject: str
    body: bytes
    headers: Mapping[str, str]


class StreamPublisher:
    """Sends messages, and receives all acknowledgements on one inbox."""

    def __init__(self, client: "Client", events: Events, *, seconds: float) -> None:
        self._client = client
        self._events = events
        self._seconds = seconds
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._count = 0
        #: The names of messages without an acknowledgement, by the number in their reply subject.
        self._waiting: dict[str, str] = {}
        self._arrived: set[str] = set()
        self._answered = asyncio.Event()

    async def send(self, messages: Sequence[StreamMessage]) -> frozenset[str]:
        """Send the messages; return the names of those that were acknowledged in time."""
        if not self._client.is_connected:
            raise NatsUnavailable("not connected")
        if self._subscription is None:
            self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._on_ack)
        # Acknowledgements of earlier calls are too late.
        self._waiting.clear()
        self._arrived.clear()
        self._answered.clear()
        await self._put_all(messages)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._answered.wait()
        return frozenset(self._arrived)

    async def _put_all(self, messages: Sequence[StreamMessage]) -> None:
        """Publish all messages; those that fail get no acknowledgement."""
        from nats.errors import Error, MaxPayloadError

        numbered = []
        for one in messages:
            self._count += 1
            self._waiting[str(self._count)] = one.name
            numbered.append((str(self._count), one))
        try:
            for place, (number, one) in enumerate(numbered, 1):
                if place % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                headers = {"Nats-Msg-Id": one.name, **one.headers}
                try:
                    await self._client.publish(one.subject, one.body, reply=f"{self._inbox}.{number}", headers=headers)
                except MaxPayloadError as error:
                    # A message that is too large for the server must not hold up the others.
                    self._waiting.pop(number, None)
                    self._events.emit("nats_error", error=f"{one.name}: {error!r}")
        except (Error, OSError) as error:
            self._events.emit("nats_error", error=repr(error))

    async def _on_ack(self, message: "Msg") -> None:
        name = self._waiting.pop(message.subject[len(self._inbox) + 1 :], None)
        if name is not None and message.data and b'"error"' not in message.data:
            # Otherwise no stream has the subject, or the stream has refused the message.
            self._arrived.add(name)
        if not self._waiting:
            self._answered.set()
