"""The message bus between servers and remote workers: its streams and consumers, the server side, the worker side.

Tasks and reports go through JetStream work queues; tasks for one worker, heartbeats and start requests are plain
requests. A server creates or updates streams and consumers when it starts, and again when they are lost. If a stream
differs in a property that cannot be changed, the server refuses to start instead of deleting messages.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gnomon.adapters.nats.connection import NatsUnavailable
from gnomon.adapters.nats.consumer import REDELIVERY_HEADER, PullConsumer
from gnomon.adapters.nats.publisher import StreamMessage, StreamPublisher
from gnomon.config.sections import NatsSettings
from gnomon.core import subjects
from gnomon.core.nats_permissions import OTHER_ACCOUNT
from gnomon.core.subjects import DEFAULT_POOL, is_enrolled_token
from gnomon.errors import FieldError
from gnomon.ports.coordination import IN_FLIGHT_MS
from gnomon.ports.messaging import InboundMessage, OutboundTask, RequestHandler
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerConfig, StreamConfig


#: The window in which messages are deduplicated by name. A task that is older is past its deadline.
_DUPLICATES_SECONDS = 120.0
#: Messages that no consumer took for so long are dropped: the store has long since continued without them.
_MAX_AGE_SECONDS = 7 * 24 * 3600.0
_DEAD_SECONDS = 30 * 24 * 3600.0
_DEAD_BYTES = 64 * 1024 * 1024
#: How many reports of one worker may wait for servers. Each can hold hundreds of outcomes; a worker that is refused
#: keeps its outcomes and tries again.
MAX_PENDING_REPORTS = 5_000
_PER_SUBJECT = ("max_msgs_per_subject", "discard_new_per_subject")
#: How often a message may be delivered before it becomes a dead letter.
MAX_DELIVER = 100
#: How many messages may be unacknowledged at once: far more than all workers have slots.
_MAX_ACK_PENDING = 200_000
#: Reports are delivered until they are stored, however long the store is unavailable. Servers dead-letter those that
#: cannot be stored.
_UNLIMITED = -1


async def ensure_streams(
    js: "JetStreamContext", settings: NatsSettings, *, pools: Collection[str], ack_wait_ms: int
) -> None:
    """Create or update all streams and consumers; FieldError if a property differs that cannot be changed."""
    from nats.errors import Error

    try:
        for stream in _streams(settings):
            await _ensure(js, stream)
        for consumer, stream_name in _consumers(pools, ack_wait_ms, settings.ack_wait_ms):
            await js.add_consumer(stream_name, consumer)
    except (Error, TimeoutError) as error:
        raise NatsUnavailable(f"cannot prepare the streams: {error!r}") from error


def _streams(settings: NatsSettings) -> "list[StreamConfig]":
    from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

    def stream(name: str, wanted: str, retention: RetentionPolicy, seconds: float) -> StreamConfig:
        return StreamConfig(
            name=name,
            subjects=[wanted],
            retention=retention,
            # A full stream refuses new messages instead of silently dropping the oldest.
            discard=DiscardPolicy.NEW,
            max_age=seconds,
            storage=StorageType(settings.storage),
            num_replicas=settings.replicas,
            duplicate_window=_DUPLICATES_SECONDS,
        )

    reports = stream(subjects.REPORTS, subjects.REPORT_SUBJECTS, RetentionPolicy.WORK_QUEUE, _MAX_AGE_SECONDS)
    # A worker that floods the stream is refused, and the reports of others wait only for so many of its own.
    reports.max_msgs_per_subject, reports.discard_new_per_subject = MAX_PENDING_REPORTS, True
    dead = stream(subjects.DEAD, subjects.DEAD_SUBJECTS, RetentionPolicy.LIMITS, _DEAD_SECONDS)
    # Dead letters drop the oldest, so that a new one can always be stored.
    dead.discard, dead.max_bytes = DiscardPolicy.OLD, _DEAD_BYTES
    return [
        stream(subjects.WORK, subjects.WORK_SUBJECTS, RetentionPolicy.WORK_QUEUE, _MAX_AGE_SECONDS),
        reports,
        dead,
    ]


def _consumers(pools: Collection[str], lease_ms: int, ack_wait_ms: int) -> "list[tuple[ConsumerConfig, str]]":
    from nats.js.api import AckPolicy, ConsumerConfig

    def consumer(name: str, wanted: str, seconds: float, tries: int) -> ConsumerConfig:
        return ConsumerConfig(
            durable_name=name,
            filter_subject=wanted,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=seconds,
            max_deliver=tries,
            max_ack_pending=_MAX_ACK_PENDING,
        )

    # If a worker is silent for the length of a lease, the store has ended its attempts as well.
    times = subjects.delivery_times(lease_ms, ack_wait_ms=ack_wait_ms, longest_ms=IN_FLIGHT_MS)
    seconds = times.tasks / 1000
    executing = [
        consumer(subjects.consumer_name(pool), subjects.pool_subjects(pool), seconds, MAX_DELIVER) for pool in pools
    ]
    reading = consumer(subjects.SCHEDULERS, subjects.REPORT_SUBJECTS, times.reports / 1000, _UNLIMITED)
    return [*((one, subjects.WORK) for one in executing), (reading, subjects.REPORTS)]


async def _ensure(js: "JetStreamContext", wanted: "StreamConfig") -> None:
    from nats.js.errors import NotFoundError

    assert wanted.name is not None  # noqa: S101 - _streams names all of them
    try:
        found = (await js.stream_info(wanted.name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        return
    for field, setting in (("storage", "nats.storage"), ("retention", "retention")):
        kept, asked = getattr(found, field), getattr(wanted, field).value
        if kept != asked:
            reason = f"cannot be changed: the stream {wanted.name} has {kept!r}. Delete it, or keep that value"
            raise FieldError(setting, asked, reason)
    same = ("subjects", "discard", "max_age", "num_replicas", "duplicate_window", *_PER_SUBJECT)
    if any(getattr(found, field) != getattr(wanted, field) for field in same):
        await js.update_stream(wanted)


_ACK, _NAK, _PROGRESS, _TERM = b"+ACK", b"-NAK ", b"+WPI", b"+TERM"
_MAX_DELIVERIES = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{subjects.WORK}.*"
_TOO_OFTEN = "was delivered too often"
#: How often to check whether servers have processed the pending reports.
_CATCHING_UP_SECONDS = 0.02
#: How many requests of one worker are answered at once; a worker waits for its answer before it asks again.
_MOST_REQUESTS = 8
#: The same for all workers without enrolment together: their user can name any number of workers.
_MOST_SHARED_REQUESTS = 32
#: Stands for them.
_NOT_ENROLLED = "workers without enrolment"
#: The prefix of the inboxes of all users.
_INBOXES = "_INBOX"


class WorkerRequestSlots:
    """Limits the requests of each worker that are answered at once: a worker that floods servers delays only itself."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._taken: Counter[str] = Counter()
        #: The senders whose flood was announced and has not ended.
        self._flooding: set[str] = set()

    def take(self, sender: str) -> bool:
        """Whether a request of the sender may be answered now. A worker asks again for one that was not."""
        for taker, most in _takers(sender):
            if self._taken[taker] >= most:
                self._refuse(taker)
                return False
        for taker, _ in _takers(sender):
            self._taken[taker] += 1
        return True

    def _refuse(self, taker: str) -> None:
        if taker not in self._flooding:
            self._flooding.add(taker)
            reason = "it sends too many requests at once"
            self._events.emit("request_refused", cause=taker, subject=taker, reason=reason)

    def give_back(self, sender: str) -> None:
        """Count a request of the sender as answered."""
        for taker, _ in _takers(sender):
            self._taken[taker] -= 1
            if not self._taken[taker]:
                del self._taken[taker]
                self._flooding.discard(taker)


