"""Instants, spans and errors as they stand in a sentence."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.model import SECOND_MS

#: How long it may take to be looked at before that is odd.
USUAL_DELAY_MS = 5 * SECOND_MS
_LONGEST_ERROR = 200
_MOST_NAMES = 3


def instant_phrase(at: int, zone: str) -> str:
    """An instant on the clocks of a zone: its day, as much of its time as there is, and which clocks."""
    local = _local(at, zone)
    return f"{local:%a %Y-%m-%d} {_time(at, local)} {local:%Z}"


class TimeFormatter(Struct, frozen=True):
    """How instants are written beside the one that everything is about: what is the same that day is left out."""

    zone: str
    about_at: int

    def __call__(self, at: int) -> str:
        """The instant, as far as it differs."""
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
    """The first line of an error, and no more of it than a sentence can carry."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_ERROR else f"{line[: _LONGEST_ERROR - 1]}…"


def pluralized(count: int, thing: str) -> str:
    """So many of them."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def join_names(names: Sequence[str]) -> str:
    """The names as a sentence has them; of many, the first few and how many more."""
    shown = list(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown.append(f"{len(names) - _MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
