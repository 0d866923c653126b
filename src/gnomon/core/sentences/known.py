"""What people say that no schedule can mean: the pattern, the reason, and what to say in its place."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gnomon.core.sentences.words import ORDINALS

_ZONES = {
    "America/New_York": "et est edt eastern",
    "America/Chicago": "ct cst cdt central",
    "America/Denver": "mt mst mdt mountain",
    "America/Los_Angeles": "pt pst pdt pacific",
    "Europe/London": "bst",
    "Europe/Berlin": "cet cest mez mesz",
    "Europe/Athens": "eet eest",
    "Europe/Lisbon": "wet west",
    "Europe/Moscow": "msk",
    "Asia/Kolkata": "ist",
    "Asia/Tokyo": "jst",
    "Asia/Singapore": "sgt",
    "Australia/Sydney": "aest aedt",
    "UTC": "z zulu",
}
_ZONE_OF = {short: zone for zone, shorts in _ZONES.items() for short in shorts.split()}
_PARTS = {
    "morning": "09:00",
    "afternoon": "14:00",
    "evening": "18:00",
    "night": "22:00",
    "nightly": "02:00",
}
_DAY_NAME = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"


class Known(NamedTuple):
    """A pattern of words; `instead` gives what could stand in its place."""

    pattern: re.Pattern[str]
    reason: str
    instead: Callable[[re.Match[str]], tuple[str, ...]]
    #: Whole sentences to offer when no replacement can be read.
    otherwise: tuple[str, ...] = ()


def _known(pattern: str, reason: str, instead: Callable[[re.Match[str]], tuple[str, ...]], *otherwise: str) -> Known:
    return Known(re.compile(pattern, re.IGNORECASE), reason, instead, otherwise)


def _every_other(found: re.Match[str]) -> tuple[str, ...]:
    unit = found["unit"].lower()
    if re.match(_DAY_NAME, unit):
        return (f"on the first and third {unit.title()} of the month",)
    return (f"every 2 {unit.removesuffix('s')}s",)


def _every_nth(found: re.Match[str]) -> tuple[str, ...]:
    word = found["nth"].lower()
    number = ORDINALS.index(word) + 1 if word in ORDINALS else word[:-2]
    return (f"every {number} {found['unit'].lower()}s",)


def _recurring(found: re.Match[str]) -> tuple[str, ...]:
    day = found["day"]
    return (f"every {day}", f"every {day} at 09:00") if day else ("every day", "every day at 09:00")


def _part_of_day(found: re.Match[str]) -> tuple[str, ...]:
    time = _PARTS[found["part"].lower()]
    return (f"at {time}", f"every day at {time}", "every day", "")


def _hour(found: re.Match[str]) -> tuple[str, ...]:
    digits = found["hour"].zfill(2)
    return (f"{digits[:-2] or digits}:{digits[2:] or '00'}" if len(digits) != 3 else f"0{digits[0]}:{digits[1:]}",)


_COUNTING = "which cron cannot count from one month to the next"
_ONE_TIME = "which names one moment; for that, give an instant such as 2026-12-01T09:00:00+00:00"

KNOWN = (
    _known(
        rf"\bevery\s+(?:other|second|alternate)\s+(?P<unit>{_DAY_NAME}|second|minute|hour|day|week|month|year)s?\b",
        f'has "{{}}", {_COUNTING}',
        _every_other,
        "every 2 weeks",
    ),
    _known(
        rf"\bevery\s+(?P<nth>\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)})\s+(?P<unit>second|minute|hour|day|week|month)\b",
        f'has "{{}}", {_COUNTING}',
        _every_nth,
        "every 2 weeks",
    ),
    _known(
        r"\b(?:bi-?weekly|fortnightly|every\s+fortnight|semi-?weekly)\b",
        f'has "{{}}", {_COUNTING}',
        lambda _: ("every 2 weeks",),
        "every 2 weeks",
    ),
    _known(
        r"\b(?:bi-?monthly|semi-?monthly)\b",
        'has "{}", which may mean twice a month or every two months',
        lambda _: ("on the 1st and 15th of the month", "every 2 months"),
    ),
    _known(
        r"\b(?:bi-?annually|semi-?annually|bi-?yearly)\b",
        'has "{}", which may mean twice a year or every two years',
        lambda _: ("every 6 months",),
    ),
    _known(
        rf"\b(?:the\s+)?(?:{'|'.join(ORDINALS)}|\d+(?:st|nd|rd|th))\s+(?:week|work|business\s+|working\s+)day\b",
        'has "{}", but cron knows only the last weekday of a month',
        lambda _: ("the first Monday", "the last weekday"),
        "on the first Monday of the month at 09:00",
    ),
    _known(
        rf"\b(?:tomorrow|today|tonight|yesterday|(?:next|this|coming)\s+(?P<day>{_DAY_NAME}|week|month|year|day)"
        r"|just\s+once|one\s+time|\d{4}-\d\d-\d\d\S*)",
        f'has "{{}}", {_ONE_TIME}',
        _recurring,
        "every day at 09:00",
    ),
    _known(
        r"\bin\s+(?P<amount>(?:\d+|an?|one|two|three|five|ten)\s+(?:second|minute|hour|day|week)s?)\b",
        f'has "{{}}", {_ONE_TIME}',
        lambda found: (f"every {re.sub(r'^an?', '1', found['amount'])}",),
    ),
    _known(
        r"\b(?:sometimes|often|regularly|occasionally|frequently|randomly|rarely|periodically|always)\b",
        'has "{}", which does not say when',
        lambda _: ("every hour", ""),
        "every hour",
    ),
    _known(
        rf"\b(?:every\s+|in\s+the\s+|at\s+)?(?P<part>{'|'.join(_PARTS)})s?\b",
        'has "{}", which is no time: say the hour',
        _part_of_day,
        "every day at 09:00",
    ),
    _known(
        r"\b(?:utc|gmt)\s*(?P<sign>[+-])\s*0?(?P<hours>\d{1,2})(?::?00)?\b",
        'has "{}": a fixed offset is a zone such as Etc/GMT-2, whose sign is turned round',
        lambda found: (f"Etc/GMT{'-' if found['sign'] == '+' else '+'}{found['hours']}",),
    ),
    _known(
        r"\b(?:except|excluding|but\s+not|unless|besides)\b",
        'has "{}", which schedules do not know: name what remains',
        lambda _: (),
        "every Tuesday through Sunday at 09:00",
    ),
    _known(
        rf"\b(?:in\s+)?(?P<zone>{'|'.join(_ZONE_OF)})(?:\s+(?:standard|daylight))?(?:\s+time)?\b",
        'has "{}", which is not the name of one time zone',
        lambda found: (_ZONE_OF[found["zone"].lower()],),
    ),
    _known(
        r"(?<![\w)])-\s*(?=\d)",
        "has a negative number",
        lambda _: ("",),
    ),
    _known(
        r"\d{1,3}(?:,\d{3})+\b",
        'has "{}": a number has no commas',
        lambda found: (found[0].replace(",", ""),),
    ),
    _known(
        r"(?<=:)\d(?!\d)|\d+\.\d+(?=\s*[ap]m)|\d+\s+o'?clock",
        'has "{}", which is not how a time is written: say 09:05 or 9:05am',
        lambda found: (f"0{found[0]}", found[0].replace(".", ":"), f"{found[0].split()[0].zfill(2)}:00"),
    ),
    _known(
        r"\b(?:at|from|between|to|until|till|and)\s+(?P<hour>\d{1,4})"
        r"(?!\d|[:.]\d|st|nd|rd|th|\s*(?:[ap]\.?m|s|m|h|days?|weeks?|past|times|to\s+\d))",
        'has "{}", which is not a whole time of day: say 9am, 9pm or 09:00',
        _hour,
        "every day at 09:00",
    ),
)


def findings(text: str) -> Iterator[tuple[Known, re.Match[str]]]:
    """Every known impossibility in the text, earliest first."""
    found = [(known, match) for known in KNOWN for match in known.pattern.finditer(text)]
    yield from sorted(found, key=lambda pair: pair[1].start())
