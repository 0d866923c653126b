"""Finding the next matching second of wall time: three small tables for the time of day, one for the days.

Wall time is a plain count of seconds, as if every day had 86,400 of them and no clock were ever changed.
To walk backwards the numbers are mirrored (`~n`), as in `days`.
"""

from functools import lru_cache

from gnomon.core.cron.days import FIRST_DAY, LAST_DAY, DayBlocks, day_blocks, day_rule
from gnomon.core.cron.fields import Fields
from gnomon.core.instants import DAY_SECONDS

#: Later than any second there is.
NEVER = 1 << 60


class Wheel:
    """The matching seconds of wall time, walked one way."""

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
        self._blocks = _blocks(fields, mirrored=mirrored)
        self._last_day = ~FIRST_DAY if mirrored else LAST_DAY

    def first_from(self, day: int, second: int) -> int:
        """The first matching second of wall time from `second` of `day` on; NEVER past the calendar's end.

        `second` may lie outside the day. Day and second come apart because CPython is twice as fast on
        numbers below 2**30, which a count of seconds since 1970 no longer is.
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


def count_walls(fields: Fields, start: int, end: int) -> int:
    """How many seconds of wall time match from `start` up to, but without, `end`."""
    if start >= end:
        return 0
    rule = day_rule(fields.day, fields.month, fields.weekday, either=fields.either_day)
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
def wheel(fields: Fields, *, mirrored: bool) -> Wheel:
    """The wheel for these fields; equal fields share one."""
    return Wheel(fields, mirrored=mirrored)


@lru_cache(maxsize=4096)
def _table(values: frozenset[int], size: int, *, mirrored: bool) -> tuple[int, ...]:
    """For each number up to `size`: the first of `values` at or after it, or `size` if there is none."""
    present = {size - 1 - value for value in values} if mirrored else values
    table = [size] * (size + 1)
    for number in reversed(range(size)):
        table[number] = number if number in present else table[number + 1]
    return tuple(table)


def _blocks(fields: Fields, *, mirrored: bool) -> DayBlocks:
    rule = day_rule(fields.day, fields.month, fields.weekday, either=fields.either_day)
    return day_blocks(rule, mirrored=mirrored)
