"""The syntax of systemd: calendar expressions (`OnCalendar`), time spans, unit files and command lines.

A calendar expression becomes cron or one instant; one that cron cannot express is refused with a reason.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct

from gnomon.core.cron.fields import WEEKDAYS
from gnomon.core.importers.report import double_quoted
from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.errors import FieldError

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
#: The days of a month on which its first, second, third and fourth of each weekday fall.
_WEEKS = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4}
_LAST_WEEK = "7/1"
_LONGEST = 300


class CalendarTimes(Struct, frozen=True):
    """The times of a timer: a cron expression, or one instant."""

    schedule: str | None
    at: str | None = None
    timezone: str | None = None


class _Parts(Struct, frozen=True):
    """The parts of an expression as text; the weekdays as numbers."""

    weekdays: tuple[int, ...]
    year: str
    month: str
    day: str
    #: Whether the day is counted from the end of the month.
    from_end: bool
    time: str
    timezone: str | None


def read_calendar(text: str) -> CalendarTimes:
    """The times of an expression; raise FieldError if cron cannot express them."""
    if len(text) > _LONGEST:
        raise _refused(text[:_LONGEST], "is too long")
    parts = _parts(text)
    hour, minute, second = _clock(text, parts.time)
    month = _field(text, parts.month)
    if parts.year == "*":
        day, weekday = _days(text, parts)
        fields = [minute, hour, day, month, weekday]
        return CalendarTimes(" ".join(fields if second == "0" else [second, *fields]), timezone=parts.timezone)
    fixed = (parts.year, month, parts.day, hour, minute, second)
    if parts.weekdays or parts.from_end or not all(field.isdecimal() for field in fixed):
        raise _refused(text, "names a year, and cron has none")
    numbers = [int(field) for field in fixed]
    at = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*numbers)
    return CalendarTimes(None, at, parts.timezone)


def _parts(text: str) -> _Parts:
    words = text.split()
    if not words:
        raise _refused(text, "is empty")
    if words[0].lower() in _SHORTHANDS:
        words = [*_SHORTHANDS[words[0].lower()].split(), *words[1:]]
    weekdays: tuple[int, ...] = ()
    if _WEEKDAY_LIST.fullmatch(words[0]) and words[0][:3].lower() in {day[:3].lower() for day in WEEKDAYS}:
        weekdays = _weekdays(text, words.pop(0))
    zone = words.pop() if words and _ZONE.fullmatch(words[-1]) else None
    date = words.pop(0) if words and ("-" in words[0] or "~" in words[0]) else "*-*-*"
    time = words.pop(0) if words and ":" in words[0] else "00:00:00"
    found = _DATE.fullmatch(date)
    if words or found is None:
        raise _refused(text, "is no expression such as Mon..Fri *-*-* 02:00:00")
    return _Parts(weekdays, found["year"] or "*", found["month"], found["day"], found["sign"] == "~", time, zone)


def _weekdays(text: str, names: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in names.rstrip(",").split(","):
        first, _, last = part.replace("..", "-").partition("-")
        low, high = _weekday(text, first), _weekday(text, last or first)
        # A range may wrap around the end of the week.
        found |= {(low + step) % 7 for step in range((high - low) % 7 + 1)}
    return tuple(sorted(found))


def _weekday(text: str, name: str) -> int:
    for number, known in enumerate(WEEKDAYS):
        if name.lower() in (known.lower(), known[:3].lower()):
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
    """The day and the weekday of cron. systemd requires both to match; cron, if both are restricted, only one."""
    weekday = _numbers(parts.weekdays)
    day = parts.day if parts.from_end else _field(text, parts.day)
    single = len(parts.weekdays) == 1
    if parts.from_end:
        if single and day.lstrip("0") == _LAST_WEEK:
            return "*", f"{weekday}L"
        if day.lstrip("0") == "1" and weekday == "*":
            return "L", "*"
        raise _refused(text, "counts days from the end of the month, and cron has only the last")
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


def _field(text: str, part_text: str) -> str:
    """A list of values, ranges and steps as cron writes it."""
    found = []
    for part in part_text.split(","):
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


# ---- spans ---------------------------------------------------------------------------------------

_HOUR_MS = 60 * MINUTE_MS
_UNITS = {
    **dict.fromkeys(("ms", "msec"), 1),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), SECOND_MS),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE_MS),
    **dict.fromkeys(("h", "hr", "hour", "hours"), _HOUR_MS),
    **dict.fromkeys(("d", "day", "days"), DAY_MS),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY_MS),
    # In systemd a year has 365.25 days, and a month is a twelfth of it.
    **dict.fromkeys(("M", "month", "months"), 1461 * DAY_MS // 48),
    **dict.fromkeys(("y", "year", "years"), 1461 * DAY_MS // 4),
}
_PART = re.compile(r"\s*([0-9]{1,9})(\.[0-9]{1,6})?\s*([A-Za-z]*)")
_LONGEST_TEXT = 200


def span_ms(field: str, text: str) -> int | None:
    """The span in milliseconds; None for `infinity`."""
    text = text.strip()
    if text == "infinity":
        return None
    place, total = 0, 0.0
    while place < len(text):
        part = _PART.match(text, place) if len(text) <= _LONGEST_TEXT else None
        if part is None or part[3] not in _UNITS:
            raise FieldError(field, text, "is no span such as 5min 20s")
        total += float(part[1] + (part[2] or "")) * _UNITS[part[3]]
        place = part.end()
    if not text:
        raise FieldError(field, text, "is empty")
    return round(total)


# ---- unit files and command lines ----------------------------------------------------------------

_PREFIXES = re.compile(r"[-@:+!|]*")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_ESCAPED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SPECIFIER = re.compile(r"%(.?)", re.DOTALL)
_LAST_CHARACTER = 0x10FFFF


class SystemdUnit:
    """The keys and values of a unit file."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._values: dict[str, list[tuple[str, str]]] = {}
        section = ""
        for line in _lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1].strip()
            elif "=" in line:
                key, _, value = line.partition("=")
                self._values.setdefault(section, []).append((key.strip(), value.strip()))

    def all(self, section: str, key: str) -> list[str]:
        """Every value of a key. An empty value resets those before it."""
        values = [value for name, value in self._values.get(section, ()) if name == key]
        if "" in values:
            values = values[len(values) - values[::-1].index("") :]
        return values

    def last(self, section: str, key: str, default: str = "") -> str:
        """The last value of a key, which is the valid one."""
        return next(reversed(self.all(section, key)), default)

    def yes(self, section: str, key: str) -> bool:
        """Whether the key is set to a true value."""
        return self.last(section, key).lower() in ("1", "yes", "y", "true", "t", "on")

    def keys(self, section: str) -> list[str]:
        """The keys of a section that have a value, each once."""
        return list(dict.fromkeys(key for key, value in self._values.get(section, ()) if value))

    def expand_specifiers(self, field: str, text: str) -> str:
        """The text with its specifiers, such as %n, expanded."""
        prefix, _, _ = self.name.rpartition(".")
        stem, _, instance = prefix.partition("@")
        known = {"%": "%", "n": self.name, "N": prefix, "p": stem, "i": instance, "I": instance}

        def value(found: re.Match[str]) -> str:
            if found[1] not in known:
                raise FieldError(field, text, f"has {found[0]}, which only systemd can fill in")
            return known[found[1]]

        return _SPECIFIER.sub(value, text)


