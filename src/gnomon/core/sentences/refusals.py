"""Why a text was not understood, said so that its writer can mend it, with a sentence that can be read."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from gnomon.core.sentences.known import findings
from gnomon.core.sentences.said import Refusal
from gnomon.core.sentences.words import MONTHS, NUMBERS, ORDINALS, WEEKDAYS
from gnomon.errors import Position, SentenceError

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

    from gnomon.core.sentences.known import Known

LONGEST = 500
_ANY = "every day at 09:00"
_MOST_TRIES = 24

#: What to offer when nothing closer can be read; each shows one way to say something.
TEMPLATES = (
    "every 5 minutes",
    "every 30 seconds",
    "every hour",
    "every 2 hours from 09:00 to 17:00",
    "every hour at minute 5",
    "every 15 minutes from 09:00 to 16:59 on weekdays",
    "every day at 09:00",
    "every day at 08:00 and 20:00",
    "every weekday at 09:00",
    "every Monday at 09:00",
    "every Monday, Wednesday and Friday at 18:00",
    "on weekends at 12:00",
    "on the 1st of the month at 00:00",
    "on the 1st and 15th of the month at 06:00",
    "on the last day of the month at 23:00",
    "on the first Monday of the month at 09:00",
    "on the last Friday of the month at 17:00",
    "on the 13th of the month or on Friday at 09:00",
    "on 1 January at 12:00",
    "on the 1st of January and July at 09:00",
    "every quarter at 09:00",
    "every 2 weeks",
    "every 90 seconds",
)

_WORDS = re.compile(r"[^\s,()&@-]+")
_NUMERIC = re.compile(
    r"\d+(\.\d+)?(st|nd|rd|th|[ap]m|[ap]\.m)?|\d+(:\d+){1,2}([ap]m)?|(\d+(\.\d+)?[a-z]{1,4})+|\S+/\S+"
)
_VOCABULARY = (
    *(name.lower() for name in (*WEEKDAYS, *MONTHS)),
    *(name.lower() + "s" for name in WEEKDAYS),
    *ORDINALS,
    *NUMBERS,
    *"every each at on in during of or a an the and from between through thru to".split(),
    *"until till past after".split(),
    *"second seconds minute minutes hour hours day days week weeks month months quarter quarters".split(),
    *"year years half hourly daily weekly monthly quarterly yearly annually once twice times".split(),
    *"weekday weekdays workday workdays weekend weekends last noon midnight".split(),
    *"if it is by elapsed time counted its start".split(),
    *"business working am pm a.m p.m utc gmt".split(),
)
#: The words that are sentences worth offering.
_WHOLE = frozenset("hourly daily weekly monthly quarterly yearly annually".split())
_ABBREVIATIONS = frozenset(
    "mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec "
    "sec secs min mins hr hrs".split()
)
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


def check_letters(text: str) -> None:
    """Refuse what no sentence can consist of, before any effort is spent on it."""
    if not text.strip():
        raise Refusal("is empty", Position(0, len(text)), _ANY)
    if len(text) > LONGEST:
        raise Refusal(f"has {len(text)} characters; {LONGEST} is the most", Position(LONGEST, len(text)))
    for place, letter in enumerate(text):
        if letter != "\t" and not " " <= letter <= "~":
            shown = f'"{letter}"' if letter.isprintable() else f"the character U+{ord(letter):04X}"
            reason = f"has {shown}, but schedules are written in plain ASCII"
            raise Refusal(reason, Position(place, place + 1), *_plain(text))


def unexpected(text: str, failure: "UnexpectedInput") -> Refusal:
    """The refusal of a text at which the grammar gave up."""
    start = failure.pos_in_stream or 0
    token = getattr(failure, "token", None)
    if token is not None and token.type == "$END":
        return Refusal("ends before it says a whole schedule", Position(len(text), len(text)), vague=True)
    word = re.compile(r"[^\s,()]*").match(text, start)
    end = max((word.end() if word else start, start + 1))
    return Refusal(f'has "{_shown(text[start:end])}" where it cannot stand', Position(start, end), vague=True)


def _shown(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:37]}..."


def refused(
    text: str,
    refusal: Refusal,
    *,
    understood: Callable[[str], object],
    following: Callable[[str], set[str]],
) -> SentenceError:
    """The error of a refusal, with the nearest sentence that `understood` does understand."""
    if refusal.vague:
        refusal = _explained(text, refusal)
    allowed = following(text[: refusal.place.start]) if refusal.vague else set()
    return SentenceError(
        text,
        reason=refusal.reason,
        position=refusal.place,
        suggestion=_readable(_candidates(text, refusal), understood),
        expected=tuple(words for name, words in _EXPECTED.items() if name in allowed),
    )


def _readable(candidates: Iterator[str], understood: Callable[[str], object]) -> str:
    for candidate in islice(candidates, _MOST_TRIES):
        tidy = " ".join(candidate.split()).strip(" ,")
        if " " not in tidy and tidy.lower() not in _WHOLE:
            continue
        try:
            understood(tidy)
        except Refusal:
            continue
        return tidy
    return _ANY


# ---- better reasons ------------------------------------------------------------------------------


def _explained(text: str, refusal: Refusal) -> Refusal:
    """A reason found in the words themselves, the earliest first; else the grammar's own."""
    known = next(findings(text), None)
    unknown = next(_unknown_words(text), None)
    if known and (unknown is None or known[1].start() <= unknown.start()):
        return _known_refusal(text, *known)
    if unknown:
        reason = f'has "{_shown(unknown[0])}", which is not a word of schedules'
        return Refusal(reason, Position(*unknown.span()), *_corrections(text), vague=True)
    return refusal


