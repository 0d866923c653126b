"""The names of days, months and numbers, shared by the parser and by `describe`."""

from collections.abc import Sequence

from gnomon.core.cron.calendar import MONTH_LENGTHS as COMMON_LENGTHS
from gnomon.core.cron.fields import MONTHS, WEEKDAYS

__all__ = ["MONTHS", "MONTH_LENGTHS", "NUMBERS", "ORDINALS", "WEEKDAYS", "joined", "ordinal"]

#: The largest length of each month.
MONTH_LENGTHS = tuple(max(length, 29) for length in COMMON_LENGTHS)
ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)
NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "forty-five": 45,
    "sixty": 60,
    "ninety": 90,
}


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number // 10 == 1 else suffix}"


def joined(parts: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"
