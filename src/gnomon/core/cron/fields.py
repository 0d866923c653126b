"""The fields of a cron expression as sets of numbers, the helpers both dialects parse with, and CronParseError."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

_WORD = re.compile(r"[^ \t]+")

#: By cron's numbers: January is 1, Sunday is 0. Three letters of a name tell it from the others.
MONTHS = tuple("January February March April May June July August September October November December".split())
WEEKDAYS = tuple("Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split())


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """One of the six fields: its name, its range and the names it accepts for numbers."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)


SECOND = FieldKind("second", 0, 59)
MINUTE = FieldKind("minute", 0, 59)
HOUR = FieldKind("hour", 0, 23)
DAY = FieldKind("day", 1, 31)
MONTH = FieldKind("month", 1, 12, {name[:3].upper(): i for i, name in enumerate(MONTHS, 1)})
WEEKDAY = FieldKind("weekday", 0, 7, {name[:3].upper(): i for i, name in enumerate(WEEKDAYS)})
#: POSIX has no 7 for Sunday and no names.
POSIX_WEEKDAY = FieldKind("weekday", 0, 6)


@dataclass(frozen=True, slots=True)
class Field:
    """The values that one field admits, Sunday always as 0."""

    values: frozenset[int]
    #: The text begins with `*`. Debian gives that a meaning beyond the values: see `Fields`.
    starred: bool = False
    #: Days that no number can express: `L`, `LW` (day); `5L`, `1#2` (weekday), Sunday as 0.
    tokens: frozenset[str] = frozenset()

    def full(self, kind: FieldKind) -> bool:
        """Whether every value of the field is admitted."""
        return len(self.values) == (7 if kind.name == "weekday" else kind.high - kind.low + 1)


@dataclass(frozen=True, slots=True)
class Fields:
    """A whole expression, field by field."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def fixed(self) -> bool:
        """Whether the expression names times of day; if not, it follows elapsed time through clock changes.

        Debian looks at the first character of minute and hour. Here the second field counts too, so that
        `30 2 * * *` and `0 30 2 * * *` behave alike.
        """
        return not (self.second.starred or self.minute.starred or self.hour.starred)

    @property
    def either_day(self) -> bool:
        """True if a date matches when either day of month or weekday matches; False if both must match."""
        return not (self.day.starred or self.weekday.starred)


#: The second field of an expression with five fields.
ON_THE_MINUTE = Field(frozenset({0}))


class CronParseError(Exception):
    """An error at a place in the text that was read. `Cron` turns it into a CronError before it leaves this package."""

    def __init__(
        self, reason: str, *, text: str, start: int = 0, instead: str | None = None, field: str = "expression"
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.start = start
        #: A valid replacement for `text`, if there is an obvious one.
        self.instead = instead
        self.field = field

    def within(self, *, start: int, field: str | None = None) -> "CronParseError":
        """The same error, placed in the larger text in which this one begins at `start`."""
        return CronParseError(
            self.reason,
            text=self.text,
            start=self.start + start,
            instead=self.instead,
            field=field or self.field,
        )


def split_fields(expression: str) -> list[re.Match[str]]:
    """The words of an expression, separated by spaces and tabs and by nothing else."""
    return list(_WORD.finditer(expression))


def read_words(
    words: Iterable[re.Match[str]], kinds: Iterable[FieldKind], read: Callable[[FieldKind, str], Field]
) -> Fields:
    """Parse each word with `read` as the field at its position; five words mean second 0."""
    fields = []
    for kind, word in zip(kinds, words, strict=True):
        try:
            fields.append(read(kind, word[0]))
        except CronParseError as error:
            raise error.within(start=word.start(), field=kind.name) from None
    return Fields(*fields) if len(fields) == 6 else Fields(ON_THE_MINUTE, *fields)


def read_list(text: str, read: Callable[[str], T]) -> Iterator[T]:
    """Parse each element of a comma-separated list with `read`."""
    start = 0
    for element in text.split(","):
        try:
            yield read(element)
        except CronParseError as error:
            raise error.within(start=start) from None
        start += len(element) + 1


def number_in(kind: FieldKind, digits: str, *, text: str) -> int:
    """The value of ASCII `digits`, if it is in the range of the field; if not, the error marks `text`."""
    value = int(digits[-9:]) if not digits[:-9].strip("0") else kind.high + 1
    if kind.low <= value <= kind.high:
        return value
    shown = digits if len(digits) <= 9 else f"a number of {len(digits)} digits"
    raise CronParseError(f"has {shown}, which is out of range {kind.low}-{kind.high}", text=text)


def reversed_range_error(kind: FieldKind, text: str, start: int, end: int, step: int = 1) -> CronParseError:
    """The error of a range whose start is after its end; it offers the wrapped-around values as a list."""
    size = 7 if kind.name == "weekday" else kind.high - kind.low + 1
    values = range(start, start + (end - start) % size + 1, step)
    instead = format_values({(value - kind.low) % size + kind.low for value in values})
    return CronParseError(f'has the range "{text}", whose start is after its end', text=text, instead=instead)


def format_values(values: Iterable[int]) -> str:
    """The numbers as a cron list, three or more in a row as a range."""
    return ",".join(format_ranges(values, str, "-"))


def format_ranges(values: Iterable[int], name: Callable[[int], str], through: str) -> list[str]:
    """The names of values in order, three and more in a row as first and last."""
    parts: list[str] = []
    for start, end in _runs(values):
        if end - start > 1:
            parts.append(f"{name(start)}{through}{name(end)}")
        else:
            parts += [name(value) for value in range(start, end + 1)]
    return parts


def _runs(values: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last number of every run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for value in sorted(values):
        if found and value == found[-1][1] + 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found
