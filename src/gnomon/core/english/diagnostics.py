"""The error of a sentence that cannot be read: its reason, its place, and a sentence to use instead.

The first half is a table of known mistakes: words that people use but no schedule can express, each with a
pattern, a reason and replacements. The second half turns a refusal into a SentenceError. It prefers a reason
found in the words to the parser's, and suggests only sentences that can be read and keep the meaning.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gnomon.core.english.statement import SentenceRefusal, unknown_zone_reason
from gnomon.core.english.suggestions import (
    corrections,
    keeps_everything,
    keeps_the_rest,
    misnamed_zone,
    negation,
    simplified_candidates,
    unknown_words,
    without_negation,
)
from gnomon.core.english.vocabulary import MONTHS, NUMBERS, ORDINALS
from gnomon.errors import Position, SentenceError

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput


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
_MONTH_NAME = rf"(?:{'|'.join(name[:3] for name in MONTHS)})[a-z]*"
_NTH = rf"(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)})"
_HOUR_WORDS = "|".join(list(NUMBERS)[:12])
#: The suggestion for words that name one moment: plainly an example.
_INSTANT = "2026-12-01T09:00:00+00:00"


class KnownMistake(NamedTuple):
    """A pattern of words, the reason for refusing it, and replacements."""

    pattern: re.Pattern[str]
    reason: str
    instead: Callable[[re.Match[str]], tuple[str, ...]]
    #: Whole sentences to suggest when no replacement can be read; none of them may look like a correction.
    otherwise: tuple[str, ...] = ()


def _mistake(
    pattern: str, reason: str, instead: Callable[[re.Match[str]], tuple[str, ...]], *otherwise: str
) -> KnownMistake:
    return KnownMistake(re.compile(pattern, re.IGNORECASE), reason, instead, otherwise)


def _nothing(_: re.Match[str]) -> tuple[str, ...]:
    return ()


def _every_other(found: re.Match[str]) -> tuple[str, ...]:
    unit = found["unit"].lower()
    if re.match(_DAY_NAME, unit):
        return (f"on the first and third {unit.title()} of the month",)
    return (f"every 2 {unit.removesuffix('s')}s",)


def _every_nth(found: re.Match[str]) -> tuple[str, ...]:
    word = found["nth"].lower()
    number = ORDINALS.index(word) + 1 if word in ORDINALS else word[:-2]
    return (f"every {number} {found['unit'].lower()}s",)


def _part_of_day(found: re.Match[str]) -> tuple[str, ...]:
    time = _PARTS[found["part"].lower()]
    return (f"at {time}", f"every day at {time}", "every day", "")


def _hour(found: re.Match[str]) -> tuple[str, ...]:
    digits = str(NUMBERS.get(found["hour"].lower(), found["hour"])).zfill(2)
    return (f"{digits[:-2] or digits}:{digits[2:] or '00'}" if len(digits) != 3 else f"0{digits[0]}:{digits[1:]}",)


def _time(found: re.Match[str]) -> tuple[str, ...]:
    hour, dot, minute = re.sub(r"\s+o'?clock|h", ".", found[0], flags=re.IGNORECASE).partition(".")
    # Without a dot the match is a minute of one digit.
    return (f"{hour.zfill(2)}:{minute.ljust(2, '0')}",) if dot else (hour.zfill(2),)


def _friday_13th(found: re.Match[str]) -> tuple[str, ...]:
    return (f"on the {found['nth']} of the month if it is a {found['day'].title()}",)


_COUNTING = "which cron cannot count from one month to the next"
_ONE_TIME = f"which names one moment; for that, give an instant such as {_INSTANT}"

#: Searched in every refused text, whatever the reason of the parser.
DATED = _mistake(
    rf"\b(?:{_MONTH_NAME}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH_NAME},?\s+\d{{4}}"
    r"|\d{1,2}[/.]\d{1,2}[/.]\d{4}|\d{4}/\d{1,2}/\d{1,2})\b",
    f'has "{{}}", {_ONE_TIME}',
    _nothing,
    _INSTANT,
)

KNOWN_MISTAKES = (
    DATED,
    _mistake(
        rf"\bevery\s+(?:other|second|alternate)\s+(?P<unit>{_DAY_NAME}|day|week)s?\b",
        f'has "{{}}", {_COUNTING}',
        _every_other,
    ),
    _mistake(
        rf"\bevery\s+(?P<nth>{_NTH})\s+(?P<unit>day|week)s?\b",
        f'has "{{}}", {_COUNTING}',
        _every_nth,
    ),
    _mistake(
        r"\b(?:bi-?weekly|fortnightly|every\s+fortnight|semi-?weekly)\b",
        f'has "{{}}", {_COUNTING}',
        lambda _: ("every 2 weeks",),
    ),
    _mistake(
        r"\b(?:bi-?monthly|semi-?monthly)\b",
        'has "{}", which may mean twice a month or every two months',
        lambda _: ("on the 1st and 15th of the month", "every 2 months"),
    ),
    _mistake(
        r"\b(?:bi-?annually|semi-?annually|bi-?yearly)\b",
        'has "{}", which may mean twice a year or every two years',
        lambda _: ("every 6 months",),
    ),
    _mistake(
        r"\b(?:twice|(?:\d+|[a-z]+)\s+times)\s+(?:an?|per|every|each)\s+(?:week|month|quarter|year)\b",
        'has "{}", but only times of a day can be counted: name the days',
        _nothing,
    ),
    _mistake(
        rf"\b(?:the\s+)?{_NTH}\s+(?:week|work|business\s+|working\s+)day\b",
        'has "{}", but cron knows only the last weekday of a month',
        _nothing,
        "on the last weekday of the month at 09:00",
    ),
    _mistake(
        rf"\b(?:every\s+|on\s+)?(?P<day>{_DAY_NAME}),?\s+(?:the\s+)?(?P<nth>\d+(?:st|nd|rd|th))\b",
        'has "{}", which wants a weekday and a day of the month at once; cron can only want either',
        _friday_13th,
    ),
    _mistake(
        r"\b(?:(?:on|at|by)\s+)?(?:the\s+)?end\s+of\s+(?:(?:the|each|every)\s+)?month\b",
        'has "{}": say which day that is',
        lambda _: ("on the last day of the month",),
    ),
    _mistake(
        rf"\b(?:tomorrow|today|tonight|yesterday|now|(?:next|this|coming)\s+(?:{_DAY_NAME}|week|month|year|day)"
        r"|just\s+once|one\s+time|\d{4}-\d\d-\d\d\S*)\b|^\s*once(?=\s*$|\s+(?:at|on)\b)",
        f'has "{{}}", {_ONE_TIME}',
        _nothing,
        _INSTANT,
    ),
    _mistake(
        r"\bin\s+(?:\d+|an?|one|two|three|five|ten)\s*(?:(?:second|minute|min|hour|hr|day|week)s?|[smhdw])\b",
        f'has "{{}}", {_ONE_TIME}',
        _nothing,
        _INSTANT,
    ),
    _mistake(
        r"\b(?:sometimes|often|regularly|occasionally|frequently|randomly|rarely|periodically|always)\b",
        'has "{}", which does not say when',
        lambda _: ("every hour", ""),
        "every hour",
    ),
    _mistake(
        rf"\b(?:every\s+|each\s+|in\s+the\s+|at\s+)?(?P<part>{'|'.join(_PARTS)})s?\b",
        'has "{}", which is no time: say the hour',
        _part_of_day,
    ),
    _mistake(
        r"\b(?:utc|gmt)\s*(?P<sign>[+-])\s*0?(?P<hours>\d{1,2})(?::?00)?\b",
        'has "{}": a fixed offset is a zone such as Etc/GMT-2, whose sign is turned round',
        lambda found: (f"Etc/GMT{'-' if found['sign'] == '+' else '+'}{found['hours']}",),
    ),
    _mistake(
        rf"\b(?:in\s+)?(?P<zone>{'|'.join(_ZONE_OF)})(?:\s+(?:standard|daylight))?(?:\s+time)?\b",
        'has "{}", which is not the name of one time zone',
        lambda found: (_ZONE_OF[found["zone"].lower()],),
    ),
    _mistake(
        r"\bevery\s+(?:an\s+)?hour\s+and\s+a\s+half\b",
        'has "{}", which is not how a period is written',
        lambda _: ("every 90 minutes",),
    ),
    _mistake(
        r"(?<![\w)])-\s*(?=\d)",
        "has a negative number",
        lambda _: ("",),
    ),
    _mistake(
        r"\d{1,3}(?:,\d{3})+\b",
        'has "{}": a number has no commas',
        lambda found: (found[0].replace(",", ""),),
    ),
    _mistake(
        r"\b(?P<count>\d+)\s*(?P<unit>mos?|y|yrs?)\b",
        'has "{}": months and years are not shortened',
        lambda found: (
            f"{found['count']} {'month' if found['unit'][0] in 'mM' else 'year'}{'s' * (found['count'] != '1')}",
        ),
    ),
    _mistake(
        rf"\b(?P<number>{_HOUR_WORDS})(?=\s*[ap]\.?m\b)",
        'has "{}", but before am and pm stands a number in digits',
        lambda found: (str(NUMBERS[found["number"].lower()]),),
    ),
    _mistake(
        r"(?<=:)\d(?!\d)|\d+\.\d+(?=\s*[ap]m)|\d+\s+o'?clock|(?<=\bat )\d{1,2}(?:h\d\d|h|\.\d\d)(?!\w|\.\d)",
        'has "{}", which is not how a time is written: say 09:05 or 9:05am',
        _time,
    ),
    _mistake(
        r"(?<=\d:\d\d )(?:hrs?|hours?|h|o'?clock)\b|(?<=\d:\d\d)(?:hrs?|h)\b",
        'has "{}" after a time, which needs none',
        lambda _: ("",),
    ),
    _mistake(
        rf"\b(?:at|from|between|to|until|till|and)\s+(?P<hour>\d{{1,4}}|{_HOUR_WORDS})"
        r"(?!\w|[:.]\d|\s*(?:[ap]\.?m|s|m|h|days?|weeks?|o'?clock|of|past|times|to\s+\d))",
        'has "{}", which is not a whole time of day: say 9am, 9pm or 09:00',
        _hour,
    ),
)


def find_known_mistakes(text: str) -> Iterator[tuple[KnownMistake, re.Match[str]]]:
    """Every known mistake in the text, earliest first."""
    found = [(known, match) for known in KNOWN_MISTAKES for match in known.pattern.finditer(text)]
    yield from sorted(found, key=lambda pair: pair[1].start())


def hours_written_out(text: str) -> str:
    """The text with every bare hour as a time: "at 9" becomes "at 09:00"."""
    hours = KNOWN_MISTAKES[-1].pattern
    return hours.sub(lambda found: found[0].removesuffix(found["hour"]) + _hour(found)[0], text)


# ---- from refusal to error -----------------------------------------------------------------------

MAX_SENTENCE_LENGTH = 500
#: The suggestion when no candidate that keeps the meaning can be read: plainly an example, not a guess.
FALLBACK_EXAMPLE = "every weekday at 09:00"
_MAX_TRIES = 24
_MAX_EXPECTED = 5
#: The single words that are sentences worth suggesting.
_WHOLE = frozenset("hourly daily weekly monthly quarterly yearly annually".split())
_EXPECTED = {
    "TIME": "a time such as 9am",
    "WEEKDAY": "a weekday",
    "MONTH_NAME": "a month",
    "ORDINAL": "a day such as 1st",
    "NUMBER": "a number",
    "HOUR": "a unit such as minutes",
    "ADVERB": "daily",
    "OF": "of the month",
    "EVERY": "every",
    "AT": "at",
    "ON": "on",
    "IN": "in",
    "FROM": "from",
    "THROUGH": "to",
    "PAST": "past every hour",
    "OR": "or",
    "ZONE": "a time zone",
}


def check_characters(text: str) -> None:
    """Refuse empty, overlong and non-ASCII texts before any effort is spent on parsing."""
    if not text.strip():
        raise SentenceRefusal("is empty", Position(0, len(text)), FALLBACK_EXAMPLE)
    if len(text) > MAX_SENTENCE_LENGTH:
        raise SentenceRefusal(
            f"has {len(text)} characters; {MAX_SENTENCE_LENGTH} is the most", Position(MAX_SENTENCE_LENGTH, len(text))
        )
    for place, letter in enumerate(text):
        if letter != "\t" and not " " <= letter <= "~":
            shown = f'"{letter}"' if letter.isprintable() else f"the character U+{ord(letter):04X}"
            reason = f"has {shown}, but schedules are written in plain ASCII"
            raise SentenceRefusal(reason, Position(place, place + 1), *simplified_candidates(text))


def unexpected(text: str, failure: "UnexpectedInput") -> SentenceRefusal:
    """The refusal of a text that the parser rejected."""
    start = failure.pos_in_stream or 0
    token = getattr(failure, "token", None)
    if token is not None and token.type == "$END":
        return SentenceRefusal("ends before it says a whole schedule", Position(len(text), len(text)), vague=True)
    word = re.compile(r"[^\s,()]*").match(text, start)
    end = max((word.end() if word else start, start + 1))
    return SentenceRefusal(f'has "{_shown(text[start:end])}" where it cannot stand', Position(start, end), vague=True)


def _shown(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:37]}..."


def sentence_error(
    text: str,
    refusal: SentenceRefusal,
    *,
    accepted: Callable[[str], bool],
    following: Callable[[str], set[str]],
) -> SentenceError:
    """The error of a refusal. It suggests a sentence that keeps the meaning and is `accepted`, or else an example.

    `following` gives the terminals that may come after a text.
    """
    refusal = _explained(text, refusal)
    allowed = following(text[: refusal.place.start]) if refusal.vague else set()
    expected = [words for name, words in _EXPECTED.items() if name in allowed]
    return SentenceError(
        text,
        reason=refusal.reason,
        position=refusal.place,
        suggestion=_readable(_candidates(text, refusal), accepted),
        expected=tuple(expected[:_MAX_EXPECTED]),
        field=refusal.field,
    )


def _readable(candidates: Iterator[str], accepted: Callable[[str], bool]) -> str:
    for candidate in islice(candidates, _MAX_TRIES):
        tidy = " ".join(candidate.split()).strip(" ,")
        if (" " in tidy or tidy.lower() in _WHOLE or tidy[:4].isdigit()) and accepted(tidy):
            return tidy
    return FALLBACK_EXAMPLE


# ---- better reasons ------------------------------------------------------------------------------


def _explained(text: str, refusal: SentenceRefusal) -> SentenceRefusal:
    """The refusal with a reason found in the words themselves, the earliest first; else the parser's own."""
    if len(text) > MAX_SENTENCE_LENGTH:
        return refusal
    taken, dated = negation(text), DATED.pattern.search(text)
    if taken is not None:
        word = text[taken.start() : taken.start("rest") if taken["rest"] else taken.end()]
        reason = f'has "{word}", which schedules do not know: name what remains'
        place = Position(taken.start(), taken.start() + len(word))
        return SentenceRefusal(reason, place, without_negation(text, taken) or FALLBACK_EXAMPLE)
    if dated is not None:
        return _known_refusal(text, DATED, dated)
    return _from_words(text, refusal) if refusal.vague else refusal


