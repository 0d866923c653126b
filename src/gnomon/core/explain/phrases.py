"""Phrases of explanations: instants, errors, counts and lists of names."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.model import SECOND_MS

#: A delay of the scheduler or dispatcher beyond this is unusual.
USUAL_DELAY_MS = 5 * SECOND_MS
_LONGEST_ERROR = 200
_MOST_NAMES = 3


def instant_phrase(at: int, zone: str) -> str:
    """An instant in a time zone: its day, its time without trailing zeros, and the abbreviation of the zone."""
    local = _local(at, zone)
    return f"{local:%a %Y-%m-%d} {_time(at, local)} {local:%Z}"


class TimeFormatter(Struct, frozen=True):
    """Writes instants relative to the subject of an explanation: a day and zone that are the same are left out."""

    zone: str
    about_at: int

    def __call__(self, at: int) -> str:
        """The instant, with its day and zone only if they differ."""
        about, local = _local(self.about_at, self.zone), _local(at, self.zone)
        if about.date() == local.date() and about.tzname() == local.tzname():
            return _time(at, local)
        return instant_phrase(at, self.zone)


def _local(at: int, zone: str) -> datetime:
    try:
        return instant_of(at).astimezone(ZoneInfo(zone))
    except OverflowError:  # the calendar ends before it does
        return instant_of(at)


def _time(at: int, local: datetime) -> str:
    if at % SECOND_MS:
        return f"{local:%H:%M:%S}.{at % SECOND_MS:03d}"
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def one_line(text: str) -> str:
    """The first line of an error, shortened to fit a sentence."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_ERROR else f"{line[: _LONGEST_ERROR - 1]}…"


def pluralized(count: int, thing: str) -> str:
    """For instance "1 run" or "3 runs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def not_kept_before(time: str) -> str:
    """The clause that says from when on history is retained."""
    return f"history from before {time} is not kept"


def join_names(names: Sequence[str]) -> str:
    """The names joined for a sentence; of many, the first few and the number of the others."""
    shown = list(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown.append(f"{len(names) - _MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