def _takers(sender: str) -> tuple[tuple[str, int], ...]:
    """By whom a request of the sender is counted, and how many of each are answered at once."""
    own = (sender, _MOST_REQUESTS)
    return (own,) if is_enrolled_token(sender) else (own, (_NOT_ENROLLED, _MOST_SHARED_REQUESTS))


class NatsServerBus:
    """The server's side of the bus; see ServerBus."""

    def __init__(self, client: "Client", settings: NatsSettings, events: Events, *, ack_wait_ms: int) -> None:
        self._client = client
        self._settings = settings
        self._events = events
        self._ack_wait_ms = ack_wait_ms
        self._seconds = settings.timeout_ms / 1000
        self._js = client.jetstream(timeout=self._seconds)
        self._sender = StreamPublisher(client, events, seconds=self._seconds)
        self._reports = PullConsumer(client, subjects.REPORTS, subjects.SCHEDULERS)
        self._answering: set[asyncio.Task[None]] = set()
        self._request_slots = WorkerRequestSlots(events)
        self._watching = False

    async def prepare(self, pools: Collection[str]) -> None:
        """See TaskOutbox.prepare."""
        await ensure_streams(self._js, self._settings, pools=pools, ack_wait_ms=self._ack_wait_ms)
        if not self._watching:
            self._watching = True
            await self._client.subscribe(_MAX_DELIVERIES, queue=subjects.SCHEDULERS, cb=self._exhausted)

    async def under_way(self, pool: str) -> int:
        """See TaskOutbox.under_way."""
        from nats.errors import Error

        try:
            found = await self._js.consumer_info(subjects.WORK, subjects.consumer_name(pool), timeout=self._seconds)
        except (Error, TimeoutError) as error:
            raise NatsUnavailable(f"cannot count the tasks under way: {error!r}") from error
        return (found.num_pending or 0) + (found.num_ack_pending or 0)

    async def publish(self, tasks: Sequence[OutboundTask]) -> frozenset[str]:
        """See TaskOutbox.publish."""
        if not self._client.is_connected:
            raise NatsUnavailable("not connected")
        direct = [self._send_direct(one, one.to) for one in tasks if one.to is not None]
        pooled = [_stream_message(one) for one in tasks if one.to is None]
        arrived = await asyncio.gather(self._sender.send(pooled), *direct) if pooled else await asyncio.gather(*direct)
        return frozenset[str]().union(*arrived)

    async def _send_direct(self, task: OutboundTask, worker: str) -> frozenset[str]:
        """Send a task to its worker; return its name if the worker confirms it."""
        from nats.errors import Error

        try:
            await self._client.request(subjects.direct_subject(worker), task.body, timeout=self._seconds)
        except (Error, TimeoutError, OSError) as error:
            self._events.emit("nats_error", error=f"{worker} does not accept its task: {error!r}")
            return frozenset()
        return frozenset([task.name])

    async def collect(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """See ReportInbox.collect."""
        return await self._reports.pull(limit=limit, wait_ms=wait_ms)

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See ReportInbox.acknowledge."""
        await _send_acks(self._client, delivered, _ACK)

    async def redeliver_later(self, delivered: Sequence[InboundMessage], *, after_ms: int) -> None:
        """See ReportInbox.redeliver_later."""
        await _send_acks(self._client, delivered, _NAK + msgspec.json.encode({"delay": after_ms * 1_000_000}))

    async def wait_caught_up(self) -> None:
        """See ReportInbox.wait_caught_up."""
        from nats.errors import Error

        try:
            async with asyncio.timeout(self._seconds):
                last = (await self._js.stream_info(subjects.REPORTS)).state.last_seq
                while not await self._processed_up_to(last):  # noqa: ASYNC110 - NATS sends no event for that
                    await asyncio.sleep(_CATCHING_UP_SECONDS)
        except (Error, TimeoutError) as error:
            raise NatsUnavailable(f"reports are not processed yet: {error!r}") from error

    async def _processed_up_to(self, last: int) -> bool:
        found = await self._js.consumer_info(subjects.REPORTS, subjects.SCHEDULERS, timeout=self._seconds)
        floor = 0 if found.ack_floor is None else found.ack_floor.stream_seq
        return floor >= last or not (found.num_pending or found.num_ack_pending)

    async def dead_letter_message(self, delivered: InboundMessage, *, reason: str) -> None:
        """See ReportInbox.dead_letter_message."""
        await self._publish_dead_letter(subjects.REPORTS, delivered.body, reason)
        await _send_acks(self._client, [delivered], _TERM)

    async def answer(self, *, heartbeats: RequestHandler, grants: RequestHandler) -> None:
        """See ReportInbox.answer."""
        from nats.errors import Error

        async def start(message: "Msg", respond: RequestHandler) -> None:
            sender = subjects.sender_of(message.subject)
            if not self._request_slots.take(sender):
                return
            # Each in its own task: a request that waits for the store must not hold up the others.
            task = asyncio.create_task(self._respond(message, respond))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            task.add_done_callback(lambda _: self._request_slots.give_back(sender))

        async def on_heartbeat(message: "Msg") -> None:
            await start(message, heartbeats)

        async def on_start_request(message: "Msg") -> None:
            await start(message, grants)

        await self._client.subscribe(subjects.HEARTBEATS, queue=subjects.SCHEDULERS, cb=on_heartbeat)
        await self._client.subscribe(subjects.GRANTS, queue=subjects.SCHEDULERS, cb=on_start_request)
        with suppress(Error, OSError):  # the client subscribes again when it reconnects
            await self._client.flush(timeout=self._settings.timeout_ms // 1000 or 1)

    async def _respond(self, message: "Msg", respond: RequestHandler) -> None:
        sender, subject = subjects.sender_of(message.subject), message.subject
        if not message.reply.startswith(_reply_prefix(sender)):
            # A request must not make the server publish on other subjects than an inbox.
            reason = f"{message.reply!r} is no inbox"
            self._events.emit("request_refused", cause=sender, subject=subject, reason=reason)
            return
        try:
            await self._client.publish(message.reply, await respond(sender, message.data))
        except FieldError as error:
            self._events.emit("request_refused", cause=sender, subject=subject, reason=str(error))
        except Exception as error:  # noqa: BLE001 - the worker gets no answer and asks again
            self._events.emit("request_failed", cause=sender, subject=subject, error=repr(error))

    async def _exhausted(self, message: "Msg") -> None:
        """Dead-letter a task that was delivered too often; its attempt ends with its lease."""
        from nats.errors import Error

        with suppress(Error, TimeoutError, KeyError, msgspec.DecodeError, NatsUnavailable):
            number = int(msgspec.json.decode(message.data)["stream_seq"])
            found = await self._js.get_msg(subjects.WORK, number)
            await self._publish_dead_letter(subjects.WORK, found.data or b"", _TOO_OFTEN)
            await self._js.delete_msg(subjects.WORK, number)

    async def _publish_dead_letter(self, stream: str, body: bytes, reason: str) -> None:
        from nats.errors import Error

        try:
            await self._js.publish(subjects.dead_subject(stream), body, headers={"Gnomon-Reason": _printable(reason)})
        except (Error, TimeoutError) as error:
            raise NatsUnavailable(f"cannot store a dead letter: {error!r}") from error
        self._events.emit("message_put_away", cause=stream, stream=stream, reason=reason, size=len(body))

    async def close(self) -> None:
        """Cancel pending answers and return unread reports."""
        for task in self._answering:
            task.cancel()
        # Unread reports go to other servers at once.
        await self.redeliver_later(await self._reports.stop(), after_ms=0)


class NatsWorkerBus:
    """A worker's side of the bus; see WorkerBus."""

    def __init__(self, client: "Client", settings: NatsSettings, *, worker: str, pool: str = DEFAULT_POOL) -> None:
        self._client = client
        self._seconds = settings.timeout_ms / 1000
        self._js = client.jetstream(timeout=self._seconds)
        self._work = PullConsumer(client, subjects.WORK, subjects.consumer_name(pool))
        self._reports = subjects.report_subject(worker)
        self._heartbeats = subjects.heartbeat_subject(worker)
        self._grants = subjects.grant_subject(worker)
        self._direct = subjects.direct_subject(worker)
        #: JetStream drops a message whose id it knows, whoever published that one: no other worker may know our ids.
        self._secret = secrets.token_hex(8)
        self._listening: Subscription | None = None

    @property
    def delivery_gaps(self) -> int:
        """See TaskInbox.delivery_gaps."""
        return self._work.delivery_gaps

    async def pull(self, *, limit: int, wait_ms: int, directed_only: bool = False) -> Sequence[InboundMessage]:
        """See TaskInbox.pull."""
        if self._listening is None:
            self._listening = await self._client.subscribe(self._direct, cb=self._on_direct_task)
        return await self._work.pull(limit=limit, wait_ms=wait_ms, request=not directed_only)

    async def stop_pulling(self) -> Sequence[InboundMessage]:
        """See TaskInbox.stop_pulling."""
        if self._listening is not None:
            with suppress(Exception):  # a broken connection brings no messages either
                await self._listening.unsubscribe()
        return await self._work.stop()

    async def _on_direct_task(self, message: "Msg") -> None:
        """Accept a task for this worker alone. NATS does not store it, so it has no acknowledgement later."""
        self._work.offer(InboundMessage(message.data, 1, None))
        if message.reply:
            await self._client.publish(message.reply, b"")

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.acknowledge."""
        await _send_acks(self._client, delivered, _ACK)

    async def extend(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.extend."""
        await _send_acks(self._client, delivered, _PROGRESS)

    async def terminate(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.terminate."""
        await _send_acks(self._client, delivered, _TERM)

    async def report(self, name: str, body: bytes) -> None:
        """See ReportOutbox.report."""
        from nats.errors import Error

        try:
            message_id = f"{name}:{self._secret}"
            await self._js.publish(self._reports, body, timeout=self._seconds, headers={"Nats-Msg-Id": message_id})
        except (Error, TimeoutError, OSError) as error:
            raise NatsUnavailable(f"cannot report: {error!r}") from error

    async def heartbeat(self, body: bytes) -> bytes:
        """See ReportOutbox.heartbeat."""
        return await self._request(self._heartbeats, body)

    async def ask(self, body: bytes) -> bytes:
        """See ReportOutbox.ask."""
        return await self._request(self._grants, body)

    async def _request(self, subject: str, body: bytes) -> bytes:
        from nats.errors import Error

        try:
            return (await self._client.request(subject, body, timeout=self._seconds)).data
        except (Error, TimeoutError, OSError) as error:
            raise NatsUnavailable(f"no server answers: {error!r}") from error


def _reply_prefix(sender: str) -> str:
    """The prefix of the reply subjects of a worker; NATS has replaced those of enrolled workers."""
    return f"{OTHER_ACCOUNT}." if is_enrolled_token(sender) else _INBOXES


def _stream_message(task: OutboundTask) -> StreamMessage:
    headers = {REDELIVERY_HEADER: "1"} if task.again else {}
    return StreamMessage(task.name, subjects.work_subject(task.job, task.pool), task.body, headers)


async def _send_acks(client: "Client", delivered: Sequence[InboundMessage], reply: bytes) -> None:
    """Send the reply for each message. If it is lost, the message is delivered again, which does no harm."""
    from nats.errors import Error

    try:
        for one in delivered:
            if one.handle is not None:
                await client.publish(one.handle, reply)
    except (Error, OSError) as error:
        raise NatsUnavailable(f"cannot acknowledge: {error!r}") from error


def _printable(reason: str) -> str:
    """The reason, limited to characters and a length that a header may have."""
    return "".join(one if one.isascii() and one.isprintable() else " " for one in reason)[:500]