def _from_words(text: str, refusal: SentenceRefusal) -> SentenceRefusal:
    known, zone = next(find_known_mistakes(text), None), misnamed_zone(text)
    unknown = next(unknown_words(text), None)
    starts = {"known": known and known[1].start(), "zone": zone and zone[0].start, "word": unknown and unknown.start()}
    first = min((start for start in starts.values() if start is not None), default=None)
    if known and first == starts["known"]:
        return _known_refusal(text, *known)
    if zone and first == starts["zone"]:
        reason = unknown_zone_reason(text[slice(*zone[0])])
        corrected = [sentence for words in _with_zone(text) for sentence in (words, *corrections(words))]
        return SentenceRefusal(reason, zone[0], *_with_same_meaning(text, zone[0], corrected), field="timezone")
    if unknown:
        reason, place = f'has "{_shown(unknown[0])}", which is not a word of schedules', Position(*unknown.span())
        return SentenceRefusal(
            reason, place, *_with_same_meaning(text, place, corrections(text)), vague=True, field=refusal.field
        )
    return refusal


def _known_refusal(text: str, known: "KnownMistake", found: re.Match[str]) -> SentenceRefusal:
    group = "hour" if "hour" in found.re.groupindex else 0
    start, end = found.span(group)
    whole = [text[:start] + words + text[end:] for words in known.instead(found)]
    if found.groupdict().get("part", "morning").lower() == "morning":
        # Not for other parts of the day: "each evening at 8" is not at 08:00.
        whole += [hours_written_out(words) for words in whole]
    whole += [f"every day {words}" for words in whole]
    corrected = [sentence for words in whole for sentence in (words, *corrections(words), *_with_zone(words))]
    place = Position(start, end)
    return SentenceRefusal(
        known.reason.format(text[start:end]), place, *_with_same_meaning(text, place, corrected), *known.otherwise
    )


