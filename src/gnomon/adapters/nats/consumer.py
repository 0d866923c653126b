"""Messages of a durable consumer, asked for in advance: they arrive while we do something else.

The client's own `fetch` waits for as many as were asked for, or makes two requests each time; this one hands over what
has come. Requests end by themselves, so that nothing is left deaf when a server comes back that has forgotten them.
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
from gnomon.ports.messaging import InboundMessage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

#: How long the server keeps a request, and how much longer we believe in one that nobody ended.
_REQUEST_SECONDS = 5.0
_GRACE_SECONDS = 1.0
#: By how much the clock of NATS may differ from ours.
_DOUBT_MS = 5_000.0
_NEVER_IN_DOUBT = float("inf")
#: Stands above a message that may have arrived before.
REDELIVERY_HEADER = "Gnomon-Again"
#: What a server says of a request whose time is over, and of one that has nothing to wait for.
_OVER = ("408", "404")


class _PullRequest(Struct):
    """So many messages may still come, until then."""

    missing: int
    ends: float


class PullConsumer:
    """One consumer of one stream."""

    def __init__(self, client: "Client", stream: str, consumer: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._requests: deque[_PullRequest] = deque()
        #: With when each was stored.
        self._received: deque[tuple[InboundMessage, float]] = deque()
        self._wakeup = asyncio.Event()
        self._reconnects = 0
        #: How many deliveries the consumer had made, to whomever, when it made the last one to us.
        self._deliveries = 0
        #: What was stored before then may have been given to somebody else, whatever the server says.
        self._doubtful_until_ms, self._doubts = 0.0, 0
        #: Why the last request could not be met.
        self._trouble = ""
        self._subscription: Subscription | None = None

    async def pull(self, *, limit: int, wait_ms: int) -> list[InboundMessage]:
        """Up to so many, as soon as there is one; none after so long."""
        if self._subscription is None:
            self._subscription = await self._client.subscribe(self._inbox, cb=self._arrived)
        if not self._received:
            # First: something may come while we ask.
            self._wakeup.clear()
            await self._ask(limit)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wakeup.wait()
        if self._trouble and not self._received:
            trouble, self._trouble = self._trouble, ""
            raise NatsUnavailable(f"cannot pull: {trouble}")
        if 0 < len(self._received) < limit:
            # Room is left: what comes meanwhile is here when we are asked again. If it is too late for that, what has
            # come is here all the same.
            with suppress(NatsUnavailable):
                await self._ask(limit)
        return self._pop_received(limit)

    @property
    def delivery_gaps(self) -> int:
        """How often the consumer may have forgotten whom it gave what."""
        self._notice_reconnects()
        return self._doubts

    def offer(self, delivered: InboundMessage) -> None:
        """This has come on another way, and is handed over with what was asked for."""
        self._received.append((delivered, _NEVER_IN_DOUBT))
        self._wakeup.set()

    async def stop(self) -> list[InboundMessage]:
        """No more come. Those are handed over that had come already."""
        if self._subscription is not None:
            with suppress(Exception):  # whatever is wrong with the connection, nothing comes through it
                await self._subscription.unsubscribe()
                await self._client.flush(timeout=1)
        return self._pop_received(len(self._received))

    def _pop_received(self, limit: int) -> list[InboundMessage]:
        """Up to so many of what has come, each in doubt if there is a reason by now."""
        self._notice_reconnects()
        taken = [self._received.popleft() for _ in range(min(limit, len(self._received)))]
        until_ms = self._doubtful_until_ms
        return [replace(one, doubtful=True) if stored_ms < until_ms else one for one, stored_ms in taken]

    async def _ask(self, limit: int) -> None:
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
        self._requests.append(_PullRequest(missing, now + _REQUEST_SECONDS + _GRACE_SECONDS))

    def _request_ended(self, headers: Mapping[str, str]) -> None:
        """A request is over: its time is, or there is nobody who could meet it."""
        if self._requests:
            self._requests.popleft()
        if headers.get("Status") not in _OVER:
            # Somebody may have deleted the consumer: another one of its name has never heard whom it gave what.
            self._doubt()
            self._trouble = f"{headers.get('Status')} {headers.get('Description', 'no responders')}"
        self._wakeup.set()

    def _notice_reconnects(self) -> None:
        """A server that comes back has never heard of what we asked for, and may have forgotten whom it gave what."""
        reconnects = self._client.stats["reconnects"]
        if reconnects != self._reconnects:
            self._reconnects = reconnects
            self._requests.clear()
            self._doubt()

    def _doubt(self) -> None:
        self._doubts += 1
        self._doubtful_until_ms = time.time() * 1000 + _DOUBT_MS

    def _detect_recreated_consumer(self, reply: str) -> None:
        """A consumer that counts its deliveries from the beginning is another one of the same name."""
        number = delivery_sequence(reply)
        if number <= self._deliveries:
            self._doubt()
        self._deliveries = number

    async def _arrived(self, message: "Msg") -> None:
        self._notice_reconnects()
        if message.subject == self._inbox:
            self._request_ended(message.headers or {})
            return
        if self._requests:
            self._requests[0].missing -= 1
            if not self._requests[0].missing:
                self._requests.popleft()
        self._detect_recreated_consumer(message.reply)
        tries, stored_ms = delivery_metadata(message.reply)
        again = bool(message.headers and REDELIVERY_HEADER in message.headers)
        self._received.append((InboundMessage(message.data, tries, message.reply, again), stored_ms))
        self._wakeup.set()


def delivery_metadata(reply: str) -> tuple[int, float]:
    """How often a message has been delivered, and when it was stored, in ms: its answer's subject says so."""
    tries, _, _, stored_ns, *_ = _numbers(reply)
    return tries, stored_ns / 1_000_000


def delivery_sequence(reply: str) -> int:
    """How many deliveries its consumer had made by then, this one included."""
    return _numbers(reply)[2]


def _numbers(reply: str) -> list[int]:
    """Tries, place in the stream, deliveries of the consumer, when it was stored in ns, and how many are left."""
    tokens = reply.split(".")
    first = 4 if len(tokens) < 11 else 6
    return [int(token) for token in tokens[first : first + 5]]
