"""What would become of a job if it were made to stand as it is written: its fields, its fires, its odd days."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.cron import Cron, known_zone
from gnomon.core.cron.changes import clock_changes
from gnomon.core.durations import duration_text
from gnomon.core.editing import kept_grid
from gnomon.core.fire_diff import MOST_WALKED, FireChange, FireDiff, Firing, fire_diff
from gnomon.core.instants import DAY_SECONDS, instant_of, second_of
from gnomon.core.job_data import job_as_data
from gnomon.core.job_pings import address_as_told
from gnomon.core.jobs import Job
from gnomon.core.zones import Zone

_ADDRESSES = ("ping", "ping.url")


class FieldChange(Struct, frozen=True):
    """A field that says something else; None where it says nothing."""

    field: str
    before: Any
    after: Any


class OddDay(Struct, frozen=True):
    """A day on which clocks are changed where the job lives, and what that does to its fires."""

    #: The instant of the change.
    at: datetime
    zone: str
    what: str


class Forecast(Struct, frozen=True, kw_only=True):
    """One job, before and after."""

    name: str
    fields: tuple[FieldChange, ...]
    fires: FireDiff
    odd_days: tuple[OddDay, ...]
    #: It is paused, and stays so whatever the file says.
    stays_paused: bool = False


def forecast(before: Job | None, after: Job | None, *, now: int, until: int, most: int = MOST_WALKED) -> Forecast:
    """What becomes of the job in the time after `now` and up to `until`, of which so many fires are looked at.

    None is a job that is not there. Who is not enabled fires at no time; who is paused already stays so.
    """
    if before is not None and after is not None:
        after = replace(after, spec=kept_grid(before.spec, after.spec))
    stays_paused = before is not None and after is not None and after.enabled and not before.enabled
    if after is not None and stays_paused:
        after = replace(after, enabled=False)
    named = after if after is not None else before
    assert named is not None, "a job is before or after"  # noqa: S101 - tells the type checker
    return Forecast(
        name=named.name,
        fields=() if before is None or after is None else changed_fields(before, after),
        fires=fire_diff(_firing(before), _firing(after), now=now, until=until, most=most),
        odd_days=tuple(_odd_days(after or before, now, until)),
        stays_paused=stays_paused,
    )


def _firing(job: Job | None) -> Firing | None:
    return None if job is None or not job.enabled else Firing(job.name, job.spec)


# ---- fields --------------------------------------------------------------------------------------


def changed_fields(before: Job, after: Job) -> tuple[FieldChange, ...]:
    """The fields that differ, in the words of a jobs file; those of a step are named `dag.STEP.FIELD`."""
    old, new = dict(_fields(before)), dict(_fields(after))
    return tuple(
        FieldChange(field, _told(field, old.get(field)), _told(field, new.get(field)))
        for field in dict.fromkeys((*old, *new))
        if old.get(field) != new.get(field)
    )


def _told(field: str, value: Any) -> Any:  # noqa: ANN401 - as a field has it
    """The value as it may stand in a plan, which many read: whoever knows the address of a ping can ping."""
    return address_as_told(value) if field in _ADDRESSES and isinstance(value, str) else value


def _fields(job: Job) -> Iterator[tuple[str, Any]]:
    if job.workflow.steps:
        yield from _flat("", job_as_data(job))
    yield "enabled", job.enabled
    # They come from settings, and a file cannot say them.
    yield "settings.catchup_cap", job.spec.catchup_cap
    yield "settings.lookahead", duration_text(job.spec.lookahead_ms)


def _flat(path: str, value: object) -> Iterator[tuple[str, Any]]:
    inner: Mapping[str, Any] | None = None
    if isinstance(value, Mapping):
        inner = value
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) and "step" in one for one in value):
        inner = {one["step"]: {field: said for field, said in one.items() if field != "step"} for one in value}
    if not inner:
        yield path, value
        return
    for key, said in inner.items():
        yield from _flat(f"{path}.{key}" if path else str(key), said)


# ---- clock changes -------------------------------------------------------------------------------


def _odd_days(job: Job | None, now: int, until: int) -> Iterator[OddDay]:
    if job is None or not job.enabled or not isinstance(job.spec.trigger, Cron):
        return
    cron = job.spec.trigger
    for change in clock_changes(cron, after=instant_of(now), until=instant_of(until)):
        if change.effect != "none":
            yield OddDay(change.at, cron.timezone, change.describe())


def is_odd(change: FireChange, day: OddDay) -> bool:
    """Whether the fire is, or was, on that day."""
    zone = known_zone(day.zone)
    odd = _local_day(zone, second_of(day.at))
    return any(_local_day(zone, at // 1000) == odd for at in (change.before_at, change.after_at) if at is not None)


def _local_day(zone: Zone, second: int) -> int:
    return (second + zone.span_at(second).offset) // DAY_SECONDS
