"""The search for matching days and seconds of wall time, by tables that equal fields share.

Days: a month is determined by its first weekday and its length, so 28 masks describe every month. Blocks of 128
days are built from them on first use. A block holds, for each of its days, the distance to the next matching
day (0: this one matches), so that finding the next matching day is a look-up, whatever the rule.

Times of day: a table for each of hour, minute and second gives the first admitted value at or after a number. Wall
time is a plain count of seconds, as if every day had 86,400 of them and no clock were ever changed.

To search backwards, mirror the numbers: day `n` becomes `~n`. The previous day is then the next one, and one
search serves both directions.
"""

from calendar import isleap
from collections.abc import Iterable
from datetime import date
from functools import lru_cache

from gnomon.core.cron.fields import Field, Fields
from gnomon.core.instants import DAY_SECONDS

BLOCK = 128
#: The blocks that a rule remembers: of seven centuries, so that the farthest questions do not fill the memory.
_MOST_BLOCKS = 2048
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_DAY = date.min.toordinal() - _EPOCH_ORDINAL
LAST_DAY = date.max.toordinal() - _EPOCH_ORDINAL
#: The lengths of the months of a common year, January first.
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class DayRule:
    """The day, month and weekday fields taken together."""

    def __init__(self, day: Field, month: Field, weekday: Field, *, either: bool) -> None:
        self._day = day
        self._months = month.values
        self._weekday = weekday
        self._either = either
        self._masks: dict[tuple[int, int], int] = {}

    def fires_at_all(self) -> bool:
        """Whether any month of the 400-year cycle has a matching day.

        Over the cycle every month begins on every weekday, in each length it can have.
        """
        lengths = {MONTH_LENGTHS[month - 1] for month in self._months} | ({29} if 2 in self._months else set())
        return any(self.mask(first, length) for length in lengths for first in range(7))

    def days_in(self, year: int, month: int) -> int:
        """The matching days of a month: bit `d` stands for day `d`."""
        if month not in self._months:
            return 0
        return self.mask(date(year, month, 1).isoweekday() % 7, _length(year, month))

    def count(self, first: int, last: int) -> int:
        """How many days match from day `first` up to, but without, day `last`."""
        first, last = max(first, FIRST_DAY), min(last, LAST_DAY + 1)
        total = 0
        while first < last:
            on = date.fromordinal(first + _EPOCH_ORDINAL)
            end = min(last, first - on.day + 1 + _length(on.year, on.month))
            days = self.days_in(on.year, on.month)
            total += (days >> on.day & ((1 << end - first) - 1)).bit_count()
            first = end
        return total

    def mask(self, first_weekday: int, length: int) -> int:
        """The matching days of a month of `length` days that begins on `first_weekday` (Sunday is 0)."""
        key = first_weekday, length
        if key not in self._masks:
            by_day = _bits(_by_day(self._day, first_weekday, length))
            by_weekday = _bits(_by_weekday(self._weekday, first_weekday, length))
            self._masks[key] = by_day | by_weekday if self._either else by_day & by_weekday
        return self._masks[key]


def _bits(days: Iterable[int]) -> int:
    return sum(1 << day for day in days)


def _by_day(field: Field, first_weekday: int, length: int) -> set[int]:
    days = {day for day in field.values if day <= length}
    if "L" in field.tokens:
        days.add(length)
    if "LW" in field.tokens:
        last_weekday = (first_weekday + length - 1) % 7
        days.add(length - {0: 2, 6: 1}.get(last_weekday, 0))
    return days


def _by_weekday(field: Field, first_weekday: int, length: int) -> set[int]:
    days = set()
    for day in range(1, length + 1):
        weekday = (first_weekday + day - 1) % 7
        names = {f"{weekday}#{(day + 6) // 7}"} | ({f"{weekday}L"} if day + 7 > length else set())
        if weekday in field.values or names & field.tokens:
            days.add(day)
    return days


class DayBlocks(dict[int, bytes]):
    """Block number to block. `blocks[n >> 7][n & 127]` is the distance in days from day `n` to the next match.

    A distance that leaves the block leads to the first day of the next block: look again there.
    """

    def __init__(self, rule: DayRule, *, mirrored: bool) -> None:
        super().__init__()
        self._rule = rule
        self._mirrored = mirrored

    def __missing__(self, number: int) -> bytes:
        matching = self._matching(~number if self._mirrored else number)
        distances = bytearray(BLOCK)
        distance = 0
        for offset in reversed(range(BLOCK)):
            place = BLOCK - 1 - offset if self._mirrored else offset
            distance = 0 if matching >> place & 1 else distance + 1
            distances[offset] = distance
        block = bytes(distances)
        if len(self) >= _MOST_BLOCKS:
            self.clear()
        self[number] = block
        return block

    def _matching(self, number: int) -> int:
        """The matching days of a block of the real calendar: bit 0 is its first day."""
        first = number * BLOCK
        bits = 0
        day = max(first, FIRST_DAY)
        while day <= min(first + BLOCK - 1, LAST_DAY):
            on = date.fromordinal(day + _EPOCH_ORDINAL)
            month_begins = day - on.day + 1
            # Bit 1 of the mask is the 1st of the month.
            shift = month_begins - 1 - first
            days = self._rule.days_in(on.year, on.month)
            bits |= days << shift if shift >= 0 else days >> -shift
            day = month_begins + _length(on.year, on.month)
        return bits & ((1 << BLOCK) - 1)


