"""Events from outside: emitting them, looking at them, and starting the runs for which several were gathered."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.jobs.inputs import SECRET, read_json
from gnomon.core.runs.external_events import EventEffect, ExternalEvent, event_id
from gnomon.errors import FieldError, KeyTaken, NotFound
from gnomon.ports.external_events import EventLog
from gnomon.ports.runtime import Clock, Events, Ids
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

_LONGEST_KEY = 255
_LARGEST_PAGE = 10_000
#: How many gatherings are closed in one transaction.
_BATCH = 100
#: How long to wait for a gathering of which nobody told us.
_POLL_SECONDS = 30.0


class EmittedEvent(Struct, frozen=True, kw_only=True):
    """An event and what became of it for every job that listens."""

    event: ExternalEvent
    entries: tuple[EventEffect, ...]


class EventService:
    """Emit, list, show."""

    def __init__(self, log: EventLog, clock: Clock, ids: Ids) -> None:
        self._log = log
        self._clock = clock
        self._ids = ids

    async def emit(
        self, name: str, body: object = None, *, actor: str, key: str | None = None, tenant: str = "default"
    ) -> EmittedEvent:
        """Keep an event and start what listens to it. The same key is the same event, however often it is emitted."""
        now = self._clock.now()
        schedule_name("tenant", tenant)
        schedule_name("name", name)
        event = ExternalEvent(
            event_id=self._ids.new("evt", now) if key is None else event_id(tenant, name, _checked_key(key)),
            tenant=tenant,
            name=name,
            key=key,
            body=_encode_body(body),
            emitted_at=now,
            actor=printable("actor", actor),
        )
        entries = await self._log.emit(event, now=now)
        # Of a key that was used before, the event of then counts.
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
        """Events, the newest first, each with what became of it."""
        if not 1 <= limit <= _LARGEST_PAGE:
            raise FieldError("limit", limit, f"must be from 1 to {_LARGEST_PAGE}")
        if name is not None:
            schedule_name("name", name)
        schedule_name("tenant", tenant)
        return await self._with_entries(await self._log.page(tenant, name=name, after=after, limit=limit))

    async def get(self, event: str, *, tenant: str = "default") -> EmittedEvent:
        """The event of that id, with what became of it."""
        schedule_name("tenant", tenant)
        found = await self._log.find(printable("event", event))
        if found is None or found.tenant != tenant:
            raise NotFound("event", event)
        [emitted] = await self._with_entries([found])
        return emitted

    async def _with_entries(self, events: Sequence[ExternalEvent]) -> list[EmittedEvent]:
        became: dict[str, list[EventEffect]] = {one.event_id: [] for one in events}
        for entry in await self._log.effects(list(became)) if events else ():
            became[entry.event_id].append(entry)
        return [EmittedEvent(event=event, entries=tuple(became[event.event_id])) for event in events]


def _encode_body(body: object) -> bytes:
    """The body as JSON. Whoever emits is not whoever runs, so that it cannot ask for secrets."""
    plain = msgspec.json.encode(read_json("body", body))
    if SECRET.search(plain.decode()):
        raise FieldError("body", body, "names a secret, and events have none")
    return plain


def _decoded_body(event: ExternalEvent) -> object:
    """What is known about it, whatever the order in which it was said."""
    return msgspec.json.decode(event.body)


def _checked_key(key: str) -> str:
    if not key:
        raise FieldError("key", key, "is empty")
    return printable("key", key, longest=_LONGEST_KEY)


class EventBatcher:
    """Starts the runs of gatherings when they are due."""

    def __init__(
        self, log: EventLog, clock: Clock, events: Events, *, lease: Singleton, on_ready: Callable[[], None]
    ) -> None:
        """`on_ready` is called when runs have been started."""
        self._log = log
        self._clock = clock
        self._lease, self._on_ready = lease, on_ready
        self.backoff = Backoff(events, "gatherer")

    async def step(self) -> float:
        """Close what is due. Returns how many seconds to wait before the next step."""
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
