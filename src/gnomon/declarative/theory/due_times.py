"""The due times of a task, found by testing every minute. It shares no code with the scheduler."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
_DAY_MS = 1440 * MINUTE_MS
_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_FIELD = re.compile(r"\*|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronRule:
    """A strict cron expression, parsed in the simplest way; ValueError if it is invalid."""

    def __init__(self, expression: str) -> None:
        words = [word for word in re.split(r"[ \t]+", expression) if word]
        if len(words) != len(_LIMITS) or not all(_FIELD.fullmatch(word) for word in words):
            raise ValueError(expression)
        read = zip(words, _LIMITS, strict=True)
        self.minutes, self.hours, self.days, self.months, self.weekdays = (_numbers(*pair) for pair in read)
        self.any_day, self.any_weekday = words[2] == "*", words[4] == "*"
        if self.any_weekday and not any(min(self.days) <= _LONGEST_MONTH[month - 1] for month in self.months):
            raise ValueError(expression)

    def on(self, day: int, month: int, weekday: int) -> bool:
        """Whether the day matches the expression."""
        if month not in self.months:
            return False
        if self.any_day or self.any_weekday:
            return day in self.days and weekday in self.weekdays
        return day in self.days or weekday in self.weekdays


def _numbers(word: str, limits: tuple[int, int]) -> frozenset[int]:
    low, high = limits
    if word == "*":
        return frozenset(range(low, high + 1))
    found: set[int] = set()
    for part in word.split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        if not low <= start <= end <= high:
            raise ValueError(word)
        found |= set(range(start, end + 1))
    return frozenset(found)


@lru_cache(maxsize=1024)
def parse_rule(expression: str) -> CronRule:
    """The rule of the expression."""
    return CronRule(expression)


def is_valid(expression: str) -> bool:
    """Whether the expression is valid and has any occurrence."""
    try:
        parse_rule(expression)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=64)
def _minutes(zone: str, start: int) -> list[tuple[int, int, int, tuple[int, int, int]]]:
    """Every minute of a day that begins at `start`: instant, minute, hour, and day, month, weekday."""
    rules, found = ZoneInfo(zone), []
    for at in range(start, start + _DAY_MS, MINUTE_MS):
        wall = datetime.fromtimestamp(at // 1000, UTC).astimezone(rules)
        found.append((at, wall.minute, wall.hour, (wall.day, wall.month, wall.isoweekday() % 7)))
    return found


@lru_cache(maxsize=8192)
def _due_minutes(expression: str, zone: str, start: int) -> list[int]:
    rule = parse_rule(expression)
    minutes = _minutes(zone, start)
    days = {day for _, _, _, day in minutes if rule.on(*day)}
    if not days:
        return []
    return [at for at, minute, hour, day in minutes if minute in rule.minutes and hour in rule.hours and day in days]


def first_due(expression: str, zone: str, *, after: int, until: int) -> int | None:
    """The first instant after `after`, and not after `until`, at which a matching civil minute begins."""
    for start in range((after + 1) // _DAY_MS * _DAY_MS, until + 1, _DAY_MS):
        for at in _due_minutes(expression, zone, start):
            if after < at <= until:
                return at
    return None


def minute_matches(expression: str, zone: str, at: int) -> bool:
    """Whether the civil minute that contains `at` matches."""
    return first_due(expression, zone, after=at - MINUTE_MS, until=at) is not None
