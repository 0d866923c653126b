"""The streams and consumers that we need, made or brought into line when a server starts, and again when they are lost.

What a stream cannot be changed in, and differs in, is refused: nobody's messages are thrown away to make it fit.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from gnomon.adapters.nats.connection import NatsUnavailable
from gnomon.core import subjects
from gnomon.errors import FieldError
from gnomon.sections import Nats

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerConfig, StreamConfig

#: Within it a message is known by its name. A parcel that is older is past its deadline, whoever sends it again.
_DUPLICATES_SECONDS = 120.0
#: What nobody has wanted for so long is litter: the store has long since gone on without it.
_LITTER_SECONDS = 7 * 24 * 3600.0
_DEAD_SECONDS = 30 * 24 * 3600.0
_DEAD_BYTES = 64 * 1024 * 1024
#: How often a message may be given to somebody before it is put away.
MAX_DELIVER = 100
#: How many may be with workers at once: far more than all of them have slots.
_MAX_ACK_PENDING = 200_000
#: Reports come until they are written down, however long the store is away; servers put away what they cannot.
_FOR_EVER = -1


async def prepare(js: "JetStreamContext", settings: Nats, *, pools: Collection[str], ack_wait_ms: int) -> None:
    """All streams and consumers stand as they should; FieldError names what cannot be changed, and how it differs."""
    from nats.errors import Error

    try:
        for stream in _streams(settings):
            await _stand(js, stream)
        for consumer, stream_name in _consumers(pools, ack_wait_ms):
            await js.add_consumer(stream_name, consumer)
    except (Error, TimeoutError) as error:
        raise NatsUnavailable(f"cannot prepare the streams: {error!r}") from error


def _streams(settings: Nats) -> "list[StreamConfig]":
    from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

    def stream(name: str, wanted: str, retention: RetentionPolicy, seconds: float) -> StreamConfig:
        return StreamConfig(
            name=name,
            subjects=[wanted],
            retention=retention,
            # A full stream says so; it does not silently forget the oldest.
            discard=DiscardPolicy.NEW,
            max_age=seconds,
            storage=StorageType(settings.storage),
            num_replicas=settings.replicas,
            duplicate_window=_DUPLICATES_SECONDS,
        )

    dead = stream(subjects.DEAD, subjects.DEAD_SUBJECTS, RetentionPolicy.LIMITS, _DEAD_SECONDS)
    # Of dead letters the oldest go, so that there is always room for another.
    dead.discard, dead.max_bytes = DiscardPolicy.OLD, _DEAD_BYTES
    return [
        stream(subjects.WORK, subjects.WORK_SUBJECTS, RetentionPolicy.WORK_QUEUE, _LITTER_SECONDS),
        stream(subjects.REPORTS, subjects.REPORT_SUBJECTS, RetentionPolicy.WORK_QUEUE, _LITTER_SECONDS),
        dead,
    ]


def _consumers(pools: Collection[str], ack_wait_ms: int) -> "list[tuple[ConsumerConfig, str]]":
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

    # With a worker that is silent for as long as a lease lasts, the store has given up its attempts as well.
    seconds = ack_wait_ms / 1000
    executing = [
        consumer(subjects.executors(pool), subjects.pool_subjects(pool), seconds, MAX_DELIVER) for pool in pools
    ]
    patience = subjects.report_patience_ms(ack_wait_ms) / 1000
    reading = consumer(subjects.SCHEDULERS, subjects.REPORT_SUBJECTS, patience, _FOR_EVER)
    return [*((one, subjects.WORK) for one in executing), (reading, subjects.REPORTS)]


async def _stand(js: "JetStreamContext", wanted: "StreamConfig") -> None:
    from nats.js.errors import NotFoundError

    assert wanted.name is not None  # noqa: S101 - we have just named it
    try:
        found = (await js.stream_info(wanted.name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        return
    for field, setting in (("storage", "nats.storage"), ("retention", "retention")):
        kept, asked = getattr(found, field), getattr(wanted, field).value
        if kept != asked:
            reason = f"cannot be had: the stream {wanted.name} has {kept!r}. Delete it, or keep to that"
            raise FieldError(setting, asked, reason)
    same = ("subjects", "discard", "max_age", "num_replicas", "duplicate_window")
    if any(getattr(found, field) != getattr(wanted, field) for field in same):
        await js.update_stream(wanted)
