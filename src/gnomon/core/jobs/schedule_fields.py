"""The fields about when a job or a schedule runs: the request for a schedule, and the event trigger of a job."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from gnomon.core.cron import Cron, Dst
from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import NAME, FieldReader, key_text, printable
from gnomon.core.jobs.inputs import read_input
from gnomon.core.model import DAY_MS, Catchup, Overlap, Spec
from gnomon.core.runs.external_events import LARGEST_BATCH
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At, Every, OnEvent
from gnomon.errors import CronError, FieldError

#: A fire may come this much before its planned time, and an edit in between must not lose a day.
MOST_JITTER_MS = 60 * 60_000
OTHER_CHOICES = {"fire_immediately": "all"}

#: Field names of other schedulers, and the name of the same field here.
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
    """The values of fields that a request or a job leaves out."""

    def __init__(
        self,
        *,
        overlap: Overlap = Overlap.SKIP,
        catchup: Catchup = Catchup.NONE,
        jitter_ms: int = 0,
        lookahead_ms: int = 60_000,
        catchup_cap: int = 100,
        zones: Collection[str] = (),
    ) -> None:
        """`zones` are the time zones that schedules may name; all of them if there are none."""
        self.overlap, self.catchup, self.jitter_ms = overlap, catchup, jitter_ms
        self.lookahead_ms, self.catchup_cap = lookahead_ms, catchup_cap
        self.zones = frozenset(zones)


def read_schedule_request(request: Mapping[str, Any], defaults: Defaults, *, now: int) -> tuple[str | None, Spec]:
    """The requested name, if any, and the spec; raise FieldError, which names the first wrong field by its path."""
    fields = FieldReader(request, _FIELDS, other_names=_OTHER_NAMES)
    name = fields.name("schedule_id") if "schedule_id" in fields and fields["schedule_id"] is not None else None
    start, end = read_active_window(fields)
    trigger = _trigger(fields)
    check_zone(fields, trigger, defaults)
    if isinstance(trigger, Every):
        trigger = trigger.anchored(instant_of(now if start is None else start))
    spec = Spec(
        trigger=trigger,
        workflow_id=fields.name("workflow_id"),
        workflow_version=fields.whole("workflow_version", 1, low=1, high=2**31 - 1),
        user_id=fields.text("user_id", ""),
        start_at=start,
        end_at=end,
        overlap=fields.choice("overlap", Overlap, defaults.overlap),
        catchup=fields.choice("catchup", Catchup, defaults.catchup, other_names=OTHER_CHOICES),
        jitter_ms=fields.whole("jitter_ms", defaults.jitter_ms, low=0, high=MOST_JITTER_MS),
        misfire_grace_ms=fields.whole("misfire_grace_ms", 60_000, low=0, high=365 * DAY_MS),
        catchup_window_ms=fields.whole("catchup_window_ms", DAY_MS, low=0, high=365 * DAY_MS),
        catchup_cap=defaults.catchup_cap,
        queue_limit=fields.whole("queue_limit", 100, low=1, high=10_000),
        lookahead_ms=defaults.lookahead_ms,
    )
    return name, spec


def check_zone(fields: FieldReader, trigger: object, defaults: Defaults) -> None:
    """Raise FieldError if the schedule is in a time zone that the settings do not allow."""
    zone = None
    if isinstance(trigger, Cron):
        zone = trigger.timezone
    elif "timezone" in fields:
        zone = fields["timezone"]
    if zone is not None and defaults.zones and zone not in defaults.zones:
        allowed = ", ".join(sorted(defaults.zones))
        raise FieldError(fields.at("timezone"), zone, f"is not among the time zones of ticker.zones: {allowed}")


def read_active_window(fields: FieldReader) -> tuple[int | None, int | None]:
    """`start_at` and `end_at` in milliseconds: ticks outside of them do not exist."""
    start, end = fields.instant("start_at"), fields.instant("end_at")
    if start is not None and end is not None and end <= start:
        raise fields.refused("end_at", "must be after start_at")
    return start, end


def read_dst(fields: FieldReader) -> Dst | None:
    """The policy for clock changes, if one is given."""
    if "dst" not in fields or fields["dst"] is None:
        return None
    chosen = FieldReader(fields["dst"], ("gap", "fold"), path=fields.at("dst"))
    return Dst(**{field: chosen[field] for field in ("gap", "fold") if field in chosen})


def _trigger(fields: FieldReader) -> Cron | Every | At:
    text = fields.text("schedule")
    zone = fields.text("timezone") if "timezone" in fields and fields["timezone"] is not None else None
    dst = read_dst(fields)
    if "dialect" not in fields or fields["dialect"] == "standard":
        return parse_schedule(text, timezone=zone, dst=dst)
    return Cron(text, zone or "UTC", fields["dialect"], dst or Dst())


# ---- event triggers ------------------------------------------------------------------------------

EVENT_FIELDS = ("event", "where", "each", "debounce", "batch")
BATCH_FIELDS = ("max", "wait")
#: The longest time that an event may wait for others.
LONGEST_WAIT_MS = 30 * DAY_MS
#: The fields of a job with times at which it runs.
_TIMES = ("schedule", "every", "at")
_MODES = ("each", "debounce", "batch")


def read_event_trigger(job: FieldReader) -> OnEvent:
    """The trigger that the field `on` of a job defines."""
    _refuse_time(job)
    fields = FieldReader(job["on"], EVENT_FIELDS, path=job.at("on"))
    event = fields.name("event")
    where = msgspec.json.encode(_where(fields), order="deterministic").decode() if "where" in fields else "{}"
    modes = [field for field in _MODES if field in fields]
    if len(modes) > 1:
        raise fields.refused(modes[1], f"cannot be beside {modes[0]}: say one of them")
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


def _refuse_time(job: FieldReader) -> None:
    """Raise FieldError with the right field if `on` holds a time or a name, and no event."""
    written = job["on"]
    if isinstance(written, Mapping):
        for field in _TIMES:
            if field in written:
                raise FieldError(
                    job.at(f"on.{field}"), written[field], f"stands outside on: {field} is a field of the job"
                )
    elif isinstance(written, str) and (meant := _meant_by(written)) is not None:
        raise job.refused("on", f"must be a mapping with {', '.join(EVENT_FIELDS)}; did you mean {meant}?")


def _meant_by(written: str) -> str | None:
    """The field that was probably meant by a text under `on`."""
    try:
        trigger = parse_schedule(printable("on", written))
    except FieldError:
        return None
    except CronError as error:
        if NAME.fullmatch(written):
            return f"on: {{event: {written}}}"
        return None if error.suggestion is None else f'schedule: "{error.suggestion}"'
    return f'at: "{written}"' if isinstance(trigger, At) else f'schedule: "{written}"'


def _where(fields: FieldReader) -> dict[str, Any]:
    where = read_input(fields.at("where"), fields["where"])
    for path, value in where.items():
        if not all(path.split(".")):
            raise FieldError(fields.at(f"where.{key_text(path)}"), value, "stands under no path such as model.name")
    return where


def event_trigger_as_data(trigger: OnEvent) -> dict[str, Any]:
    """The value of the field `on` that defines this trigger."""
    data: dict[str, Any] = {"event": trigger.event}
    if trigger.condition:
        data["where"] = trigger.condition
    if trigger.debounce_ms is not None:
        data["debounce"] = duration_text(trigger.debounce_ms)
    elif trigger.batch_ms is not None:
        limit = {} if trigger.most is None else {"max": trigger.most}
        data["batch"] = {**limit, "wait": duration_text(trigger.batch_ms)}
    return data
