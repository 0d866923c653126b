"""What a job listens to: an event by its name, which of them count, and how many of them make a run."""

from typing import Any

import msgspec

from gnomon.core.durations import duration_text
from gnomon.core.inputs import read_input
from gnomon.core.model import DAY_MS
from gnomon.core.said import Said, key_text
from gnomon.core.triggers import OnEvent
from gnomon.errors import FieldError

EVENT_FIELDS = ("event", "where", "each", "debounce", "batch")
BATCH_FIELDS = ("max", "wait")
LARGEST_BATCH = 10_000
#: How long an event may wait for others.
LONGEST_WAIT_MS = 30 * DAY_MS
_HOW = ("each", "debounce", "batch")


def read_event_trigger(said: Said) -> OnEvent:
    """The trigger that a job's `on` means."""
    fields = Said(said["on"], EVENT_FIELDS, path=said.at("on"))
    event = fields.name("event")
    where = msgspec.json.encode(_where(fields), order="deterministic").decode() if "where" in fields else "{}"
    how = [field for field in _HOW if field in fields]
    if len(how) > 1:
        raise fields.refused(how[1], f"cannot be beside {how[0]}: say one of them")
    if not fields.flag("each", default=True):
        raise fields.refused("each", "must be true; debounce and batch say otherwise")
    if "debounce" in fields:
        return OnEvent(event, where, debounce_ms=fields.duration("debounce", 0, low=1, high=LONGEST_WAIT_MS))
    if "batch" in fields:
        batch = Said(fields["batch"], BATCH_FIELDS, path=fields.at("batch"))
        batch.required("wait")
        return OnEvent(
            event,
            where,
            most=batch.whole("max", 1, low=1, high=LARGEST_BATCH) if "max" in batch else None,
            batch_ms=batch.duration("wait", 0, low=1, high=LONGEST_WAIT_MS),
        )
    return OnEvent(event, where)


def _where(said: Said) -> dict[str, Any]:
    where = read_input(said.at("where"), said["where"])
    for path, value in where.items():
        if not all(path.split(".")):
            raise FieldError(said.at(f"where.{key_text(path)}"), value, "stands under no path such as model.name")
    return where


def event_trigger_as_data(trigger: OnEvent) -> dict[str, Any]:
    """What says the same trigger again."""
    data: dict[str, Any] = {"event": trigger.event}
    if trigger.condition:
        data["where"] = trigger.condition
    if trigger.debounce_ms is not None:
        data["debounce"] = duration_text(trigger.debounce_ms)
    elif trigger.batch_ms is not None:
        most = {} if trigger.most is None else {"max": trigger.most}
        data["batch"] = {**most, "wait": duration_text(trigger.batch_ms)}
    return data
