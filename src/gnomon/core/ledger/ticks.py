"""The ticks of one schedule: the planned times inside its active window, and the fire time of each."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gnomon.core.ids import hash_fraction, tick_key
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import Reason, Schedule, Spec

_NONE: Mapping[int, Reason | None] = MappingProxyType({})


def ticks_of(schedule: Schedule) -> "Ticks":
    """The ticks of the schedule, without those after its mark that are decided already."""
    correction = schedule.mark_correction
    decided = () if correction is None else [at for at in correction.decided if at > schedule.mark_at]
    return Ticks(schedule.schedule_id, schedule.spec, decided)


class Ticks:
    """Planned times in milliseconds, oldest to newest, from `start_at` up to but without `end_at`.

    They include the times to which ticks were moved, and skipped ticks: these have to be decided, too. They include
    `decided` ticks, which the mark has yet to pass.
    """

    def __init__(self, schedule_id: str, spec: Spec, decided: Collection[int] = ()) -> None:
        self._schedule_id = schedule_id
        self._spec = spec
        #: The last argument of `after` and its result: a plan asks for it twice.
        self._last_after: tuple[int, int | None] | None = None
        #: The times to which ticks were moved.
        self._extras: Sequence[int] = ()
        #: The ticks that do not fire, oldest first, with the reason; None if the tick is decided already.
        self.skipped = _NONE
        self._unskipped: Ticks | None = None
        if spec.exceptions or decided:
            self._apply_exceptions(decided)

    def _apply_exceptions(self, decided: Collection[int]) -> None:
        moves = {exception.planned_at: exception.moved_to for exception in self._spec.exceptions}
        self._extras = sorted(to for to in moves.values() if to is not None)
        reasons = {at: Reason.SKIPPED_ONCE if to is None else Reason.MOVED for at, to in moves.items()}
        # An earlier revision may have planned times that this one does not.
        planned = dict.fromkeys(at for at in decided if self.up_to(at) == at)
        self.skipped = dict(sorted((reasons | planned).items()))
        self._unskipped = _UnskippedTicks(self, self._schedule_id, self._spec)

    @property
    def unskipped(self) -> "Ticks":
        """The ticks that are not skipped."""
        return self._unskipped or self

    def after(self, at: int) -> int | None:
        """The first tick planned after `at`."""
        if self._last_after is None or self._last_after[0] != at:
            self._last_after = at, self._after(at)
        return self._last_after[1]

    def _after(self, at: int) -> int | None:
        planned = self._planned_after(at)
        if not self._extras:
            return planned
        extra = next(iter(self._extras[bisect_right(self._extras, at) :]), None)
        return min((time for time in (planned, extra) if time is not None), default=None)

    def _planned_after(self, at: int) -> int | None:
        start, end = self._spec.start_at, self._spec.end_at
        found = self._spec.trigger.next_after(instant_of(at if start is None else max(at, start - 1)))
        if found is None:
            return None
        planned = ms_of(found)
        return planned if end is None or planned < end else None

    def up_to(self, at: int) -> int | None:
        """The last tick planned at or before `at`."""
        planned = self._planned_up_to(at)
        if not self._extras:
            return planned
        extra = next(reversed(self._extras[: bisect_right(self._extras, at)]), None)
        return max((time for time in (planned, extra) if time is not None), default=None)

    def _planned_up_to(self, at: int) -> int | None:
        start, end = self._spec.start_at, self._spec.end_at
        found = self._spec.trigger.previous_before(instant_of((at if end is None else min(at, end - 1)) + 1))
        if found is None:
            return None
        planned = ms_of(found)
        return planned if start is None or planned >= start else None

    def count(self, *, after: int, until: int) -> int:
        """How many ticks are planned after `after` and up to `until`."""
        start, end = self._spec.start_at, self._spec.end_at
        first = after if start is None else max(after, start - 1)
        last = until if end is None else min(until, end - 1)
        extras = sum(after < extra <= until for extra in self._extras)
        if first >= last:
            return extras
        return self._spec.trigger.count(after=instant_of(first), until=instant_of(last)) + extras

    def fire_at(self, planned: int) -> int:
        """The fire time of a tick: its planned time, moved by its jitter.

        The jitter follows from the tick's key and stops half-way to the neighbouring ticks, so that fires keep the
        order of their ticks. A tick that an operator moved fires exactly at its new time.
        """
        if not self._spec.jitter_ms or planned in self._extras:
            return planned
        offset = round((2 * hash_fraction(tick_key(self._schedule_id, planned)) - 1) * self._spec.jitter_ms)
        neighbour = self.up_to(planned - 1) if offset < 0 else self.after(planned)
        if neighbour is None:
            return planned + offset
        half_way = abs(neighbour - planned) // 2
        return planned + max(-half_way, min(half_way, offset))

    def next_fire_at(self, after: int) -> int | None:
        """The fire time of the first tick planned after `after`."""
        planned = self.after(after)
        return None if planned is None else self.fire_at(planned)

    def newest_due(self, now: int) -> int | None:
        """The newest tick whose fire time is at or before `now`."""
        # Jitter stops half-way to the neighbours: only the next tick can be early, only the last one late.
        early = self.after(now) if self._spec.jitter_ms else None
        if early is not None and self.fire_at(early) <= now:
            return early
        last = self.up_to(now)
        return last if last is None or self.fire_at(last) <= now else self.up_to(last - 1)


class _UnskippedTicks(Ticks):
    """The ticks that are not skipped. Their fire times are the same as among all ticks."""

    def __init__(self, every: Ticks, schedule_id: str, spec: Spec) -> None:
        super().__init__(schedule_id, replace(spec, exceptions=()))
        self._every = every

    def _after(self, at: int) -> int | None:
        planned = self._every.after(at)
        while planned is not None and planned in self._every.skipped:
            planned = self._every.after(planned)
        return planned

    def up_to(self, at: int) -> int | None:
        """See Ticks.up_to."""
        planned = self._every.up_to(at)
        while planned is not None and planned in self._every.skipped:
            planned = self._every.up_to(planned - 1)
        return planned

    def count(self, *, after: int, until: int) -> int:
        """See Ticks.count."""
        skipped = sum(after < planned <= until for planned in self._every.skipped)
        return self._every.count(after=after, until=until) - skipped

    def fire_at(self, planned: int) -> int:
        """See Ticks.fire_at."""
        return self._every.fire_at(planned)
