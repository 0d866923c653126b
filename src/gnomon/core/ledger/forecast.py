"""Two ways of firing compared over the coming days: which fires stay, come, go, or move to another time.

Fires are walked, not counted, so there is a most: beyond it the comparison stops early and says where, and the rest is
told by numbers alone. Two schedules that fire alike are never walked.
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
from gnomon.core.jobs.steps import redacted_ping_url
from gnomon.core.ledger.edits import keep_interval_anchor
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import DAY_MS, Spec
from gnomon.core.timezones import Zone

#: How many fires of either side are looked at one by one.
MOST_WALKED = 5_000
#: A fire that is farther away than this is another one.
_FARTHEST_MOVE_MS = 7 * DAY_MS


class FireChangeKind(StrEnum):
    """What becomes of a fire."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"


class FireChange(Struct, frozen=True, kw_only=True):
    """A fire that is not as it was."""

    fate: FireChangeKind
    #: When it was planned; None if it is added.
    before_at: int | None = None
    #: When it is planned now; None if it is removed.
    after_at: int | None = None

    @property
    def at(self) -> int:
        """Where it stands on a time line."""
        known = [at for at in (self.before_at, self.after_at) if at is not None]
        return min(known)


class FireDiff(Struct, frozen=True, kw_only=True):
    """How the fires of some days differ."""

    #: Up to where they were compared one by one: the end of the days, unless there are too many.
    compared_until: int
    #: How many fires there are in all of the days.
    before: int = 0
    after: int = 0
    #: How many stay where they are, and what becomes of how many others, as far as they were compared.
    same: int = 0
    counts: Mapping[FireChangeKind, int] = {}
    #: The others in the order of their time; the first of them, if there are too many.
    changes: tuple[FireChange, ...] = ()
    #: How many fires were looked at one by one for that.
    walked: int = 0

    def count(self, fate: FireChangeKind) -> int:
        """How many fires that becomes of."""
        return self.counts.get(fate, 0)


class NamedSpec(Struct, frozen=True):
    """Something that fires: a spec under the name that its jitter follows from."""

    name: str
    spec: Spec

    @property
    def ticks(self) -> Ticks:
        """Its planned times."""
        return Ticks(self.name, self.spec)


def fire_diff(
    before: NamedSpec | None, after: NamedSpec | None, *, now: int, until: int, most: int = MOST_WALKED
) -> FireDiff:
    """How the fires planned after `now` and up to `until` differ; None is something that does not fire."""
    whole = FireDiff(compared_until=until, before=_count(before, now, until), after=_count(after, now, until))
    if before is None or after is None:
        return _one_sided(whole, before, after, now=now, most=most)
    if _fire_alike(before.spec, after.spec):
        return replace(whole, same=whole.after)
    # A little farther than asked for, so that a fire that moves past the end is not taken for one that is gone.
    beyond = until + _FARTHEST_MOVE_MS
    old, old_until = _walked(before, now, beyond, most)
    new, new_until = _walked(after, now, beyond, most)
    reached = min(until, old_until, new_until)
    known = min(old_until, new_until)
    old, new = old[: bisect_right(old, known)], new[: bisect_right(new, known)]
    kept = set(old) & set(new)
    changes = _paired([at for at in old if at not in kept], [at for at in new if at not in kept])
    within = tuple(change for change in changes if change.at <= reached)
    return replace(
        whole,
        compared_until=reached,
        same=sum(at <= reached for at in kept),
        counts=Counter(change.fate for change in within),
        changes=within,
        walked=len(old) + len(new),
    )


def _one_sided(whole: FireDiff, before: NamedSpec | None, after: NamedSpec | None, *, now: int, most: int) -> FireDiff:
    """All fires come, or all of them go: however many there are, they can be told by counting."""
    old, _ = _walked(before, now, whole.compared_until, most)
    new, _ = _walked(after, now, whole.compared_until, most)
    gone = [FireChange(fate=FireChangeKind.REMOVED, before_at=at) for at in old]
    made = [FireChange(fate=FireChangeKind.ADDED, after_at=at) for at in new]
    return replace(
        whole,
        counts={FireChangeKind.REMOVED: whole.before, FireChangeKind.ADDED: whole.after},
        changes=(*gone, *made),
        walked=len(old) + len(new),
    )


