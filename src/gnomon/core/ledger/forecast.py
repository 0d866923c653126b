"""The forecast of a change to a job: changed fields, and which of the coming fires are added, removed or moved.

Fires are compared one by one up to a limit. Beyond it the comparison stops early and reports where; the rest is
given as totals only. Two schedules with the same times are not walked at all.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.cron import Cron, known_zone
from gnomon.core.cron.clock_changes import clock_changes
from gnomon.core.durations import duration_text
from gnomon.core.instants import DAY_SECONDS, instant_of, second_of
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.origins import origin_text
from gnomon.core.jobs.steps import redacted_ping_url
from gnomon.core.ledger.edits import keep_interval_anchor
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import DAY_MS, Spec
from gnomon.core.timezones import Zone

#: How many fires of either side are compared one by one.
MOST_WALKED = 5_000
#: Two fires that are farther apart than this are not paired as one that moved.
_FARTHEST_MOVE_MS = 7 * DAY_MS


class FireChangeKind(StrEnum):
    """How a fire changes."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"


class FireChange(Struct, frozen=True, kw_only=True):
    """A fire that is added, removed or moved."""

    fate: FireChangeKind
    #: When it was planned; None if it is added.
    before_at: int | None = None
    #: When it is planned now; None if it is removed.
    after_at: int | None = None

    @property
    def at(self) -> int:
        """The earlier of its times, by which changes are ordered."""
        known = [at for at in (self.before_at, self.after_at) if at is not None]
        return min(known)


class FireDiff(Struct, frozen=True, kw_only=True):
    """The difference between two sets of fires over some days."""

    #: The time up to which fires were compared one by one: the end of the days, unless there are too many.
    compared_until: int
    #: The number of fires in all of the days.
    before: int = 0
    after: int = 0
    #: How many fires stay, and how many change in which way, up to `compared_until`.
    same: int = 0
    counts: Mapping[FireChangeKind, int] = {}
    #: The changed fires in the order of their time; the first of them, if there are too many.
    changes: tuple[FireChange, ...] = ()
    #: How many fires were compared one by one.
    walked: int = 0

    def count(self, fate: FireChangeKind) -> int:
        """How many fires change in this way."""
        return self.counts.get(fate, 0)


class NamedSpec(Struct, frozen=True):
    """A spec with the name of its schedule, from which its jitter follows."""

    name: str
    spec: Spec

    @property
    def ticks(self) -> Ticks:
        """The planned times of the spec."""
        return Ticks(self.name, self.spec)


def fire_diff(
    before: NamedSpec | None, after: NamedSpec | None, *, now: int, until: int, most: int = MOST_WALKED
) -> FireDiff:
    """The difference between the fires planned after `now` and up to `until`; None is a side without fires."""
    whole = FireDiff(compared_until=until, before=_count(before, now, until), after=_count(after, now, until))
    if before is None or after is None:
        return _one_sided(whole, before, after, now=now, most=most)
    if _fire_alike(before.spec, after.spec):
        return replace(whole, same=whole.after)
    # Walk farther than `until`, so that a fire that moves past the end is not reported as removed.
    beyond = until + _FARTHEST_MOVE_MS
    old, old_until = _walked(before, now, beyond, most)
    new, new_until = _walked(after, now, beyond, most)
    reached = min(until, old_until, new_until)
    known = min(old_until, new_until)
    old, new = old[: bisect_right(old, known)], new[: bisect_right(new, known)]
    same = set(old) & set(new)
    changes = _paired([at for at in old if at not in same], [at for at in new if at not in same])
    within = tuple(change for change in changes if change.at <= reached)
    return replace(
        whole,
        compared_until=reached,
        same=sum(at <= reached for at in same),
        counts=Counter(change.fate for change in within),
        changes=within,
        walked=len(old) + len(new),
    )


