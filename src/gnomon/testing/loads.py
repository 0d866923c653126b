"""What a rehearsal has seen: how often, when and beside whom jobs start, and what became of their ticks."""

from collections import Counter
from collections.abc import Mapping
from heapq import heappushpop
from typing import NamedTuple

from msgspec import Struct

from gnomon.core.cron import known_zone
from gnomon.core.instants import DAY_SECONDS
from gnomon.core.model import Decision, Reason, TickKind
from gnomon.core.time_expressions import Outage

#: How many of the worst collisions are kept.
_WORST = 10
_HOUR_SECONDS = 3600


class JobLoad(Struct, kw_only=True):
    """One job."""

    name: str
    #: How long each of its runs is taken to last.
    lasts_ms: int
    #: What became of its ticks, and why.
    ticks: Counter[tuple[TickKind, Reason]]
    runs: int = 0
    #: Runs that began while another one of the job was under way.
    beside: int = 0
    #: Runs that a newer one replaced.
    replaced: int = 0
    #: The most runs that waited at once.
    most_waiting: int = 0

    def of(self, kind: TickKind) -> int:
        """How many ticks that became of."""
        return sum(count for (found, _), count in self.ticks.items() if found is kind)

    @property
    def planned(self) -> int:
        """All ticks that were decided."""
        return sum(self.ticks.values())


class Collision(NamedTuple):
    """Several jobs that start in the same second."""

    jobs: tuple[str, ...]
    at: int


class Aftermath(Struct, frozen=True, kw_only=True):
    """An outage, and what became of the ticks that fell into it."""

    outage: Outage
    ticks: Counter[tuple[str, TickKind, Reason]]


class Loads:
    """Counts as time goes by. Starts must come in the order of their time."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._zone = known_zone(zone)
        self.jobs: dict[str, JobLoad] = {}
        #: Day since 1970 in the zone, and hour, to how many runs started then.
        self.hours: Counter[tuple[int, int]] = Counter()
        #: In how many seconds, and in how many minutes, more than one job started.
        self.colliding_seconds = 0
        self.colliding_minutes = 0
        self.worst: list[tuple[int, int, tuple[str, ...]]] = []
        self._second, self._in_second = -1, dict[str, None]()
        self._minute, self._in_minute = -1, set[str]()
        self.aftermaths: list[Aftermath] = []

    def enter(self, name: str, lasts_ms: int) -> None:
        """A job takes part."""
        self.jobs[name] = JobLoad(name=name, lasts_ms=lasts_ms, ticks=Counter())

    def decided(self, name: str, decision: Decision) -> None:
        """A tick was decided, or a stretch of them."""
        self.jobs[name].ticks[decision.kind, decision.reason] += decision.count
        if self.aftermaths:
            newest = self.aftermaths[-1]
            if newest.outage.from_at <= decision.planned_at < newest.outage.until_at:
                newest.ticks[name, decision.kind, decision.reason] += decision.count

    def started(self, name: str, at: int, *, beside: bool) -> None:
        """A run began."""
        load = self.jobs[name]
        load.runs += 1
        load.beside += beside
        second = at // 1000
        local = second + self._zone.span_at(second).offset
        self.hours[local // DAY_SECONDS, local % DAY_SECONDS // _HOUR_SECONDS] += 1
        if second != self._second:
            self._close_second()
            self._second = second
        if second // 60 != self._minute:
            self._close_minute()
            self._minute = second // 60
        self._in_second[name] = None
        self._in_minute.add(name)

    def _close_second(self) -> None:
        if len(self._in_second) > 1:
            self.colliding_seconds += 1
            entry = len(self._in_second), -self._second, tuple(self._in_second)
            if len(self.worst) < _WORST:
                self.worst.append(entry)
                self.worst.sort()
            else:
                heappushpop(self.worst, entry)
        self._in_second = {}

    def _close_minute(self) -> None:
        self.colliding_minutes += len(self._in_minute) > 1
        self._in_minute = set()

    def close(self) -> None:
        """Nothing more comes."""
        self._close_second()
        self._close_minute()

    @property
    def collisions(self) -> list[Collision]:
        """The worst of them, the largest first, then the earliest."""
        return [Collision(names, -second * 1000) for _, second, names in sorted(self.worst, reverse=True)]

    def days(self) -> Mapping[int, list[int]]:
        """Each day since 1970 on which something started, with the runs of its 24 hours."""
        found: dict[int, list[int]] = {}
        for (day, hour), count in sorted(self.hours.items()):
            found.setdefault(day, [0] * 24)[hour] = count
        return found


class OddDay(Struct, frozen=True, kw_only=True):
    """A clock change, and what it does to some jobs."""

    at: int
    zone: str
    what: str
    jobs: tuple[str, ...]


class Simulated(Struct, frozen=True, kw_only=True):
    """What a rehearsal has shown."""

    from_at: int
    until_at: int
    loads: Loads
    #: Jobs that are not enabled.
    resting: tuple[str, ...] = ()
    odd_days: tuple[OddDay, ...] = ()
    #: Jobs whose runs are said to last longer than their timeout lets them, and how long that is.
    ended_early: Mapping[str, int] = {}