def _count(firing: NamedSpec | None, now: int, until: int) -> int:
    return 0 if firing is None else firing.ticks.count(after=now, until=until)


def _fire_alike(old: Spec, new: Spec) -> bool:
    return (old.trigger, old.start_at, old.end_at) == (new.trigger, new.start_at, new.end_at)


def _walked(firing: NamedSpec | None, now: int, until: int, most: int) -> tuple[list[int], int]:
    """The planned times, and up to where they are all of them."""
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
    """What is gone and what is new, the nearest two of them taken together as one that moved, and so on."""
    line = sorted(chain(((at, FireChangeKind.REMOVED) for at in removed), ((at, FireChangeKind.ADDED) for at in added)))
    pairs = _nearest_pairs(line)
    changes = [_moved(line[one], line[other]) for one, other in pairs]
    taken = set(chain.from_iterable(pairs))
    for place, (at, fate) in enumerate(line):
        if place not in taken:
            gone = fate is FireChangeKind.REMOVED
            changes.append(FireChange(fate=fate, before_at=at if gone else None, after_at=None if gone else at))
    return sorted(changes, key=lambda change: (change.at, change.fate))


def _moved(one: tuple[int, FireChangeKind], other: tuple[int, FireChangeKind]) -> FireChange:
    before, after = (one, other) if one[1] is FireChangeKind.REMOVED else (other, one)
    return FireChange(fate=FireChangeKind.MOVED, before_at=before[0], after_at=after[0])


def _nearest_pairs(line: Sequence[tuple[int, FireChangeKind]]) -> list[tuple[int, int]]:
    """Neighbours of which one is gone and the other new, the nearest first; who is taken is nobody's neighbour."""
    left = [place - 1 for place in range(len(line))]
    right = [place + 1 for place in range(len(line))]
    waiting: list[tuple[int, int, int]] = []

    def offer(one: int, other: int) -> None:
        if one >= 0 and other < len(line) and line[one][1] is not line[other][1]:
            apart = line[other][0] - line[one][0]
            if apart <= _FARTHEST_MOVE_MS:
                heapq.heappush(waiting, (apart, one, other))

    for place in range(len(line) - 1):
        offer(place, place + 1)
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    while waiting:
        _, one, other = heapq.heappop(waiting)
        if one in taken or other in taken:
            continue
        found.append((one, other))
        taken |= {one, other}
        before, behind = left[one], right[other]
        if before >= 0:
            right[before] = behind
        if behind < len(line):
            left[behind] = before
        offer(before, behind)
    return found


_ADDRESSES = ("ping", "ping.url")


class FieldChange(Struct, frozen=True):
    """A field that says something else; None where it says nothing."""

    field: str
    before: Any
    after: Any


class ClockChangeDay(Struct, frozen=True):
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
    odd_days: tuple[ClockChangeDay, ...]
    #: It is paused, and stays so whatever the file says.
    stays_paused: bool = False


def forecast(before: Job | None, after: Job | None, *, now: int, until: int, most: int = MOST_WALKED) -> Forecast:
    """What becomes of the job in the time after `now` and up to `until`, of which so many fires are looked at.

    None is a job that is not there. Who is not enabled fires at no time; who is paused already stays so.
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
    """The fields that differ, in the words of a jobs file; those of a step are named `dag.STEP.FIELD`."""
    old, new = dict(_fields(before)), dict(_fields(after))
    return tuple(
        FieldChange(field, _told(field, old.get(field)), _told(field, new.get(field)))
        for field in dict.fromkeys((*old, *new))
        if old.get(field) != new.get(field)
    )


def _told(field: str, value: Any) -> Any:  # noqa: ANN401 - as a field has it
    """The value as it may stand in a plan, which many read: whoever knows the address of a ping can ping."""
    return redacted_ping_url(value) if field in _ADDRESSES and isinstance(value, str) else value


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
    odd = _local_day(zone, second_of(day.at))
    return any(_local_day(zone, at // 1000) == odd for at in (change.before_at, change.after_at) if at is not None)


def _local_day(zone: Zone, second: int) -> int:
    return (second + zone.span_at(second).offset) // DAY_SECONDS