def _one_sided(whole: FireDiff, before: NamedSpec | None, after: NamedSpec | None, *, now: int, most: int) -> FireDiff:
    """All fires are added, or all are removed: counting gives the totals, however many there are."""
    old, _ = _walked(before, now, whole.compared_until, most)
    new, _ = _walked(after, now, whole.compared_until, most)
    removed = [FireChange(fate=FireChangeKind.REMOVED, before_at=at) for at in old]
    added = [FireChange(fate=FireChangeKind.ADDED, after_at=at) for at in new]
    return replace(
        whole,
        counts={FireChangeKind.REMOVED: whole.before, FireChangeKind.ADDED: whole.after},
        changes=(*removed, *added),
        walked=len(old) + len(new),
    )


def _count(firing: NamedSpec | None, now: int, until: int) -> int:
    return 0 if firing is None else firing.ticks.count(after=now, until=until)


def _fire_alike(old: Spec, new: Spec) -> bool:
    return (old.trigger, old.start_at, old.end_at) == (new.trigger, new.start_at, new.end_at)


def _walked(firing: NamedSpec | None, now: int, until: int, most: int) -> tuple[list[int], int]:
    """The planned times, and the time up to which they are complete."""
    found: list[int] = []
    if firing is None:
        return found, until
    ticks = firing.ticks
    at = ticks.after(now)
    while at is not None and at <= until:
        if len(found) == most:
            return found, found[-1]
        found.append(at)
        at = ticks.after(at)
    return found, until


def _paired(removed: Sequence[int], added: Sequence[int]) -> list[FireChange]:
    """The changes, sorted. A removed and an added fire that are nearest to each other are paired as one that moved."""
    line = sorted(chain(((at, FireChangeKind.REMOVED) for at in removed), ((at, FireChangeKind.ADDED) for at in added)))
    pairs = _nearest_pairs(line)
    changes = [_moved(line[first], line[second]) for first, second in pairs]
    taken = set(chain.from_iterable(pairs))
    for place, (at, fate) in enumerate(line):
        if place not in taken:
            was = fate is FireChangeKind.REMOVED
            changes.append(FireChange(fate=fate, before_at=at if was else None, after_at=None if was else at))
    return sorted(changes, key=lambda change: (change.at, change.fate))


def _moved(first: tuple[int, FireChangeKind], second: tuple[int, FireChangeKind]) -> FireChange:
    before, after = (first, second) if first[1] is FireChangeKind.REMOVED else (second, first)
    return FireChange(fate=FireChangeKind.MOVED, before_at=before[0], after_at=after[0])


def _nearest_pairs(line: Sequence[tuple[int, FireChangeKind]]) -> list[tuple[int, int]]:
    """Pairs of neighbours, one removed and one added, the nearest first. A paired fire leaves the line."""
    left = [place - 1 for place in range(len(line))]
    right = [place + 1 for place in range(len(line))]
    waiting: list[tuple[int, int, int]] = []

    def offer(first: int, second: int) -> None:
        if first >= 0 and second < len(line) and line[first][1] is not line[second][1]:
            apart = line[second][0] - line[first][0]
            if apart <= _FARTHEST_MOVE_MS:
                heapq.heappush(waiting, (apart, first, second))

    for place in range(len(line) - 1):
        offer(place, place + 1)
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    while waiting:
        _, first, second = heapq.heappop(waiting)
        if first in taken or second in taken:
            continue
        found.append((first, second))
        taken |= {first, second}
        before, following = left[first], right[second]
        if before >= 0:
            right[before] = following
        if following < len(line):
            left[following] = before
        offer(before, following)
    return found


# ---- the forecast of a job -----------------------------------------------------------------------

_URL_FIELDS = ("ping", "ping.url")


class FieldChange(Struct, frozen=True):
    """A field whose value changes; None where it has none."""

    field: str
    before: Any
    after: Any


class ClockChangeDay(Struct, frozen=True):
    """A day with a clock change in the job's time zone, and the effect on its fires."""

    #: The instant of the change.
    at: datetime
    zone: str
    what: str


class Forecast(Struct, frozen=True, kw_only=True):
    """The changes of one job."""

    name: str
    fields: tuple[FieldChange, ...]
    fires: FireDiff
    odd_days: tuple[ClockChangeDay, ...]
    #: The job is paused and stays so, though the file enables it.
    stays_paused: bool = False


