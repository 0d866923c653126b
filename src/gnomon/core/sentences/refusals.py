"""Why a text was not understood, said so that its writer can mend it, with a sentence that can be read."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gnomon.core.sentences.known import DATED, findings, hours_written_out
from gnomon.core.sentences.mending import (
    corrections,
    keeps_everything,
    keeps_the_rest,
    misnamed_zone,
    negation,
    plain,
    unknown_words,
    what_remains,
)
from gnomon.core.sentences.said import Refusal, not_a_zone
from gnomon.errors import Position, SentenceError

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

    from gnomon.core.sentences.known import Known

LONGEST = 500
#: What to offer when nothing faithful can be read: plainly an example, and no attempt at a guess.
GENERIC = "every weekday at 09:00"
_MOST_TRIES = 24
_MOST_EXPECTED = 5
#: The words that are sentences worth offering.
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


def check_letters(text: str) -> None:
    """Refuse what no sentence can consist of, before any effort is spent on it."""
    if not text.strip():
        raise Refusal("is empty", Position(0, len(text)), GENERIC)
    if len(text) > LONGEST:
        raise Refusal(f"has {len(text)} characters; {LONGEST} is the most", Position(LONGEST, len(text)))
    for place, letter in enumerate(text):
        if letter != "\t" and not " " <= letter <= "~":
            shown = f'"{letter}"' if letter.isprintable() else f"the character U+{ord(letter):04X}"
            reason = f"has {shown}, but schedules are written in plain ASCII"
            raise Refusal(reason, Position(place, place + 1), *plain(text))


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
    accepted: Callable[[str], bool],
    following: Callable[[str], set[str]],
) -> SentenceError:
    """The error of a refusal, with a faithful sentence that is `accepted`, or else a plain example."""
    refusal = _explained(text, refusal)
    allowed = following(text[: refusal.place.start]) if refusal.vague else set()
    expected = [words for name, words in _EXPECTED.items() if name in allowed]
    return SentenceError(
        text,
        reason=refusal.reason,
        position=refusal.place,
        suggestion=_readable(_candidates(text, refusal), accepted),
        expected=tuple(expected[:_MOST_EXPECTED]),
        field=refusal.field,
    )


def _readable(candidates: Iterator[str], accepted: Callable[[str], bool]) -> str:
    for candidate in islice(candidates, _MOST_TRIES):
        tidy = " ".join(candidate.split()).strip(" ,")
        if (" " in tidy or tidy.lower() in _WHOLE or tidy[:4].isdigit()) and accepted(tidy):
            return tidy
    return GENERIC


# ---- better reasons ------------------------------------------------------------------------------


def _explained(text: str, refusal: Refusal) -> Refusal:
    """A reason found in the words themselves, the earliest first; else the grammar's own."""
    if len(text) > LONGEST:
        return refusal
    taken, dated = negation(text), DATED.pattern.search(text)
    if taken is not None:
        word = text[taken.start() : taken.start("rest") if taken["rest"] else taken.end()]
        reason = f'has "{word}", which schedules do not know: name what remains'
        place = Position(taken.start(), taken.start() + len(word))
        return Refusal(reason, place, what_remains(text, taken) or GENERIC)
    if dated is not None:
        return _known_refusal(text, DATED, dated)
    return _said_better(text, refusal) if refusal.vague else refusal


def _said_better(text: str, refusal: Refusal) -> Refusal:
    known, zone = next(findings(text), None), misnamed_zone(text)
    unknown = next(unknown_words(text), None)
    starts = {"known": known and known[1].start(), "zone": zone and zone[0].start, "word": unknown and unknown.start()}
    first = min((start for start in starts.values() if start is not None), default=None)
    if known and first == starts["known"]:
        return _known_refusal(text, *known)
    if zone and first == starts["zone"]:
        reason = not_a_zone(text[slice(*zone[0])])
        mended = [sentence for words in _with_zone(text) for sentence in (words, *corrections(words))]
        return Refusal(reason, zone[0], *_faithful(text, zone[0], mended), field="timezone")
    if unknown:
        reason, place = f'has "{_shown(unknown[0])}", which is not a word of schedules', Position(*unknown.span())
        return Refusal(reason, place, *_faithful(text, place, corrections(text)), vague=True, field=refusal.field)
    return refusal


def _known_refusal(text: str, known: "Known", found: re.Match[str]) -> Refusal:
    group = "hour" if "hour" in found.re.groupindex else 0
    start, end = found.span(group)
    whole = [text[:start] + words + text[end:] for words in known.instead(found)]
    if found.groupdict().get("part", "morning").lower() == "morning":
        # "Each evening at 8" is not at 08:00.
        whole += [hours_written_out(words) for words in whole]
    whole += [f"every day {words}" for words in whole]
    mended = [sentence for words in whole for sentence in (words, *corrections(words), *_with_zone(words))]
    place = Position(start, end)
    return Refusal(known.reason.format(text[start:end]), place, *_faithful(text, place, mended), *known.otherwise)


def _with_zone(text: str) -> Iterator[str]:
    """The text with the zone it means, if it names one wrongly."""
    zone = misnamed_zone(text)
    if zone is not None:
        (start, end), name = zone
        yield text[:start] + name + text[end:]


def _faithful(text: str, place: Position, mended: Iterable[str]) -> Iterator[str]:
    return (sentence for sentence in mended if keeps_the_rest(text, place, sentence))


# ---- suggestions ---------------------------------------------------------------------------------


def _candidates(text: str, refusal: Refusal) -> Iterator[str]:
    yield from refusal.instead
    if len(text) > LONGEST or GENERIC in refusal.instead:
        return
    if refusal.field == "timezone" or negation(text) or any(not letter.isascii() for letter in text):
        return
    yield from _faithful(text, refusal.place, _examples(text, refusal.place))
    yield from (mended for mended in _attempts(text, refusal) if keeps_everything(text, mended))
    if text[refusal.place.start : refusal.place.end].lower() in ("and", "&"):
        # The reason says that it takes two schedules: this is the first.
        yield text[: refusal.place.start]


def _examples(text: str, place: Position) -> Iterator[str]:
    """The text with a time or day that exists in place of one that does not."""
    before, word, after = text[: place.start], text[place.start : place.end], text[place.end :]
    if re.fullmatch(r"\d+:\d+(:\d+)?(\s*[ap]\.?m\.?)?|\d+\s*[ap]\.?m\.?", word, re.IGNORECASE):
        yield f"{before}09:00{after}"
    if re.fullmatch(r"\d+(st|nd|rd|th)", word, re.IGNORECASE):
        yield f"{before}1st{after}"


def _attempts(text: str, refusal: Refusal) -> Iterator[str]:
    """The text with a word more, or a word less."""
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
