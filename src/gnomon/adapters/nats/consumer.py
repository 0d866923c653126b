"""Pulls the messages of a durable consumer with requests made in advance, so that they arrive during other work.

The client's own `fetch` waits for the whole batch, or makes two requests each time; this consumer returns the messages
that have arrived. Requests expire, so that pulling continues when a server restarts and has forgotten them.

A message is marked as doubtful if the delivery count of NATS cannot be trusted for it: after a reconnect, or when the
consumer was deleted and created again, NATS may have delivered the message before without knowing it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.nats.connection import NatsUnavailable
from gnomon.core.subjects import sender_of
from gnomon.ports.messaging import InboundMessage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

#: How long the server keeps a request, and how much longer a request without an end is counted as open.
_REQUEST_SECONDS = 5.0
_GRACE_SECONDS = 1.0
#: After so many requests their replies come to another inbox: NATS remembers the requests of an enrolled worker for as
#: long as it subscribes to their inbox.
_REQUESTS_PER_INBOX = 1_000
#: By how much the clock of NATS may differ from the clock here.
_DOUBT_MS = 5_000.0
_NEVER_IN_DOUBT = float("inf")
#: The header with the name of a message.
_NAME_HEADER = "Nats-Msg-Id"
#: The header of a message that may have been delivered before.
REDELIVERY_HEADER = "Gnomon-Again"
#: The status of a request that has expired, and of one without messages.
_OVER = ("408", "404")


class _PullRequest(Struct):
    """How many messages the request may still bring, and when it expires."""

    missing: int
    ends: float


class PullConsumer:
    """Pulls from one durable consumer of one stream."""

    def __init__(self, client: "Client", stream: str, consumer: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._requests: deque[_PullRequest] = deque()
        #: The messages that have arrived, each with the time when NATS stored it.
        self._received: deque[tuple[InboundMessage, float]] = deque()
        self._wakeup = asyncio.Event()
        self._reconnects = 0
        #: The delivery sequence of the last message, which counts the deliveries to all subscribers.
        self._deliveries = 0
        #: A message stored before then may have been delivered to another worker, whatever its delivery count says.
        self._doubtful_until_ms, self._doubts = 0.0, 0
        #: The error of the last request.
        self._request_error = ""
        self._subscription: Subscription | None = None
        self._requested = 0
        #: Earlier subscriptions, each with the time when the last of its requests is over.
        self._retired: deque[tuple[Subscription, float]] = deque()

    async def pull(self, *, limit: int, wait_ms: int, request: bool = True) -> list[InboundMessage]:
        """Up to `limit` messages, as soon as there is one; none after `wait_ms`.

        Without `request`, only messages that were offered, and those of earlier requests.
        """
        if self._subscription is None or self._requested >= _REQUESTS_PER_INBOX:
            await self._change_inbox()
        if not self._received:
            # Clear first: a message may arrive during the request.
            self._wakeup.clear()
            if request:
                await self._request(limit)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wakeup.wait()
        if self._request_error and not self._received:
            error, self._request_error = self._request_error, ""
            raise NatsUnavailable(f"cannot pull: {error}")
        if request and 0 < len(self._received) < limit:
            # Request more, so that they arrive before the next pull. A failure must not lose the messages received.
            with suppress(NatsUnavailable):
                await self._request(limit)
        return self._pop_received(limit)

    async def _change_inbox(self) -> None:
        """Subscribe to a new inbox. Earlier ones stay until no request can bring another message."""
        now = asyncio.get_running_loop().time()
        while self._retired and self._retired[0][1] < now:
            await self._retired.popleft()[0].unsubscribe()
        if self._subscription is not None:
            self._retired.append((self._subscription, now + _REQUEST_SECONDS + _GRACE_SECONDS))
        self._inbox, self._requested = self._client.new_inbox(), 0
        self._subscription = await self._client.subscribe(self._inbox, cb=self._arrived)

    @property
    def delivery_gaps(self) -> int:
        """How often the consumer may have lost track of its deliveries."""
        self._notice_reconnects()
        return self._doubts

    def offer(self, delivered: InboundMessage) -> None:
        """Add a message from another subject; the next pull returns it with the others."""
        self._received.append((delivered, _NEVER_IN_DOUBT))
        self._wakeup.set()

    async def stop(self) -> list[InboundMessage]:
        """Stop pulling; return the messages that have arrived already."""
        if self._subscription is not None:
            with suppress(Exception):  # a broken connection brings no messages either
                for one in (self._subscription, *(earlier for earlier, _ in self._retired)):
                    await one.unsubscribe()
                await self._client.flush(timeout=1)
        return self._pop_received(len(self._received))

    def _pop_received(self, limit: int) -> list[InboundMessage]:
        """Remove up to `limit` of the received messages, marked as doubtful where deliveries may have been lost."""
        self._notice_reconnects()
        taken = [self._received.popleft() for _ in range(min(limit, len(self._received)))]
        until_ms = self._doubtful_until_ms
        return [replace(one, doubtful=True) if stored_ms < until_ms else one for one, stored_ms in taken]

    async def _request(self, limit: int) -> None:
        now = asyncio.get_running_loop().time()
        self._notice_reconnects()
        while self._requests and (self._requests[0].ends < now or self._requests[0].missing <= 0):
            self._requests.popleft()
        missing = limit - len(self._received) - sum(one.missing for one in self._requests)
        if missing <= 0:
            return
        if not self._client.is_connected:
            raise NatsUnavailable("not connected")
        wanted = {"batch": missing, "expires": int(_REQUEST_SECONDS * 1e9)}
        await self._client.publish(self._next, msgspec.json.encode(wanted), reply=self._inbox)
        self._requested += 1
        self._requests.append(_PullRequest(missing, now + _REQUEST_SECONDS + _GRACE_SECONDS))

    def _request_ended(self, headers: Mapping[str, str]) -> None:
        """Note that a request has expired or failed."""
        if self._requests:
            self._requests.popleft()
        if headers.get("Status") not in _OVER:
            # The consumer may have been deleted; a new one of the same name does not know the earlier deliveries.
            self._doubt()
            self._request_error = f"{headers.get('Status')} {headers.get('Description', 'no responders')}"
        self._wakeup.set()

    def _notice_reconnects(self) -> None:
        """After a reconnect, forget open requests and doubt stored messages: the server may have lost its state."""
        reconnects = self._client.stats["reconnects"]
        if reconnects != self._reconnects:
            self._reconnects = reconnects
            self._requests.clear()
            self._doubt()

    def _doubt(self) -> None:
        self._doubts += 1
        self._doubtful_until_ms = time.time() * 1000 + _DOUBT_MS

    def _detect_recreated_consumer(self, reply: str) -> None:
        """A consumer whose delivery sequence starts again is a new one of the same name."""
        number = delivery_sequence(reply)
        if number <= self._deliveries:
            self._doubt()
        self._deliveries = number

    async def _arrived(self, message: "Msg") -> None:
        self._notice_reconnects()
        if not message.reply:
            # Every message of the stream has a reply subject for its acknowledgement.
            self._request_ended(message.headers or {})
            return
        if self._requests:
            self._requests[0].missing -= 1
            if not self._requests[0].missing:
                self._requests.popleft()
        self._detect_recreated_consumer(message.reply)
        tries, stored_ms = delivery_metadata(message.reply)
        headers = message.headers or {}
        came = InboundMessage(
            message.data,
            tries,
            message.reply,
            doubtful=REDELIVERY_HEADER in headers,
            sender=sender_of(message.subject),
            name=headers.get(_NAME_HEADER, ""),
        )
        self._received.append((came, stored_ms))
        self._wakeup.set()


def delivery_metadata(reply: str) -> tuple[int, float]:
    """The delivery count of a message and the time when it was stored, in ms, from its reply subject."""
    tries, _, _, stored_ns, *_ = _numbers(reply)
    return tries, stored_ns / 1_000_000


def delivery_sequence(reply: str) -> int:
    """How many deliveries the consumer has made, this one included."""
    return _numbers(reply)[2]


def _numbers(reply: str) -> list[int]:
    """Delivery count, stream sequence, consumer sequence, time stored in ns, and number of pending messages."""
    tokens = reply.split(".")
    first = 4 if len(tokens) < 11 else 6
    return [int(token) for token in tokens[first : first + 5]]
