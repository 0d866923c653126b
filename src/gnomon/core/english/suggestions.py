"""Corrections of texts that cannot be read; a correction never changes the meaning.

A correction may replace a misspelt word by a similar one and leave out filler ("please run"). It keeps every
number, unit, name and zone. A negation ("except Sunday") is replaced only by naming the weekdays that remain.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from gnomon.core.english.describe import weekdays_in_words
from gnomon.core.english.vocabulary import MONTHS, NUMBERS, ORDINALS, WEEKDAYS
from gnomon.core.timezones import nearest_zone, zone_of_place
from gnomon.errors import Position

_WORDS = re.compile(r"[^\s,()&@-]+")
_NUMERIC = re.compile(
    r"\d+(\.\d+)?(st|nd|rd|th|[ap]m|[ap]\.m)?|\d*(:\d+){1,2}([ap]m)?|(\d+(\.\d+)?[a-z]{1,7})+|\S+/\S+"
)
_LIGHT = frozenset(
    "every each at on in during of or a an per the and from between through thru to until till past after "
    "if it is by its am pm a.m p.m".split()
)
_HEAVY = (
    *(name.lower() for name in (*WEEKDAYS, *MONTHS)),
    *(name.lower() + "s" for name in WEEKDAYS),
    *ORDINALS,
    *NUMBERS,
    *"second seconds minute minutes hour hours day days week weeks month months quarter quarters".split(),
    *"year years half hourly daily weekly monthly quarterly yearly annually once twice times".split(),
    *"weekday weekdays workday workdays weekend weekends last noon midnight midday other".split(),
    *"elapsed time counted start business working utc gmt".split(),
)
_VOCABULARY = (*_HEAVY, *sorted(_LIGHT))
_ABBREVIATIONS = frozenset(
    "mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec "
    "sec secs min mins hr hrs s m h d w ms".split()
)
#: Words that may be left out: they say that something is to be done, not when.
_FILLERS = frozenset("run runs please remind me do execute trigger fire job task should must i want need my".split())
#: The number of unknown words that are compared with known ones: each takes a millisecond.
_MOST_WORDS = 8
#: How many of them are compared with the names of all places.
_MOST_PLACES = 4
#: Two words written as one: "everyday", "atnoon".
_JOINED = re.compile(r"(?P<first>every|each|on|at)(?P<rest>\w{3,})")
_AROUND = "\"'!?;[]<>{}"
_WEEKDAY = rf"(?:{'|'.join(name[:3] for name in WEEKDAYS)})[a-z]*"
_DAYS = rf"(?:{_WEEKDAY}|weekends?|weekdays?)"
_NEGATION = re.compile(
    r"\b(?:not|no|never|except|excepting|excluding|but|unless|without|besides|other\s+than|apart\s+from|skip)\b"
    rf"(?P<rest>(?:\s+(?:for|not|on|every|the))*\s+(?P<days>{_DAYS}(?:(?:\s*,\s*|\s*&\s*|\s+(?:and|or)\s+){_DAYS})*)\b)?",
    re.IGNORECASE,
)
_BASE = re.compile(
    r"\b(?:(?:every|each|on)\s+)?(?:(?P<all>days?|daily)|(?:week|work|business\s+|working\s+)days?)\b", re.IGNORECASE
)
_SLASHED = re.compile(rf"(?!{_WEEKDAY}/)\b(?P<zone>[a-z_]+(?:/[a-z_]+)+(?:[ ](?P<more>[a-z]+))?)", re.IGNORECASE)
_PLACES = tuple(
    re.compile(rf"(?P<name>(?:[a-z_]+[ ]){{{more}}}(?P<last>[a-z_]+))(?![\w/])(?:\s+time\b)?", re.IGNORECASE)
    for more in (2, 1, 0)
)


def negation(text: str) -> re.Match[str] | None:
    """The words that exclude something from a schedule."""
    return _NEGATION.search(text)


def without_negation(text: str, taken: re.Match[str]) -> str | None:
    """The text that names the remaining weekdays; None unless the negation excludes weekdays."""
    if not taken["days"]:
        return None
    rest = text[: taken.start()].rstrip(" ,") + text[taken.end() :]
    base = _BASE.search(rest)
    days = frozenset(range(7)) if base is None or base["all"] else frozenset(range(1, 6))
    remaining = days - _weekdays_named(taken["days"])
    if not remaining or _NEGATION.search(rest):
        return None
    named = weekdays_in_words(remaining)
    return f"{named} {rest}" if base is None else rest[: base.start()] + named + rest[base.end() :]


def _weekdays_named(text: str) -> frozenset[int]:
    found: set[int] = set()
    for word in re.findall(r"[a-z]+", text.lower()):
        if word.startswith("weekend"):
            found |= {0, 6}
        elif word.startswith("weekday"):
            found |= {1, 2, 3, 4, 5}
        else:
            found |= {number for number, name in enumerate(WEEKDAYS) if name[:3].lower() == word[:3]}
    return frozenset(found)


# ---- faithfulness --------------------------------------------------------------------------------


def keeps_everything(text: str, corrected: str) -> bool:
    """Whether `corrected` has every word of `text` that carries or may carry meaning."""
    return not _weights(text, unknown=True) - _weights(corrected, unknown=True)


def keeps_the_rest(text: str, place: Position, corrected: str) -> bool:
    """Whether `corrected` has every word of `text` known to carry meaning, except those at `place`."""
    outside = _weights(text[: place.start], unknown=False) + _weights(text[place.end :], unknown=False)
    return not outside - _weights(corrected, unknown=False)


def _weights(text: str, *, unknown: bool) -> Counter[str]:
    """The words that carry meaning, each in one spelling; with or without unknown words."""
    words = (word[0].lower().strip(f".{_AROUND}") for word in _WORDS.finditer(text))
    heavy = (word for word in words if word and word not in _LIGHT and word not in _FILLERS)
    return Counter(_plain_form(word) for word in heavy if unknown or _known(word))


def _plain_form(word: str) -> str:
    if word[:1].isdigit():
        return re.sub(r"(?<=\d\d)00$|:00$", "", word.lstrip("0") or "0")
    return word[:3] if word[:3] in _ABBREVIATIONS else word.removesuffix("s")


def _known(word: str) -> bool:
    return bool(word) and (word in _VOCABULARY or word in _ABBREVIATIONS or bool(_NUMERIC.fullmatch(word)))


# ---- misspelt words ------------------------------------------------------------------------------


def unknown_words(text: str) -> Iterator[re.Match[str]]:
    """The words outside the vocabulary of schedules."""
    return (word for word in _WORDS.finditer(text) if not _known(word[0].lower().rstrip(".")) and word[0] != ".")


def corrections(text: str) -> Iterator[str]:
    """The text with its unknown words replaced by similar ones and without filler words."""
    unknown = list(islice(unknown_words(text), _MOST_WORDS))
    for choice in range(3 if unknown else 0):
        corrected = text
        for word in reversed(unknown):
            near = _near(word[0].lower())
            if not near:
                return
            new = near[min(choice, len(near) - 1)]
            proper = new.capitalize() if word[0][:1].isupper() else new
            corrected = corrected[: word.start()] + proper + corrected[word.end() :]
        yield corrected


def _near(word: str) -> list[str]:
    """The most similar words of the vocabulary; equal first letters first, as people rarely mistype those."""
    bare = word.strip(_AROUND)
    if bare in _FILLERS:
        return [""]
    if _known(bare):
        return [bare]
    joined = _JOINED.fullmatch(bare)
    if joined is not None and _known(joined["rest"]):
        return [f"{joined['first']} {joined['rest']}"]
    return sorted(get_close_matches(bare, _VOCABULARY, n=3, cutoff=0.7), key=lambda near: near[0] != word[0])


def simplified_candidates(text: str) -> Iterator[str]:
    """The text in ASCII, if all its letters and digits have plain forms."""
    dashed = re.sub(r"[\u2010-\u2015\u2212]", "-", text).replace("\u2019", "'")
    letters = "".join(_digit(letter) for letter in unicodedata.normalize("NFKD", dashed))
    if any(letter.isalnum() and not letter.isascii() for letter in letters):
        return
    visible = "".join(letter if " " <= letter <= "~" else " " for letter in letters)
    yield visible
    yield from corrections(visible)


def _digit(letter: str) -> str:
    value = unicodedata.decimal(letter, None)
    if value is not None:
        return str(value)
    return "" if unicodedata.combining(letter) else letter


# ---- zones ---------------------------------------------------------------------------------------


def misnamed_zone(text: str) -> tuple[Position, str] | None:
    """The place of a misspelt time zone and its proper name: for "new york", "America/New York"."""
    slashed = _SLASHED.search(text)
    if slashed is not None:
        start, end = slashed.span("zone")
        for last in (end, slashed.start("more") - 1) if slashed["more"] else (end,):
            near = nearest_zone(text[start:last])
            if near is not None and near != text[start:last]:
                return Position(start, last), near
    return next(_misnamed_places(text), None)


def _misnamed_places(text: str) -> Iterator[tuple[Position, str]]:
    """The places that unknown words name; three words are tried first, then two, then one."""
    for word in islice(unknown_words(text), _MOST_PLACES):
        before = text[: word.start()].lower().rstrip(" (").split()[-1:]
        if not before or (before[0] != "in" and before[0] in _LIGHT):
            # "Every christmas" does not name Christmas Island.
            continue
        for pattern in _PLACES:
            place = pattern.match(text, word.start())
            near = zone_of_place(place["name"]) if place and not _known(place["last"].lower()) else None
            if place and near:
                yield Position(*place.span()), near