def _known_refusal(text: str, known: "Known", found: re.Match[str]) -> Refusal:
    group = "hour" if "hour" in found.re.groupindex else 0
    start, end = found.span(group)
    whole = [text[:start] + words + text[end:] for words in known.instead(found)]
    if group:
        every = known.pattern.sub(lambda each: each[0].removesuffix(each["hour"]) + known.instead(each)[0], text)
        whole.insert(0, every)
    mended = [sentence for words in whole for sentence in (words, *_corrections(words))]
    return Refusal(known.reason.format(text[start:end]), Position(start, end), *mended, *known.otherwise)


def _unknown_words(text: str) -> Iterator[re.Match[str]]:
    for word in _WORDS.finditer(text):
        plain = word[0].lower().rstrip(".")
        if plain and plain not in _VOCABULARY and plain not in _ABBREVIATIONS and not _NUMERIC.fullmatch(plain):
            yield word


# ---- suggestions ---------------------------------------------------------------------------------


def _candidates(text: str, refusal: Refusal) -> Iterator[str]:
    yield from refusal.instead
    if len(text) <= LONGEST:
        before, after = text[: refusal.place.start], text[refusal.place.end :]
        word = text[refusal.place.start : refusal.place.end]
        if refusal.vague:
            yield from (f"{before} {more} {word}{after}" for more in ("at", "on", "every", "of the month", "every day"))
            yield re.sub(r"\band(\s+on)?\b", "or on", text)
            yield f"{before}{after}"
        if word.lower() in ORDINALS or (" " not in word and any(letter.isdigit() for letter in word)):
            yield from (f"{before}{stand_in}{after}" for stand_in in ("09:00", "1st", "5"))
        yield from (f"{before.rstrip()} {end}" for end in ("", "5 minutes", "minutes", "at 09:00"))
        yield from (" ".join(before.split()[:-left]) for left in (1, 2, 3))
    yield from get_close_matches(text[:LONGEST].lower(), TEMPLATES, n=1, cutoff=0.45)


def _corrections(text: str) -> Iterator[str]:
    """The text with its unknown words replaced by near ones, or left out."""
    unknown = list(islice(_unknown_words(text), 8))
    if not unknown:
        return
    for choice in range(3):
        yield _replaced(text, unknown, choice)
    yield _replaced(text, unknown, None)


def _replaced(text: str, words: list[re.Match[str]], choice: int | None) -> str:
    for word in reversed(words):
        near = _near(word[0].lower()) if choice is not None else []
        new = near[min(choice or 0, len(near) - 1)] if near else ""
        proper = new.title() if word[0][:1].isupper() else new
        text = text[: word.start()] + proper + text[word.end() :]
    return text


def _near(word: str) -> list[str]:
    """The nearest words of schedules; people mistake the first letter least."""
    return sorted(get_close_matches(word, _VOCABULARY, n=3, cutoff=0.65), key=lambda near: near[0] != word[0])


def _plain(text: str) -> Iterator[str]:
    """The text in ASCII, as far as its characters have plain forms."""
    dashed = re.sub(r"[\u2010-\u2015\u2212]", "-", text).replace("\u2019", "'")
    plain = "".join(_digit(letter) for letter in unicodedata.normalize("NFKD", dashed))
    visible = "".join(letter if " " <= letter <= "~" else " " for letter in plain)
    yield visible
    yield from _corrections(visible)
    yield from get_close_matches(visible.lower(), TEMPLATES, n=1, cutoff=0.3)


def _digit(letter: str) -> str:
    value = unicodedata.decimal(letter, None)
    if value is not None:
        return str(value)
    return "" if unicodedata.combining(letter) else letter
