"""What a job listens to: an event by its name, which of them count, and how many of them make a run."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gnomon.core.cron import Cron, Dst
from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import FieldReader, key_text, printable, schedule_name
from gnomon.core.jobs.inputs import read_input
from gnomon.core.model import DAY_MS, Catchup, Overlap, Spec
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At, Every, OnEvent
from gnomon.errors import FieldError

EVENT_FIELDS = ("event", "where", "each", "debounce", "batch")
BATCH_FIELDS = ("max", "wait")
LARGEST_BATCH = 10_000
#: How long an event may wait for others.
LONGEST_WAIT_MS = 30 * DAY_MS
_HOW = ("each", "debounce", "batch")


def read_event_trigger(said: FieldReader) -> OnEvent:
    """The trigger that a job's `on` means."""
    fields = FieldReader(said["on"], EVENT_FIELDS, path=said.at("on"))
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
        batch = FieldReader(fields["batch"], BATCH_FIELDS, path=fields.at("batch"))
        batch.required("wait")
        return OnEvent(
            event,
            where,
            most=batch.whole("max", 1, low=1, high=LARGEST_BATCH) if "max" in batch else None,
            batch_ms=batch.duration("wait", 0, low=1, high=LONGEST_WAIT_MS),
        )
    return OnEvent(event, where)


def _where(said: FieldReader) -> dict[str, Any]:
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


__all__ = [
    "MOST_JITTER_MS",
    "OTHER_CHOICES",
    "Defaults",
    "printable",
    "read_active_window",
    "read_dst",
    "read_schedule_request",
    "schedule_name",
]

#: A fire may come that much before its planned time, and an edit in between must not lose a day.
MOST_JITTER_MS = 60 * 60_000
OTHER_CHOICES = {"fire_immediately": "all"}

#: Names of other schedulers' fields for ours.
_OTHER_NAMES = {
    "cron_expr": "schedule",
    "version": "workflow_version",
    "overlap_policy": "overlap",
    "catchup_policy": "catchup",
}
_FIELDS = (
    "schedule_id", "schedule", "timezone", "dialect", "dst", "workflow_id", "workflow_version", "user_id",
    "start_at", "end_at", "overlap", "catchup", "jitter_ms", "misfire_grace_ms", "catchup_window_ms", "queue_limit",
)  # fmt: skip


class Defaults:
    """What counts where a request says nothing."""

    def __init__(
        self,
        *,
        overlap: Overlap = Overlap.SKIP,
        catchup: Catchup = Catchup.NONE,
        jitter_ms: int = 0,
        lookahead_ms: int = 60_000,
        catchup_cap: int = 100,
    ) -> None:
        self.overlap, self.catchup, self.jitter_ms = overlap, catchup, jitter_ms
        self.lookahead_ms, self.catchup_cap = lookahead_ms, catchup_cap


def read_schedule_request(request: Mapping[str, Any], defaults: Defaults, *, now: int) -> tuple[str | None, Spec]:
    """The name that was asked for, if any, and the spec; the first field that is wrong is named by the error."""
    said = FieldReader(request, _FIELDS, other_names=_OTHER_NAMES)
    name = said.name("schedule_id") if "schedule_id" in said and said["schedule_id"] is not None else None
    start, end = read_active_window(said)
    trigger = _trigger(said)
    if isinstance(trigger, Every):
        trigger = trigger.anchored(instant_of(now if start is None else start))
    spec = Spec(
        trigger=trigger,
        workflow_id=said.name("workflow_id"),
        workflow_version=said.whole("workflow_version", 1, low=1, high=2**31 - 1),
        user_id=said.text("user_id", ""),
        start_at=start,
        end_at=end,
        overlap=said.choice("overlap", Overlap, defaults.overlap),
        catchup=said.choice("catchup", Catchup, defaults.catchup, other_names=OTHER_CHOICES),
        jitter_ms=said.whole("jitter_ms", defaults.jitter_ms, low=0, high=MOST_JITTER_MS),
        misfire_grace_ms=said.whole("misfire_grace_ms", 60_000, low=0, high=365 * DAY_MS),
        catchup_window_ms=said.whole("catchup_window_ms", DAY_MS, low=0, high=365 * DAY_MS),
        catchup_cap=defaults.catchup_cap,
        queue_limit=said.whole("queue_limit", 100, low=1, high=10_000),
        lookahead_ms=defaults.lookahead_ms,
    )
    return name, spec


def read_active_window(said: FieldReader) -> tuple[int | None, int | None]:
    """From when and until when ticks count."""
    start, end = said.instant("start_at"), said.instant("end_at")
    if start is not None and end is not None and end <= start:
        raise said.refused("end_at", "must be after start_at")
    return start, end


def read_dst(said: FieldReader) -> Dst | None:
    """The choice about clock changes, if one was made."""
    if "dst" not in said or said["dst"] is None:
        return None
    chosen = FieldReader(said["dst"], ("gap", "fold"), path=said.at("dst"))
    return Dst(**{field: chosen[field] for field in ("gap", "fold") if field in chosen})


def _trigger(said: FieldReader) -> Cron | Every | At:
    text = said.text("schedule")
    zone = said.text("timezone") if "timezone" in said and said["timezone"] is not None else None
    dst = read_dst(said)
    if "dialect" not in said or said["dialect"] == "standard":
        return parse_schedule(text, timezone=zone, dst=dst)
    return Cron(text, zone or "UTC", said["dialect"], dst or Dst())