def forecast(before: Job | None, after: Job | None, *, now: int, until: int, most: int = MOST_WALKED) -> Forecast:
    """The changes of the job in the time after `now` and up to `until`; at most `most` fires are compared one by one.

    None is a job that does not exist. A job that is not enabled does not fire; a job that is paused stays paused.
    """
    if before is not None and after is not None:
        after = replace(after, spec=keep_interval_anchor(before.spec, after.spec))
    stays_paused = before is not None and after is not None and after.enabled and not before.enabled
    if after is not None and stays_paused:
        after = replace(after, enabled=False)
    named = after if after is not None else before
    assert named is not None, "a job is before or after"  # noqa: S101 - tells the type checker
    return Forecast(
        name=named.name,
        fields=() if before is None or after is None else changed_fields(before, after),
        fires=fire_diff(_firing(before), _firing(after), now=now, until=until, most=most),
        odd_days=tuple(_clock_change_days(after or before, now, until)),
        stays_paused=stays_paused,
    )


def _firing(job: Job | None) -> NamedSpec | None:
    return None if job is None or not job.enabled else NamedSpec(job.name, job.spec)


# ---- fields --------------------------------------------------------------------------------------


def changed_fields(before: Job, after: Job) -> tuple[FieldChange, ...]:
    """The fields that differ, named as in a jobs file; a field of a step is named `dag.STEP.FIELD`."""
    old, new = dict(_fields(before)), dict(_fields(after))
    if after.workflow.has_commands and before.workflow.steps:
        # It decides which policy the commands are under.
        old["origin"], new["origin"] = origin_text(before.workflow.origin), origin_text(after.workflow.origin)
    return tuple(
        FieldChange(field, _redacted(field, old.get(field)), _redacted(field, new.get(field)))
        for field in dict.fromkeys((*old, *new))
        if old.get(field) != new.get(field)
    )


def _redacted(field: str, value: Any) -> Any:  # noqa: ANN401 - any value of a field
    """The value as a plan may show it to many readers: a ping URL is a secret, as anyone who has it can ping."""
    return redacted_ping_url(value) if field in _URL_FIELDS and isinstance(value, str) else value


def _fields(job: Job) -> Iterator[tuple[str, Any]]:
    if job.workflow.steps:
        yield from _flat("", job_as_data(job))
    yield "enabled", job.enabled
    # It comes from a setting; a jobs file cannot set it.
    yield "settings.lookahead", duration_text(job.spec.lookahead_ms)


def _flat(path: str, value: object) -> Iterator[tuple[str, Any]]:
    inner: Mapping[str, Any] | None = None
    if isinstance(value, Mapping):
        inner = value
    elif isinstance(value, list) and value and all(isinstance(step, Mapping) and "step" in step for step in value):
        inner = {step["step"]: {key: entry for key, entry in step.items() if key != "step"} for step in value}
    if not inner:
        yield path, value
        return
    for key, entry in inner.items():
        yield from _flat(f"{path}.{key}" if path else str(key), entry)


# ---- clock changes -------------------------------------------------------------------------------


def _clock_change_days(job: Job | None, now: int, until: int) -> Iterator[ClockChangeDay]:
    if job is None or not job.enabled or not isinstance(job.spec.trigger, Cron):
        return
    cron = job.spec.trigger
    for change in clock_changes(cron, after=instant_of(now), until=instant_of(until)):
        if change.effect != "none":
            yield ClockChangeDay(change.at, cron.timezone, change.describe())


def is_on_clock_change_day(change: FireChange, day: ClockChangeDay) -> bool:
    """Whether the fire is, or was, on that day."""
    zone = known_zone(day.zone)
    changed = _local_day(zone, second_of(day.at))
    return any(_local_day(zone, at // 1000) == changed for at in (change.before_at, change.after_at) if at is not None)


def _local_day(zone: Zone, second: int) -> int:
    return (second + zone.span_at(second).offset) // DAY_SECONDS