def _with_zone(text: str) -> Iterator[str]:
    """The text with the proper name of a zone that it misspells, if it does."""
    zone = misnamed_zone(text)
    if zone is not None:
        (start, end), name = zone
        yield text[:start] + name + text[end:]


def _with_same_meaning(text: str, place: Position, corrected: Iterable[str]) -> Iterator[str]:
    return (sentence for sentence in corrected if keeps_the_rest(text, place, sentence))


# ---- suggestions ---------------------------------------------------------------------------------


def _candidates(text: str, refusal: SentenceRefusal) -> Iterator[str]:
    yield from refusal.instead
    if len(text) > MAX_SENTENCE_LENGTH or FALLBACK_EXAMPLE in refusal.instead:
        return
    if refusal.field == "timezone" or negation(text) or any(not letter.isascii() for letter in text):
        return
    yield from _with_same_meaning(text, refusal.place, _examples(text, refusal.place))
    yield from (corrected for corrected in _attempts(text, refusal) if keeps_everything(text, corrected))
    if text[refusal.place.start : refusal.place.end].lower() in ("and", "&"):
        # The reason says that it takes two schedules: suggest the first.
        yield text[: refusal.place.start]


def _examples(text: str, place: Position) -> Iterator[str]:
    """The text with a valid time or day in place of an invalid one."""
    before, word, after = text[: place.start], text[place.start : place.end], text[place.end :]
    if re.fullmatch(r"\d+:\d+(:\d+)?(\s*[ap]\.?m\.?)?|\d+\s*[ap]\.?m\.?", word, re.IGNORECASE):
        yield f"{before}09:00{after}"
    if re.fullmatch(r"\d+(st|nd|rd|th)", word, re.IGNORECASE):
        yield f"{before}1st{after}"


def _attempts(text: str, refusal: SentenceRefusal) -> Iterator[str]:
    """The text with a word added or removed."""
    before, after = text[: refusal.place.start], text[refusal.place.end :]
    word = text[refusal.place.start : refusal.place.end]
    if refusal.vague:
        yield re.sub(r"\bor\b", "and", text)
        yield from (f"{before} {more} {word}{after}" for more in ("at", "on", "every", "of the month", "every day"))
        yield re.sub(r"\band(\s+on)?\b", "or on", text)
        yield f"{before}{after}"
    if not word.strip() and not after.strip():
        yield from (f"{before.rstrip()} {end}" for end in ("5 minutes", "minutes", "at 09:00"))
    yield from (" ".join(before.split()[: left or None]) for left in (0, -1, -2, -3))
