"""OnCalendar: the times of systemd's timers as cron says them, or as one instant, or refused with a reason."""

import re

from msgspec import Struct

from gnomon.errors import FieldError

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_WEEKDAY_LIST = re.compile(r"[A-Za-z]+(?:(?:\.\.|-)[A-Za-z]+)?(?:,[A-Za-z]+(?:(?:\.\.|-)[A-Za-z]+)?)*,?")
_DATE = re.compile(r"(?:(?P<year>[^-~]+)-)?(?P<month>[^-~]+)(?P<sign>[-~])(?P<day>[^-~]+)")
_ELEMENT = re.compile(r"(\*|[0-9]{1,4})(?:\.\.([0-9]{1,4}))?(?:/([0-9]{1,4}))?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
#: The days of a month in which its first, second, third and fourth of each weekday lie.
_WEEKS = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4}
_LAST_WEEK = "7/1"
_LONGEST = 300


class Times(Struct, frozen=True):
    """When something fires: by cron, or once."""

    schedule: str | None
    at: str | None = None
    timezone: str | None = None


class _Parts(Struct, frozen=True):
    """The parts of an expression, each as it is written; the weekdays as numbers."""

    weekdays: tuple[int, ...]
    year: str
    month: str
    day: str
    #: Whether the day is counted from the end of the month.
    from_end: bool
    time: str
    timezone: str | None


def read_calendar(text: str) -> Times:
    """The times that are meant; FieldError if cron cannot say them."""
    if len(text) > _LONGEST:
        raise _refused(text[:_LONGEST], "is too long")
    parts = _parts(text)
    hour, minute, second = _clock(text, parts.time)
    month = _field(text, parts.month)
    if parts.year == "*":
        day, weekday = _days(text, parts)
        fields = [minute, hour, day, month, weekday]
        return Times(" ".join(fields if second == "0" else [second, *fields]), timezone=parts.timezone)
    fixed = (parts.year, month, parts.day, hour, minute, second)
    if parts.weekdays or parts.from_end or not all(field.isdecimal() for field in fixed):
        raise _refused(text, "names a year, and cron has none")
    numbers = [int(field) for field in fixed]
    at = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*numbers)
    return Times(None, at, parts.timezone)


def _parts(text: str) -> _Parts:
    words = text.split()
    if not words:
        raise _refused(text, "is empty")
    if words[0].lower() in _SHORTHANDS:
        words = [*_SHORTHANDS[words[0].lower()].split(), *words[1:]]
    weekdays: tuple[int, ...] = ()
    if _WEEKDAY_LIST.fullmatch(words[0]) and words[0][:3].lower() in {day[:3] for day in _WEEKDAYS}:
        weekdays = _weekdays(text, words.pop(0))
    zone = words.pop() if words and _ZONE.fullmatch(words[-1]) else None
    date = words.pop(0) if words and ("-" in words[0] or "~" in words[0]) else "*-*-*"
    time = words.pop(0) if words and ":" in words[0] else "00:00:00"
    found = _DATE.fullmatch(date)
    if words or found is None:
        raise _refused(text, "is no expression such as Mon..Fri *-*-* 02:00:00")
    return _Parts(weekdays, found["year"] or "*", found["month"], found["day"], found["sign"] == "~", time, zone)


def _weekdays(text: str, said: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in said.rstrip(",").split(","):
        first, _, last = part.replace("..", "-").partition("-")
        low, high = _weekday(text, first), _weekday(text, last or first)
        # It may go on into the next week.
        found |= {(low + step) % 7 for step in range((high - low) % 7 + 1)}
    return tuple(sorted(found))


def _weekday(text: str, name: str) -> int:
    for number, known in enumerate(_WEEKDAYS):
        if name.lower() in (known, known[:3]):
            return number
    raise _refused(text, f"has {name}, which is no weekday")


def _clock(text: str, time: str) -> tuple[str, str, str]:
    parts = time.split(":")
    if len(parts) not in (2, 3):
        raise _refused(text, f"has the time {time}, which is neither HH:MM nor HH:MM:SS")
    hour, minute, second = (*parts, "0")[:3]
    if re.search(r"[0-9]\.[0-9]", second):
        raise _refused(text, "has parts of seconds, and cron has none")
    return _field(text, hour), _field(text, minute), _field(text, second)


def _days(text: str, parts: _Parts) -> tuple[str, str]:
    """The day and the weekday of cron. systemd wants both to match; cron, if both are said, one of them."""
    weekday = _numbers(parts.weekdays)
    day = parts.day if parts.from_end else _field(text, parts.day)
    single = len(parts.weekdays) == 1
    if parts.from_end:
        if single and day.lstrip("0") == _LAST_WEEK:
            return "*", f"{weekday}L"
        if day.lstrip("0") == "1" and weekday == "*":
            return "L", "*"
        raise _refused(text, "counts days from the end of the month, and cron knows only the last")
    if weekday == "*" or day.startswith("*"):
        return day, weekday
    if single and day in _WEEKS:
        return "*", f"{weekday}#{_WEEKS[day]}"
    raise _refused(text, "names days and weekdays, which must both match: cron would take either")


def _numbers(weekdays: tuple[int, ...]) -> str:
    if len(weekdays) in (0, 7):
        return "*"
    if len(weekdays) > 2 and weekdays == tuple(range(weekdays[0], weekdays[-1] + 1)):
        return f"{weekdays[0]}-{weekdays[-1]}"
    return ",".join(map(str, weekdays))


def _field(text: str, said: str) -> str:
    """A list of values, ranges and steps as cron writes it."""
    found = []
    for part in said.split(","):
        element = _ELEMENT.fullmatch(part)
        if element is None or (element[1] == "*" and element[2]):
            raise _refused(text, f"has {part}, which is no value, range or step")
        first = element[1] if element[1] == "*" else str(int(element[1]))
        last = f"-{int(element[2])}" if element[2] else ""
        step = f"/{int(element[3])}" if element[3] else ""
        found.append(first + last + step)
    return ",".join(found)


def _refused(text: str, reason: str) -> FieldError:
    return FieldError("OnCalendar", text, reason)
