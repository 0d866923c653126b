"""Time zones as spans: ranges of time in which the UTC offset of a zone does not change.

`zoneinfo` answers for one instant at a time, but schedules need to know until when an offset holds. So the changes
are found once, by probing `zoneinfo` every other day and at the end, in windows of eight and a half years that are
built on first use. That finds every change, because no zone has ever had two of them within four days (a test checks
the installed zone data), and no clock has ever been moved by more than one day.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from gnomon.core.instants import DAY_SECONDS, FIRST_SECOND, LAST_SECOND

#: Names that `zoneinfo` would load, but that depend on the host or count leap seconds.
_NOT_ZONES = re.compile(r"(localtime|posixrules|Factory|right/.*|posix/.*)")
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9][A-Za-z0-9_+-]*){0,2}")

_CONTINENTS = frozenset("Africa America Antarctica Arctic Asia Atlantic Australia Europe Indian Pacific".split())

_WINDOW = 1 << 28
_PROBE = 2 * DAY_SECONDS
#: The windows that a zone remembers: of five centuries, so that the farthest questions do not fill the memory.
_MOST_WINDOWS = 64


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """A range of time with one UTC offset; `start` is included, `end` is not.

    A span may end, and the next begin, without a change of the clock.
    """

    start: int
    end: int
    offset: int
    #: By how many seconds the clock was put forward at `start`, so that wall times were skipped.
    skipped: int
    #: By how many seconds the clock was put back at `start`, so that wall times come a second time.
    repeated: int
    #: The first whole minute of wall time, at which skipped times may fire.
    resumes: int
    #: From here to its end, the span has no skipped or repeated wall times.
    settled: int
    #: The days since 1970, in UTC, that lie wholly between `settled` and `end`.
    first_day: int
    last_day: int


class Zone:
    """A time zone as spans. It caches its spans, and is immutable otherwise."""

    def __init__(self, name: str, rules: tzinfo) -> None:
        self.name = name
        self._rules = rules
        self._windows: dict[int, tuple[list[int], list[OffsetSpan]]] = {}
        #: The span found last: most lookups are about the present.
        self.recent = _span(0, 0, 0, 0)

    def span_at(self, second: int) -> OffsetSpan:
        """The span in which `second` lies."""
        number = second // _WINDOW
        found = self._windows.get(number)
        if found is None:
            spans = self._spans(number)
            found = [span.start for span in spans], spans
            if len(self._windows) >= _MOST_WINDOWS:
                # Another thread may read the old windows, so they are replaced, not emptied.
                self._windows = {}
            self._windows[number] = found
        starts, spans = found
        # Another thread may set `recent` at any moment, so the result must not be read from it.
        span = self.recent = spans[bisect_right(starts, second) - 1]
        return span

    def _spans(self, number: int) -> list[OffsetSpan]:
        """The spans of a window, starting early enough that none begins within repeated wall times."""
        start, end = number * _WINDOW - _PROBE, (number + 1) * _WINDOW
        spans = []
        before = offset = self._offset(start)
        probed = start
        # The window is no multiple of the probe interval, so its last second is probed too.
        for probe in (*range(start + _PROBE, end - 1, _PROBE), end - 1):
            after = self._offset(probe)
            if after != offset:
                change = self._change(probed, probe)
                spans.append(_span(start, change, offset, before))
                start, before, offset = change, offset, after
            probed = probe
        spans.append(_span(start, end, offset, before))
        return spans

    def _change(self, low: int, high: int) -> int:
        """The instant after `low` and up to `high` at which the offset changes."""
        old = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == old else (low, middle)
        return high

    def _offset(self, second: int) -> int:
        # Stay two days away from the ends of the calendar, so that local time stays inside.
        within = min(max(second, FIRST_SECOND + _PROBE), LAST_SECOND - _PROBE)
        local = datetime.fromtimestamp(within, UTC).astimezone(self._rules)
        return int((local.utcoffset() or timedelta()).total_seconds())


def _span(start: int, end: int, offset: int, before: int) -> OffsetSpan:
    skipped, repeated = max(offset - before, 0), max(before - offset, 0)
    resumes = start + -(start + offset) % 60
    settled = max(resumes, start + repeated)
    first_day, last_day = -(-settled // DAY_SECONDS), end // DAY_SECONDS - 1
    return OffsetSpan(start, end, offset, skipped, repeated, resumes, settled, first_day, last_day)


@lru_cache(maxsize=2048)
def zone(name: str) -> Zone | None:
    """The IANA zone of that name; None if there is none."""
    if not _admissible(name):
        return None
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return None


def _admissible(name: str) -> bool:
    return len(name) <= 64 and bool(_ZONE_NAME.fullmatch(name)) and not _NOT_ZONES.fullmatch(name)


@lru_cache(maxsize=512)
def nearest_zone(name: str) -> str | None:
    """The name of an existing zone that is similar to `name`, or that of the place it names."""
    known, spelled = _spellings(), name[:64].lower().replace(" ", "_")
    if spelled in known:
        return known[spelled]
    place = _places().get(spelled.rpartition("/")[2])
    near = None if place else _closest(spelled, known, 0.75)
    return known[near] if near else place


@lru_cache(maxsize=512)
def zone_of_place(name: str) -> str | None:
    """The zone of a place named without its continent; one or two wrong letters are tolerated."""
    spelled, places = name[:64].lower().replace(" ", "_"), _places()
    near = spelled if spelled in places else _closest(spelled, places, 0.85)
    return places[near] if near else None


def _closest(spelled: str, names: Iterable[str], ratio: float) -> str | None:
    """The name that is most similar; None if none reaches that ratio."""
    # Texts whose lengths differ more than this cannot reach the ratio. To compare the others with all names would take
    # milliseconds, and a sentence may have dozens of unknown places.
    least, most = len(spelled) * ratio / (2 - ratio), len(spelled) * (2 - ratio) / ratio
    return next(
        iter(get_close_matches(spelled, [name for name in names if least <= len(name) <= most], 1, ratio)), None
    )


@cache
def _spellings() -> dict[str, str]:
    """Every valid name by its lower-case spelling."""
    return {name.lower(): name for name in sorted(available_timezones()) if _admissible(name)}


@cache
def _places() -> dict[str, str]:
    """The first zone for each last part of a name, in lower case; zones of continents take precedence."""
    names = sorted(_spellings().values(), key=lambda name: (name.split("/")[0] not in _CONTINENTS, name))
    return {name.rpartition("/")[2].lower(): name for name in reversed(names)}
