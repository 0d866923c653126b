"""External events, and the jobs that they start.

Every event has one effect for each job that listens to it: a run, a place in a batch, or the reason why neither.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.model import RunId, RunSource, Schedule, ScheduleUid
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, keyed_run_id, new_requested_run
from gnomon.core.runs.secret_text import escape_data, escape_json
from gnomon.core.triggers import OnEvent

#: A batch is closed at this number of events, whatever its job says, and soon after this many bytes of bodies.
LARGEST_BATCH, LARGEST_BATCH_DATA = 10_000, 1 << 20
#: The bodies of a batch are measured with every event larger than this many bytes, and with every so many events.
_LARGE_BODY, _MEASURED_EVERY = 8_192, 50


class EventEffectKind(StrEnum):
    """The kind of effect that an event had on one job."""

    FIRED = "fired"
    QUEUED = "queued"
    #: It waits in a batch, to start one run together with other events.
    GATHERED = "gathered"
    SKIPPED = "skipped"


class ExternalEvent(Struct, frozen=True, kw_only=True):
    """An event that a caller emitted."""

    event_id: str
    tenant: str = "default"
    name: str
    key: str | None = None
    #: As JSON.
    body: bytes = b"null"
    emitted_at: int
    actor: str


class EventEffect(Struct, frozen=True, kw_only=True):
    """The effect of an event on one job."""

    event_id: str
    schedule_uid: ScheduleUid
    schedule_id: str
    kind: EventEffectKind
    reason: str
    run_id: RunId | None = None
    decided_at: int


class EventBatch(Struct, frozen=True, kw_only=True):
    """The events of one job that wait to start one run together."""

    schedule_uid: ScheduleUid
    first_at: int
    due_at: int
    count: int


def event_id(tenant: str, name: str, key: str) -> str:
    """The id of the only event that a caller's key can have."""
    return f"evt_{sha256(chr(0).join((tenant, name, key)).encode()).hexdigest()[:32]}"


def matches(where: Mapping[str, Any], body: object) -> bool:
    """Whether the body has the value of every path in `where`, such as `model.name`."""
    return all(_same(_at(body, path.split(".")), expected) for path, expected in where.items())


def _same(found: object, expected: object) -> bool:
    """Whether two values are equal as JSON: true is not 1."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return isinstance(found, bool) == isinstance(expected, bool) and found == expected


def _at(body: object, path: Sequence[str]) -> object:
    for part in path:
        if not isinstance(body, Mapping) or part not in body:
            return _NOTHING
        body = body[part]
    return body


_NOTHING = object()


def event_skip_reason(schedule: Schedule, trigger: OnEvent, event: ExternalEvent, body: object) -> str | None:
    """The reason why the event cannot start a run of this job; None if it can, subject to overlap.

    `body` is the decoded body of the event.
    """
    if schedule.paused_at is not None:
        return "paused"
    spec, at = schedule.spec, event.emitted_at
    if (spec.start_at is not None and at < spec.start_at) or (spec.end_at is not None and at >= spec.end_at):
        return "outside_window"
    return None if matches(trigger.condition, body) else "where"


def is_batch_measured(so_far: EventBatch | None, event: ExternalEvent) -> bool:
    """Whether the bodies of a batch are measured before this event is added: rarely, since each time all are read."""
    return so_far is not None and (len(event.body) > _LARGE_BODY or so_far.count % _MEASURED_EVERY == 0)


def add_to_batch(
    trigger: OnEvent, so_far: EventBatch | None, uid: ScheduleUid, *, now: int, size: int = 0
) -> EventBatch:
    """The batch with one more event. Debouncing waits for silence; a batch waits from its first event, or until full.

    A full batch is due at once: its last event starts the run, and the next event begins another batch. `size` is that
    of all bodies together, if they were measured.
    """
    first = now if so_far is None else so_far.first_at
    count = 1 if so_far is None else so_far.count + 1
    due = (now if trigger.debounce_ms is not None else first) + trigger.wait_ms
    if count >= (trigger.most or LARGEST_BATCH) or size > LARGEST_BATCH_DATA:
        due = now
    return EventBatch(schedule_uid=uid, first_at=first, due_at=due, count=count)


class EventData(Struct, frozen=True):
    """An event, and what runs that it starts get of it: many jobs may listen to the same event."""

    event: ExternalEvent
    #: As JSON in the form of an input: the body is data, and marks no place of a secret.
    data: msgspec.Raw


def event_data(event: ExternalEvent) -> EventData:
    """The event with its data for runs."""
    shown = {
        "id": event.event_id,
        "name": event.name,
        "key": event.key,
        "emitted_at": instant_of(event.emitted_at).isoformat(),
    }
    body = escape_json(event.body)
    return EventData(event, msgspec.Raw(msgspec.json.encode({**escape_data(shown), "body": msgspec.Raw(body)})))


def launch_for_events(
    schedule: Schedule, events: Sequence[EventData], job_input: Mapping[str, Any], *, now: int
) -> LaunchRequest:
    """The run that events start: its input is that of the job, and the event or the list of events."""
    trigger = schedule.spec.trigger
    # A batch is passed as a list, even if its job was changed to run once for each event.
    batched = (isinstance(trigger, OnEvent) and trigger.is_batched) or len(events) > 1
    data, first = [one.data for one in events], events[0].event
    merged = {**job_input, **({"events": data} if batched else {"event": data[0]})}
    run_id = keyed_run_id(schedule.tenant, schedule.uid, first.event_id)
    actors = {one.event.actor for one in events}
    actor = actors.pop() if len(actors) == 1 else ""
    run = new_requested_run(run_id, schedule, source=RunSource.EVENT, now=now, actor=actor, key=first.key)
    return LaunchRequest(
        run=run,
        first_steps=schedule.spec.first_steps,
        first_spans_ms=first_spans(schedule.spec.deadlines),
        input=msgspec.json.encode(merged),
    )


_KINDS = {
    LaunchOutcome.STARTED: (EventEffectKind.FIRED, "matched"),
    LaunchOutcome.QUEUED: (EventEffectKind.QUEUED, "behind_a_run"),
    LaunchOutcome.ALREADY: (EventEffectKind.FIRED, "matched"),
    LaunchOutcome.OVERLAP: (EventEffectKind.SKIPPED, "overlap"),
    LaunchOutcome.QUEUE_FULL: (EventEffectKind.SKIPPED, "queue_full"),
    LaunchOutcome.GONE: (EventEffectKind.SKIPPED, "gone"),
}


def effect_of_launch(launching: LaunchOutcome) -> tuple[EventEffectKind, str]:
    """The kind and reason of an event's effect, from the outcome of its launch."""
    return _KINDS[launching]
