"""Hints over NATS: core messages, which are not stored."""

import asyncio
import secrets
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.adapters.hint_batcher import HintBatcher
from gnomon.adapters.nats.connection import NatsUnavailable, connect
from gnomon.config.sections import NatsSettings
from gnomon.ports.coordination import HintCallback, HintTopic
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

SUBJECT = "mq.scheduler.hint"
#: The pause between tries until the first connection; after that the client reconnects by itself.
_PAUSE_SECONDS = 0.5


class NatsHints:
    """The port Hints, on a connection of its own."""

    def __init__(self, settings: NatsSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._batcher = HintBatcher(self._send, events)
        self.send = self._batcher.send
        #: Identifies our own messages, which are ignored.
        self._sender_id = secrets.token_hex(4).encode()
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._heard: HintCallback = lambda _: None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def listen(self, heard: HintCallback) -> None:
        """See Hints.listen."""
        self._heard = heard
        self._listening = asyncio.create_task(self._begin_listening(), name="gnomon-listen")

    async def close(self) -> None:
        """See Hints.close."""
        await self._batcher.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._heard, self._closed = lambda _: None, True
        if self._client is not None:
            with suppress(Exception):
                await self._client.close()

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit: an event of the connection. A reconnect counts as a hint on every topic: some were lost."""
        if not self._closed:
            self._events.emit(name, **facts)
        if name == "nats_reconnected":
            self._hint_all()

    async def _send(self, topics: Collection[HintTopic]) -> None:
        from nats.errors import Error

        client = await self._connected()
        if not client.is_connected:
            raise NatsUnavailable("not connected to NATS")
        try:
            for topic in topics:
                await client.publish(f"{SUBJECT}.{topic}", self._sender_id)
            await client.flush(timeout=self._settings.timeout_ms / 1000)  # type: ignore[arg-type]
        except (OSError, Error) as error:
            raise NatsUnavailable(f"NATS: {error!r}") from error

    async def _begin_listening(self) -> None:
        from nats.errors import Error

        while True:
            with suppress(NatsUnavailable, OSError, Error):
                client = await self._connected()
                await client.subscribe(f"{SUBJECT}.*", cb=self._on_message)
                await client.flush()
                self._hint_all()
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _on_message(self, message: "Msg") -> None:
        topic = message.subject.removeprefix(f"{SUBJECT}.")
        if message.data != self._sender_id and topic in list(HintTopic):
            self._heard(HintTopic(topic))

    def _hint_all(self) -> None:
        for topic in HintTopic:
            self._heard(topic)

    async def _connected(self) -> "Client":
        async with self._connecting:
            if self._client is None:
                self._client = await connect(self._settings, self, name="gnomon-hints")
            return self._client
