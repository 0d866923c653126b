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
from gnomon.core.model import RunId, Schedule, ScheduleUid, Source
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, keyed_run_id, new_requested_run
from gnomon.core.triggers import OnEvent

#: A batch of events is closed at this size, whatever its job says.
LARGEST_BATCH = 10_000


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


def event_skip_reason(schedule: Schedule, trigger: OnEvent, event: ExternalEvent) -> str | None:
    """The reason why the event cannot start a run of this job; None if it can, subject to overlap."""
    if schedule.paused_at is not None:
        return "paused"
    spec, at = schedule.spec, event.emitted_at
    if (spec.start_at is not None and at < spec.start_at) or (spec.end_at is not None and at >= spec.end_at):
        return "outside_window"
    return None if matches(trigger.condition, msgspec.json.decode(event.body)) else "where"


def add_to_batch(trigger: OnEvent, so_far: EventBatch | None, uid: ScheduleUid, *, now: int) -> EventBatch:
    """The batch with one more event. Debouncing waits for silence; a batch waits from its first event, or until full.

    A full batch is due at once: its last event starts the run, and the next event begins another batch.
    """
    first = now if so_far is None else so_far.first_at
    count = 1 if so_far is None else so_far.count + 1
    due = (now if trigger.debounce_ms is not None else first) + trigger.wait_ms
    if count >= (trigger.most or LARGEST_BATCH):
        due = now
    return EventBatch(schedule_uid=uid, first_at=first, due_at=due, count=count)


def launch_for_events(
    schedule: Schedule, events: Sequence[ExternalEvent], job_input: Mapping[str, Any], *, now: int
) -> LaunchRequest:
    """The run that events start: its input is that of the job, and the event or the list of events."""
    trigger = schedule.spec.trigger
    # A batch is passed as a list, even if its job was changed to run once for each event.
    batched = (isinstance(trigger, OnEvent) and trigger.is_batched) or len(events) > 1
    bodies = [
        {
            "id": event.event_id,
            "name": event.name,
            "key": event.key,
            "emitted_at": instant_of(event.emitted_at).isoformat(),
            "body": msgspec.json.decode(event.body),
        }
        for event in events
    ]
    merged = {**job_input, **({"events": bodies} if batched else {"event": bodies[0]})}
    run_id = keyed_run_id(schedule.tenant, schedule.uid, events[0].event_id)
    run = new_requested_run(run_id, schedule, source=Source.EVENT, now=now, key=events[0].key)
    return LaunchRequest(run=run, first_steps=schedule.spec.first_steps, input=msgspec.json.encode(merged))


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
