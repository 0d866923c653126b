"""An independent cron oracle: it tests every wall time, one after the other. It shares no code with Gnomon."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

_NAMES = {
    **{name: number for number, name in enumerate("SUN MON TUE WED THU FRI SAT".split())},
    **{name: number for number, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), 1)},
}
_LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
}


class Expression:
    """A cron expression, parsed in the simplest way."""

    def __init__(self, text: str) -> None:
        words = text.upper().split()
        if len(words) == 5:
            words = ["0", *words]
        self.words = dict(zip(_LIMITS, words, strict=True))
        self.allowed = {name: set(_expand(name, word)) for name, word in self.words.items()}

    @property
    def names_times_of_day(self) -> bool:
        """Whether the gap and fold policies apply: second, minute and hour are all fixed."""
        return not any(self.words[name].startswith("*") for name in ("second", "minute", "hour"))

    def matches(self, wall: datetime) -> bool:
        """Whether the wall time matches the expression."""
        return (
            wall.second in self.allowed["second"]
            and wall.minute in self.allowed["minute"]
            and wall.hour in self.allowed["hour"]
            and wall.month in self.allowed["month"]
            and self._day_matches(wall.date())
        )

    def _day_matches(self, day: date) -> bool:
        last = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        by_day = day.day in self.allowed["day"]
        by_day = by_day or ("L" in self.allowed["day"] and day == last)
        by_day = by_day or ("LW" in self.allowed["day"] and day == _last_workday(last))
        number = day.isoweekday() % 7
        by_weekday = number in self.allowed["weekday"]
        by_weekday = by_weekday or f"{number}#{-(-day.day // 7)}" in self.allowed["weekday"]
        by_weekday = by_weekday or (f"{number}L" in self.allowed["weekday"] and (last - day).days < 7)
        if self.words["day"].startswith("*") or self.words["weekday"].startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday


def _last_workday(day: date) -> date:
    while day.isoweekday() > 5:
        day -= timedelta(days=1)
    return day


def _expand(name: str, word: str) -> Iterator[int | str]:
    for part in word.split(","):
        if part in ("L", "LW"):
            yield part
        elif part[:-1].isdigit() and part.endswith("L"):
            yield f"{_number(part[:-1]) % 7}L"
        elif "#" in part:
            weekday, nth = part.split("#")
            yield f"{_number(weekday) % 7}#{nth}"
        else:
            for value in _numbers(name, part):
                yield value % 7 if name == "weekday" else value


def _numbers(name: str, part: str) -> range:
    low, high = _LIMITS[name]
    body, _, step = part.partition("/")
    if body != "*":
        first, dash, end = body.partition("-")
        low = _number(first)
        high = _number(end) if dash else (high if step else low)
    return range(low, high + 1, int(step or 1))


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)


def scan(
    text: str,
    zone: str,
    start: datetime,
    end: datetime,
    *,
    gap: str = "next",
    fold: str = "first",
    step: int = 60,
) -> list[datetime]:
    """All fire times from `start` inclusive to `end` exclusive; tests one wall time every `step` seconds."""
    expression, rules = Expression(text), ZoneInfo(zone)
    special = expression.names_times_of_day
    tick = timedelta(seconds=step)
    fires: set[datetime] = set()
    seen: set[datetime] = set()
    # Start a day earlier, to know the wall times that the beginning of the window skips or repeats.
    instant = start - timedelta(days=1)
    expected = instant.astimezone(rules).replace(tzinfo=None)
    while instant < end:
        wall = instant.astimezone(rules).replace(tzinfo=None)
        if special and gap == "next" and _any_match(expression, expected, wall, tick):
            fires.add(instant + timedelta(seconds=-wall.second % 60))
        if expression.matches(wall) and not (special and fold == "first" and wall in seen):
            fires.add(instant)
        seen.add(wall)
        instant += tick
        expected = wall + tick
    return sorted(fire.astimezone(UTC) for fire in fires if start <= fire < end)


def _any_match(expression: Expression, skipped: datetime, until: datetime, tick: timedelta) -> bool:
    while skipped < until:
        if expression.matches(skipped):
            return True
        skipped += tick
    return False