def _length(year: int, month: int) -> int:
    return MONTH_LENGTHS[month - 1] + (month == 2 and isleap(year))


def day_rule(fields: Fields) -> DayRule:
    """The rule of an expression's day fields; equal day fields share one."""
    return _day_rule(fields.day, fields.month, fields.weekday, either=fields.either_day)


@lru_cache(maxsize=4096)
def _day_rule(day: Field, month: Field, weekday: Field, *, either: bool) -> DayRule:
    return DayRule(day, month, weekday, either=either)


@lru_cache(maxsize=4096)
def day_blocks(rule: DayRule, *, mirrored: bool) -> DayBlocks:
    """The blocks of a rule, walked forwards, or backwards when `mirrored`."""
    return DayBlocks(rule, mirrored=mirrored)


# ---- seconds of wall time ------------------------------------------------------------------------

#: Later than any second of the calendar.
NEVER = 1 << 60


class FireTimeFinder:
    """Finds the matching seconds of wall time in one direction."""

    __slots__ = (
        "_blocks",
        "_first_in_day",
        "_first_in_hour",
        "_first_second",
        "_hours",
        "_last_day",
        "_minutes",
        "_seconds",
    )

    def __init__(self, fields: Fields, *, mirrored: bool) -> None:
        self._seconds = _table(fields.second.values, 60, mirrored=mirrored)
        self._minutes = _table(fields.minute.values, 60, mirrored=mirrored)
        self._hours = _table(fields.hour.values, 24, mirrored=mirrored)
        self._first_second = self._seconds[0]
        self._first_in_hour = self._minutes[0] * 60 + self._first_second
        self._first_in_day = self._hours[0] * 3600 + self._first_in_hour
        self._blocks = day_blocks(day_rule(fields), mirrored=mirrored)
        self._last_day = ~FIRST_DAY if mirrored else LAST_DAY

    def first_from(self, day: int, second: int) -> int:
        """The first matching second of wall time at or after `second` of `day`; NEVER if the calendar has none.

        `second` may lie outside the day. Day and second are separate arguments because CPython is twice as fast
        on numbers below 2**30, which a count of seconds since 1970 exceeds.
        """
        if not 0 <= second < 86400:
            shift = second // 86400
            day += shift
            second -= shift * 86400
        blocks = self._blocks
        ahead = blocks[day >> 7][day & 127]
        if not ahead:
            hour = second // 3600
            next_hour = self._hours[hour]
            if next_hour == hour:
                second -= hour * 3600
                minute = second // 60
                second = self._seconds[second - minute * 60]
                if second == 60:
                    minute += 1
                    second = self._first_second
                next_minute = self._minutes[minute]
                if next_minute < 60:
                    if next_minute > minute:
                        second = self._first_second
                    return day * 86400 + hour * 3600 + next_minute * 60 + second
                next_hour = self._hours[hour + 1]
            if next_hour < 24:
                return day * 86400 + next_hour * 3600 + self._first_in_hour
            day += 1
            ahead = blocks[day >> 7][day & 127]
        while ahead:
            day += ahead
            if day > self._last_day:
                return NEVER
            ahead = blocks[day >> 7][day & 127]
        return day * 86400 + self._first_in_day


def count_wall_times(fields: Fields, start: int, end: int) -> int:
    """How many seconds of wall time match from `start` up to, but without, `end`."""
    if start >= end:
        return 0
    rule = day_rule(fields)
    first, last = start // DAY_SECONDS, end // DAY_SECONDS
    a_day = len(fields.hour.values) * len(fields.minute.values) * len(fields.second.values)
    head = _times_before(fields, start - first * DAY_SECONDS) if rule.count(first, first + 1) else 0
    tail = _times_before(fields, end - last * DAY_SECONDS) if rule.count(last, last + 1) else 0
    return rule.count(first, last) * a_day + tail - head


def _times_before(fields: Fields, second: int) -> int:
    """How many matching times of day come before `second`."""
    hour, rest = divmod(second, 3600)
    minute, rest = divmod(rest, 60)
    hours, minutes, seconds = fields.hour.values, fields.minute.values, fields.second.values
    count = sum(1 for value in hours if value < hour) * len(minutes) * len(seconds)
    if hour in hours:
        count += sum(1 for value in minutes if value < minute) * len(seconds)
        if minute in minutes:
            count += sum(1 for value in seconds if value < rest)
    return count


@lru_cache(maxsize=4096)
def fire_time_finder(fields: Fields, *, mirrored: bool) -> FireTimeFinder:
    """The finder for these fields; equal fields share one."""
    return FireTimeFinder(fields, mirrored=mirrored)


@lru_cache(maxsize=4096)
def _table(values: frozenset[int], size: int, *, mirrored: bool) -> tuple[int, ...]:
    """For each number up to `size`: the first of `values` at or after it, or `size` if there is none."""
    present = {size - 1 - value for value in values} if mirrored else values
    table = [size] * (size + 1)
    for number in reversed(range(size)):
        table[number] = number if number in present else table[number + 1]
    return tuple(table)
