"""From what people write to a trigger: cron, a macro, a sentence, or one instant."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from gnomon.core.cron import Cron, Dialect, Dst, known_zone
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, Position, SentenceError

_CRON_WORD = re.compile(r"[\d*/,?-]+")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?!\d)")
_LONGEST = 1000


def parse_schedule(
    text: str, *, timezone: str | None = None, dialect: Dialect = "standard", dst: Dst | None = None
) -> Cron | Every | At:
    """The trigger that `text` names; CronError says what was not understood.

    A zone named in the text counts; `timezone` is for texts that name none, and must not contradict it.
    An interval is laid from 1970 until `Every.anchored` gives it a start of its own.
    """
    if not isinstance(text, str):
        raise CronError(repr(text), field="expression", reason="must be a text")
    if dialect != "standard" or _looks_like_cron(text):
        return Cron(text, timezone or "UTC", dialect, dst or Dst())
    if _DATE.match(text.strip()):
        return At(_instant(text, timezone))
    return _sentence(text, timezone, dst or Dst())


def _looks_like_cron(text: str) -> bool:
    words = text[:_LONGEST].split(maxsplit=6)
    if any(word.startswith(("*", "@")) for word in words):
        return True
    return len(words) >= 2 and all(_CRON_WORD.fullmatch(word) for word in words[:2])


def _sentence(text: str, timezone: str | None, dst: Dst) -> Cron | Every:
    from gnomon.core.sentences import Interval, read

    meaning = read(text)
    if isinstance(meaning, Interval):
        return Every(meaning.period)
    zone = meaning.zone or timezone or "UTC"
    if timezone is not None and zone != timezone:
        place = text.rfind(zone)
        raise SentenceError(
            text,
            reason=f"names the zone {zone}, but the timezone given with it is {timezone}: say one",
            position=Position(place, place + len(zone)),
        )
    return Cron(meaning.expression, zone, "standard", dst)


def _instant(text: str, timezone: str | None) -> datetime:
    stripped = text.strip()
    try:
        instant = datetime.fromisoformat(stripped)
    except ValueError as error:
        raise _refused(text, f"is not an instant: {error}") from None
    if len(stripped) <= len("2026-12-31"):
        raise _refused(text, "names a day, but no time of it", suggestion=f"{stripped}T09:00:00+00:00")
    if instant.tzinfo is not None:
        return instant
    if timezone is None:
        raise _refused(text, "names no time zone", suggestion=f"{stripped}+00:00")
    known_zone(timezone)
    local = instant.replace(tzinfo=ZoneInfo(timezone))
    if local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != instant:
        raise _refused(text, f"does not exist in {timezone}, where clocks skip that time")
    return local


def _refused(text: str, reason: str, suggestion: str | None = None) -> SentenceError:
    return SentenceError(text, reason=reason, position=Position(0, len(text)), suggestion=suggestion)
