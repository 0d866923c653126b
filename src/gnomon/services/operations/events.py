"""External events: emits and lists them, and starts the runs of event batches."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from gnomon.core import component_names
from gnomon.core.jobs.fields import idempotency_key, page_limit, printable, schedule_name
from gnomon.core.jobs.inputs import read_data
from gnomon.core.runs.external_events import EventEffect, ExternalEvent, event_id
from gnomon.errors import KeyTaken, NotFound
from gnomon.ports.external_events import EventLog
from gnomon.ports.runtime import Clock, Events, Ids
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff, ComputeQueue

#: The number of batches that are closed in one transaction.
_BATCH = 100
#: The longest wait before looking for batches that another node has opened.
_POLL_SECONDS = 30.0


class EmittedEvent(Struct, frozen=True, kw_only=True):
    """An event and its effect on every job that listens to it."""

    event: ExternalEvent
    entries: tuple[EventEffect, ...]


class EventService:
    """Emits, lists and shows events."""

    def __init__(self, log: EventLog, clock: Clock, ids: Ids, compute: ComputeQueue | None = None) -> None:
        self._compute = compute or ComputeQueue()
        self._log = log
        self._clock = clock
        self._ids = ids

    async def emit(
        self, name: str, body: object = None, *, actor: str, key: str | None = None, tenant: str = "default"
    ) -> EmittedEvent:
        """Store an event and start the jobs that listen to it; a repeated key returns the stored event."""
        now = self._clock.now()
        schedule_name("tenant", tenant)
        schedule_name("name", name)
        event = ExternalEvent(
            event_id=self._ids.new("evt", now) if key is None else event_id(tenant, name, idempotency_key(key)),
            tenant=tenant,
            name=name,
            key=key,
            body=await self._compute.read(body, partial(_encode_body, body)),
            emitted_at=now,
            actor=printable("actor", actor),
        )
        entries = await self._log.emit(event, now=now)
        # With a key that was used before, the stored event counts.
        kept = None if key is None else await self._log.find(event.event_id)
        if key is not None and kept is not None and _decoded_body(kept) != _decoded_body(event):
            raise KeyTaken(key, kept.event_id)
        return EmittedEvent(event=kept or event, entries=tuple(entries))

    async def page(
        self,
        *,
        name: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> list[EmittedEvent]:
        """Events and their effects, newest first."""
        page_limit(limit)
        if name is not None:
            schedule_name("name", name)
        schedule_name("tenant", tenant)
        return await self._with_entries(await self._log.page(tenant, name=name, after=after, limit=limit))

    async def get(self, event: str, *, tenant: str = "default") -> EmittedEvent:
        """The event and its effects."""
        schedule_name("tenant", tenant)
        found = await self._log.find(printable("event", event))
        if found is None or found.tenant != tenant:
            raise NotFound("event", event)
        [emitted] = await self._with_entries([found])
        return emitted

    async def _with_entries(self, events: Sequence[ExternalEvent]) -> list[EmittedEvent]:
        effects: dict[str, list[EventEffect]] = {one.event_id: [] for one in events}
        for entry in await self._log.effects(list(effects)) if events else ():
            effects[entry.event_id].append(entry)
        return [EmittedEvent(event=event, entries=tuple(effects[event.event_id])) for event in events]


def _encode_body(body: object) -> bytes:
    """The body as JSON. It is data: a run that it starts finds no reference in it."""
    return msgspec.json.encode(read_data("body", body))


def _decoded_body(event: ExternalEvent) -> object:
    """The body, independent of the order of its keys."""
    return msgspec.json.decode(event.body)


class EventBatcher:
    """Starts the runs of event batches when they are due."""

    def __init__(
        self, log: EventLog, clock: Clock, events: Events, *, lease: Singleton, on_ready: Callable[[], None]
    ) -> None:
        """`on_ready` is called when runs have been started."""
        self._log = log
        self._clock = clock
        self._lease, self._on_ready = lease, on_ready
        self.backoff = Backoff(events, component_names.EVENT_BATCHER)

    async def step(self) -> float:
        """Close the batches that are due; return the seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        closed = await self._log.close_batches(self._clock.now(), limit=_BATCH)
        if closed:
            self._on_ready()
        return 0.0 if len(closed) >= _BATCH else self._until(await self._log.next_batch_at())

    def _until(self, next_at: int | None) -> float:
        if next_at is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, (next_at - self._clock.now()) / 1000))
