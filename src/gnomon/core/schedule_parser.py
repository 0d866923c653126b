"""The parser of schedules as people write them: cron, a macro, an English sentence, or one instant."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from gnomon.core.cron import Cron, Dialect, Dst, check_dst, known_zone
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, Position, SentenceError

_CRON_WORD = re.compile(r"[\d*/,?-]+")
_MACRO = re.compile(r"@[a-z]", re.IGNORECASE)
#: Go's cron has intervals among its macros.
_EVERY = re.compile(r"@(every\s.*)", re.IGNORECASE | re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?!\d)")
#: The beginning of `At.describe`.
_ONCE = re.compile(r"once\s+at\s+(?=\d{4}-)", re.IGNORECASE)
_LONGEST = 1000


def parse_schedule(
    text: str, *, timezone: str | None = None, dialect: Dialect = "standard", dst: Dst | None = None
) -> Cron | Every | At:
    """The trigger that `text` describes; raise CronError if it describes none.

    `timezone` applies to texts that name no zone, and must not contradict one in the text.
    An interval counts from 1970 until `Every.anchored` gives it an anchor.
    """
    if not isinstance(text, str):
        raise CronError(repr(text), field="expression", reason="must be a text")
    if timezone is not None:
        known_zone(timezone)
    dst = Dst() if dst is None else dst
    check_dst(dst)
    # Files and shells leave line ends around a text.
    text = text.strip("\r\n")
    if dialect != "standard" or _looks_like_cron(text):
        return _cron(text, timezone, dialect, dst)
    once = _ONCE.match(text.strip())
    if once or _DATE.match(text.strip()):
        return At(_instant(text, text.strip()[once.end() if once else 0 :], timezone))
    return _sentence(text, timezone, dst)


def _looks_like_cron(text: str) -> bool:
    words = text[:_LONGEST].split(maxsplit=6)
    if any(word.startswith("*") for word in words) or (words and _MACRO.match(words[0])):
        return True
    return len(words) >= 2 and all(_CRON_WORD.fullmatch(word) for word in words[:2])


def _cron(text: str, timezone: str | None, dialect: Dialect, dst: Dst) -> Cron:
    interval = _EVERY.fullmatch(text.strip())
    if interval and dialect == "standard":
        reason, near = 'has the macro "@every", which is a sentence here', None
        try:
            near = _sentence(interval[1], None, dst).describe()
        except CronError as error:
            near = error.suggestion
        raise CronError(text, field="expression", reason=reason, position=Position(0, len(text)), suggestion=near)
    return Cron(text, "UTC" if timezone is None else timezone, dialect, dst)


def _sentence(text: str, timezone: str | None, dst: Dst) -> Cron | Every:
    from gnomon.core.english import IntervalResult, parse_sentence

    meaning = parse_sentence(text)
    if isinstance(meaning, IntervalResult):
        return Every(meaning.period)
    zone = meaning.zone or timezone or "UTC"
    if timezone is not None and zone != timezone:
        raise SentenceError(
            text,
            reason=f"names the zone {zone}, but the timezone given with it is {timezone}: say one",
            position=meaning.zone_place,
            field="timezone",
        )
    try:
        return Cron(meaning.expression, zone, "standard", dst)
    except CronError as error:
        # The author wrote the sentence and has never seen the expression.
        raise _refused(text, error.reason) from None


def _instant(text: str, written: str, timezone: str | None) -> datetime:
    try:
        instant = datetime.fromisoformat(written)
    except ValueError as error:
        raise _refused(text, f"is not an instant: {error}") from None
    if len(written) <= len("2026-12-31"):
        offset = "+00:00" if timezone is None else ""
        raise _refused(text, "names a day, but no time of it", suggestion=f"{written}T09:00:00{offset}")
    if instant.tzinfo is None and timezone is None:
        raise _refused(text, "names no time zone", suggestion=f"{written}+00:00")
    try:
        return _placed(text, instant, timezone or "UTC")
    except OverflowError:
        raise _refused(text, "lies outside the calendar") from None


def _placed(text: str, instant: datetime, timezone: str) -> datetime:
    """The instant in UTC; without an offset it is a wall time of the zone."""
    if instant.tzinfo is not None:
        return instant.astimezone(UTC)
    placed = instant.replace(tzinfo=ZoneInfo(timezone)).astimezone(UTC)
    if placed.astimezone(ZoneInfo(timezone)).replace(tzinfo=None) != instant:
        raise _refused(text, f"does not exist in {timezone}, where clocks skip that time")
    return placed


def _refused(text: str, reason: str, suggestion: str | None = None) -> SentenceError:
    return SentenceError(text, reason=reason, position=Position(0, len(text)), suggestion=suggestion)
