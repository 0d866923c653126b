"""Events from outside, and which jobs they start.

Every event has one entry for each job that listens to it, which says what became of it: a run, a place in a gathering,
or the reason why nothing.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.jobs.schedule_fields import LARGEST_BATCH
from gnomon.core.model import RunId, Schedule, ScheduleUid, Source
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, keyed_run_id, new_requested_run
from gnomon.core.triggers import OnEvent


class EventEffectKind(StrEnum):
    """What became of an event, as far as one job is concerned."""

    FIRED = "fired"
    QUEUED = "queued"
    #: It waits for others, to start a run together with them.
    GATHERED = "gathered"
    SKIPPED = "skipped"


class ExternalEvent(Struct, frozen=True, kw_only=True):
    """Something that happened."""

    event_id: str
    tenant: str = "default"
    name: str
    key: str | None = None
    #: As JSON.
    body: bytes = b"null"
    emitted_at: int
    actor: str


class EventEffect(Struct, frozen=True, kw_only=True):
    """What became of an event for one job."""

    event_id: str
    schedule_uid: ScheduleUid
    schedule_id: str
    kind: EventEffectKind
    reason: str
    run_id: RunId | None = None
    decided_at: int


class EventBatch(Struct, frozen=True, kw_only=True):
    """The events of one job that wait to start a run together."""

    schedule_uid: ScheduleUid
    first_at: int
    due_at: int
    count: int


def event_id(tenant: str, name: str, key: str) -> str:
    """The one event that a caller's key can have."""
    return f"evt_{sha256(chr(0).join((tenant, name, key)).encode()).hexdigest()[:32]}"


def matches(where: Mapping[str, Any], body: object) -> bool:
    """Whether the body has everything that is asked for: paths such as `model.name`, with the value they lead to."""
    return all(_same(_at(body, path.split(".")), wanted) for path, wanted in where.items())


def _same(found: object, wanted: object) -> bool:
    """Whether two values are equal as JSON has it: true is not 1."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def _at(body: object, path: Sequence[str]) -> object:
    for part in path:
        if not isinstance(body, Mapping) or part not in body:
            return _NOTHING
        body = body[part]
    return body


_NOTHING = object()


def event_skip_reason(schedule: Schedule, trigger: OnEvent, event: ExternalEvent) -> str | None:
    """Why the event starts nothing, whatever else is under way."""
    if schedule.paused_at is not None:
        return "paused"
    spec, at = schedule.spec, event.emitted_at
    if (spec.start_at is not None and at < spec.start_at) or (spec.end_at is not None and at >= spec.end_at):
        return "outside_window"
    return None if matches(trigger.condition, msgspec.json.decode(event.body)) else "where"


def add_to_batch(trigger: OnEvent, so_far: EventBatch | None, uid: ScheduleUid, *, now: int) -> EventBatch:
    """The gathering with one more event. A debounced one waits for silence, a batch for its first event or its size.

    One that is full is due at once: whoever gathered its last event starts the run, and the next event begins another.
    """
    first = now if so_far is None else so_far.first_at
    count = 1 if so_far is None else so_far.count + 1
    due = (now if trigger.debounce_ms is not None else first) + trigger.wait_ms
    if count >= (trigger.most or LARGEST_BATCH):
        due = now
    return EventBatch(schedule_uid=uid, first_at=first, due_at=due, count=count)


def launch_for_events(
    schedule: Schedule, events: Sequence[ExternalEvent], given: Mapping[str, Any], *, now: int
) -> LaunchRequest:
    """The run that events start: it is given all that its job is, and the event, or all of them."""
    trigger = schedule.spec.trigger
    # What was gathered is given as a list, even if its job has come to want each event by itself.
    gathers = (isinstance(trigger, OnEvent) and trigger.is_batched) or len(events) > 1
    told = [
        {
            "id": event.event_id,
            "name": event.name,
            "key": event.key,
            "emitted_at": instant_of(event.emitted_at).isoformat(),
            "body": msgspec.json.decode(event.body),
        }
        for event in events
    ]
    body = {**given, **({"events": told} if gathers else {"event": told[0]})}
    run_id = keyed_run_id(schedule.tenant, schedule.uid, events[0].event_id)
    run = new_requested_run(run_id, schedule, source=Source.EVENT, now=now, key=events[0].key)
    return LaunchRequest(run=run, first_steps=schedule.spec.first_steps, input=msgspec.json.encode(body))


_KINDS = {
    LaunchOutcome.STARTED: (EventEffectKind.FIRED, "matched"),
    LaunchOutcome.QUEUED: (EventEffectKind.QUEUED, "behind_a_run"),
    LaunchOutcome.ALREADY: (EventEffectKind.FIRED, "matched"),
    LaunchOutcome.OVERLAP: (EventEffectKind.SKIPPED, "overlap"),
    LaunchOutcome.QUEUE_FULL: (EventEffectKind.SKIPPED, "queue_full"),
    LaunchOutcome.GONE: (EventEffectKind.SKIPPED, "gone"),
}


def effect_of_launch(launching: LaunchOutcome) -> tuple[EventEffectKind, str]:
    """How the ledger of events calls what became of a launch."""
    return _KINDS[launching]
