"""Two ways of firing compared over the coming days: which fires stay, come, go, or move to another time.

Fires are walked, not counted, so there is a most: beyond it the comparison stops early and says where, and the rest is
told by numbers alone. Two schedules that fire alike are never walked.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import DAY_MS, Spec
from gnomon.core.ticks import Ticks

#: How many fires of either side are looked at one by one.
MOST_WALKED = 5_000
#: A fire that is farther away than this is another one.
_FARTHEST_MOVE_MS = 7 * DAY_MS


class Fate(StrEnum):
    """What becomes of a fire."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"


class FireChange(Struct, frozen=True, kw_only=True):
    """A fire that is not as it was."""

    fate: Fate
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
    counts: Mapping[Fate, int] = {}
    #: The others in the order of their time; the first of them, if there are too many.
    changes: tuple[FireChange, ...] = ()
    #: How many fires were looked at one by one for that.
    walked: int = 0

    def count(self, fate: Fate) -> int:
        """How many fires that becomes of."""
        return self.counts.get(fate, 0)


class Firing(Struct, frozen=True):
    """Something that fires: a spec under the name that its jitter follows from."""

    name: str
    spec: Spec

    @property
    def ticks(self) -> Ticks:
        """Its planned times."""
        return Ticks(self.name, self.spec)


def fire_diff(
    before: Firing | None, after: Firing | None, *, now: int, until: int, most: int = MOST_WALKED
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


def _one_sided(whole: FireDiff, before: Firing | None, after: Firing | None, *, now: int, most: int) -> FireDiff:
    """All fires come, or all of them go: however many there are, they can be told by counting."""
    old, _ = _walked(before, now, whole.compared_until, most)
    new, _ = _walked(after, now, whole.compared_until, most)
    gone = [FireChange(fate=Fate.REMOVED, before_at=at) for at in old]
    made = [FireChange(fate=Fate.ADDED, after_at=at) for at in new]
    return replace(
        whole,
        counts={Fate.REMOVED: whole.before, Fate.ADDED: whole.after},
        changes=(*gone, *made),
        walked=len(old) + len(new),
    )


def _count(firing: Firing | None, now: int, until: int) -> int:
    return 0 if firing is None else firing.ticks.count(after=now, until=until)


def _fire_alike(old: Spec, new: Spec) -> bool:
    return (old.trigger, old.start_at, old.end_at) == (new.trigger, new.start_at, new.end_at)


def _walked(firing: Firing | None, now: int, until: int, most: int) -> tuple[list[int], int]:
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
    line = sorted(chain(((at, Fate.REMOVED) for at in removed), ((at, Fate.ADDED) for at in added)))
    pairs = _nearest_pairs(line)
    changes = [_moved(line[one], line[other]) for one, other in pairs]
    taken = set(chain.from_iterable(pairs))
    for place, (at, fate) in enumerate(line):
        if place not in taken:
            gone = fate is Fate.REMOVED
            changes.append(FireChange(fate=fate, before_at=at if gone else None, after_at=None if gone else at))
    return sorted(changes, key=lambda change: (change.at, change.fate))


def _moved(one: tuple[int, Fate], other: tuple[int, Fate]) -> FireChange:
    before, after = (one, other) if one[1] is Fate.REMOVED else (other, one)
    return FireChange(fate=Fate.MOVED, before_at=before[0], after_at=after[0])


def _nearest_pairs(line: Sequence[tuple[int, Fate]]) -> list[tuple[int, int]]:
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
