"""The clauses of a sentence, read but not yet compiled, and the refusal of a sentence."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from gnomon.core.cron.fields import Field
from gnomon.errors import Position


class SentenceRefusal(Exception):
    """The reason why a sentence cannot be read, its place, and whole sentences that may have been meant.

    It never leaves this package: `parse_sentence` turns it into a SentenceError.
    """

    def __init__(
        self, reason: str, place: Position, *instead: str, vague: bool = False, field: str = "expression"
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        self.instead = instead
        #: Whether the words themselves may give a better reason than this one.
        self.vague = vague
        #: `timezone` if the error is in the time zone.
        self.field = field


def unknown_zone_reason(name: str) -> str:
    """The reason for refusing a time zone."""
    return f'has "{name}", which is not an IANA time zone'


class Time(NamedTuple):
    """A time of day."""

    hour: int
    minute: int
    second: int = 0

    def __str__(self) -> str:
        seconds = f":{self.second:02}" if self.second else ""
        return f"{self.hour:02}:{self.minute:02}{seconds}"


class RepeatInterval(NamedTuple):
    """A number of days, weeks, months or years."""

    unit: str
    times: int = 1


_SLOTS = {
    "times": "a time of day",
    "window": "from when to when",
    "second": "which seconds",
    "minute": "which minutes",
    "hour": "which hours",
    "period": "how often",
    "span": "how often",
    "count": "how many times",
    "day": "which days",
    "weekday": "which weekdays",
    "months": "which months",
    "zone": "a time zone",
    "elapsed": '"by elapsed time"',
    "counted": '"counted from its start"',
}


@dataclass(slots=True)
class ScheduleStatement:
    """The clauses of one sentence; a clause that it lacks is None."""

    text: str
    times: tuple[Time, ...] | None = None
    window: tuple[Time, Time] | None = None
    second: Field | None = None
    minute: Field | None = None
    hour: Field | None = None
    #: In seconds, exactly: a period may be as long as its digits.
    period: Fraction | None = None
    span: RepeatInterval | None = None
    count: int | None = None
    day: Field | None = None
    weekday: Field | None = None
    #: Whether either of `day` and `weekday` suffices; None unless the sentence joined the two.
    either: bool | None = None
    months: frozenset[int] | None = None
    zone: str | None = None
    elapsed: bool | None = None
    counted: bool | None = None
    places: dict[str, Position] = field(default_factory=dict)

    def put(self, slot: str, value: object, place: Position) -> None:
        """Fill a slot; refuse the sentence if it is filled already."""
        if slot in self.places:
            raise SentenceRefusal(f"says {_SLOTS[slot]} twice; that takes two schedules", place, self._without(place))
        setattr(self, slot, value)
        self.places[slot] = place

    def join_days(self, *, either: bool) -> None:
        """Join the days of the month and the weekdays: either of them suffices, or both are needed."""
        self.either = either

    def _without(self, place: Position) -> str:
        """The first of two schedules: the text without the words at `place`, and without the rest if that has times."""
        before, after = self.text[: place.start], self.text[place.end :]
        two_times = any(letter.isdigit() for letter in before) and any(letter.isdigit() for letter in after)
        return before if two_times else before + after

    def refuse(self, slot: str, reason: str, *instead: str) -> SentenceRefusal:
        """The refusal of the words in `slot`; its last suggestion is the sentence without them."""
        place = self.places.get(slot, Position(0, len(self.text)))
        return SentenceRefusal(reason, place, *instead, self.text[: place.start] + self.text[place.end :])

    def instead(self, slot: str, words: str) -> str:
        """The sentence with other words in place of a slot's."""
        place = self.places[slot]
        return self.text[: place.start] + words + self.text[place.end :]