def _lines(text: str) -> Iterator[str]:
    """The lines without comments, continuation lines joined."""
    pending = ""
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = raw.strip()
        if line.startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield (pending + line).strip()
        pending = ""
    yield pending.strip()


def words_of(field: str, text: str) -> list[str]:
    """The words of a line, without their quotes and escapes. An escaped ; is marked by a NUL before it."""
    words: list[str] = []
    current, quote, begun, place = "", "", False, 0
    while place < len(text):
        letter = text[place]
        place += 1
        if letter == "\\" and quote != "'":
            piece, place = _unescaped(field, text, place)
            current, begun = current + ("\0;" if piece == ";" and not current else piece), True
        elif quote or letter in "\"'":
            if not quote:
                quote, begun = letter, True
            elif letter == quote:
                quote = ""
            else:
                current += letter
        elif letter.isspace():
            words += [current] if begun else []
            current, begun = "", False
        else:
            current, begun = current + letter, True
    if quote:
        raise FieldError(field, text, "has a quote that does not end")
    return [*words, current] if begun else words


def _unescaped(field: str, text: str, place: int) -> tuple[str, int]:
    letter = text[place : place + 1]
    if letter in _ESCAPES and letter:
        return _ESCAPES[letter], place + 1
    found = _ESCAPED.match(text, place)
    if found is None:
        return letter or "\\", place + 1
    code = int(found[4], 8) if found[4] else int(found[1] or found[2] or found[3], 16)
    if not 0 < code <= _LAST_CHARACTER:
        raise FieldError(field, text, "has an escape that is no character")
    return chr(code), found.end()


def assignments_of(field: str, lines: list[str]) -> Mapping[str, str]:
    """The variables that the lines assign."""
    found: dict[str, str] = {}
    for line in lines:
        for word in words_of(field, line):
            name, equals, value = word.partition("=")
            if not equals:
                raise FieldError(field, word, "is no assignment")
            found[name] = value
    return found


def shell_command(field: str, line: str) -> tuple[str, str]:
    """The shell command that does what systemd would do with this line, and the special prefixes of the line."""
    words = words_of(field, line)
    if not words:
        raise FieldError(field, line, "is empty")
    marks = _PREFIXES.match(words[0])
    prefixes = marks[0] if marks else ""
    words[0] = words[0][len(prefixes) :]
    if "@" in prefixes:
        # The second word is only argv[0] of the program.
        del words[1:2]
    commands: list[list[str]] = [[]] if words[0] else []
    for word in words:
        if word == ";":
            commands.append([])
        elif commands:
            commands[-1].append(_for_shell(word.replace("\0", ""), expand=":" not in prefixes))
    lines = [" ".join(command) for command in commands if command]
    if not lines:
        raise FieldError(field, line, "names no program")
    text = " && ".join(lines)
    return f"{{ {text} || :; }}" if "-" in prefixes else text, prefixes.replace("-", "").replace(":", "")


def _for_shell(word: str, *, expand: bool) -> str:
    if not expand or not (_VARIABLE.search(word) or _BARE_VARIABLE.fullmatch(word)):
        return shlex.quote(word)
    if _BARE_VARIABLE.fullmatch(word):
        # As a word of its own it is split at blanks, in systemd as in the shell.
        return word
    return double_quoted(word, _VARIABLE, lambda found: found[0] if found[1] else "\\$")
