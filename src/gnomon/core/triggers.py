"""The triggers besides cron: `Every`, `At`, `OnDemand` and `OnEvent`.

A trigger is a value without a position, so it can be asked about any instant. Every trigger, `Cron` included, has
`next_after`, `previous_before`, `matches`, `count` and `describe`; instants are in UTC.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gnomon.core.instants import EPOCH, naive_instant_error
from gnomon.errors import CronError

SHORTEST_PERIOD = timedelta(milliseconds=100)
LONGEST_PERIOD = timedelta(days=36525)
_UNITS = {
    " day": timedelta(days=1),
    " hour": timedelta(hours=1),
    " minute": timedelta(minutes=1),
    " second": timedelta(seconds=1),
}


@dataclass(frozen=True, slots=True)
class Every:
    """Fires on a grid from `anchor`, so that a late fire never shifts the ones after it."""

    period: timedelta
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        if not isinstance(self.period, timedelta):
            raise CronError(repr(self.period), field="period", reason="must be a timedelta")
        object.__setattr__(self, "anchor", _in_utc(self.anchor, field="anchor"))
        if not SHORTEST_PERIOD <= self.period <= LONGEST_PERIOD:
            reason = f"must be from {SHORTEST_PERIOD.total_seconds()} s to {LONGEST_PERIOD.days} days"
            raise CronError(str(self.period), field="period", reason=reason)
        if self.period % timedelta(milliseconds=1):
            raise CronError(str(self.period), field="period", reason="must be whole milliseconds")

    def anchored(self, anchor: datetime) -> "Every":
        """The same period on a grid from `anchor`."""
        return replace(self, anchor=anchor)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first fire after `instant`; the anchor itself is the first fire."""
        since = _since(instant, self.anchor)
        return self._at(since // self.period + 1 if since >= timedelta() else 0)

    def previous_before(self, instant: datetime) -> datetime | None:
        """The last fire before `instant`; None at and before the anchor."""
        since = _since(instant, self.anchor)
        return self._at(-(-since // self.period) - 1) if since > timedelta() else None

    def matches(self, instant: datetime) -> bool:
        """Whether `instant` is a point of the grid."""
        since = _since(instant, self.anchor)
        return since >= timedelta() and not since % self.period

    def count(self, *, after: datetime, until: datetime) -> int:
        """How many points of the grid lie after `after` and up to `until`."""
        return max(0, self._points_up_to(until) - self._points_up_to(after))

    def _points_up_to(self, instant: datetime) -> int:
        return max(0, _since(instant, self.anchor) // self.period + 1)

    def describe(self) -> str:
        """The period in its largest unit."""
        return f"every {self._period_text()}, counted from its start"

    def _period_text(self) -> str:
        for name, unit in _UNITS.items():
            if not self.period % unit:
                count = self.period // unit
                # "every day" would be read as a time of day.
                return f"{count}{name}s" if count > 1 else name.strip() if name != " day" else "24 hours"
        return f"{self.period // timedelta(milliseconds=1)}ms"

    def _at(self, step: int) -> datetime | None:
        try:
            return self.anchor + step * self.period
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class At:
    """Fires once."""

    instant: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "instant", _in_utc(self.instant, field="instant"))

    def next_after(self, instant: datetime) -> datetime | None:
        """The only fire, if it is after `instant`."""
        return self.instant if _since(instant, self.instant) < timedelta() else None

    def previous_before(self, instant: datetime) -> datetime | None:
        """The only fire, if it is before `instant`."""
        return self.instant if _since(instant, self.instant) > timedelta() else None

    def matches(self, instant: datetime) -> bool:
        """Whether it fires at `instant`."""
        return not _since(instant, self.instant)

    def count(self, *, after: datetime, until: datetime) -> int:
        """1 if the only fire lies after `after` and up to `until`, else 0."""
        return int(_since(after, self.instant) < timedelta() <= _since(until, self.instant))

    def describe(self) -> str:
        """The instant, in UTC."""
        return f"once at {self.instant.isoformat()}"


class UnplannedTrigger:
    """The base of triggers without planned times."""

    __slots__ = ()

    def next_after(self, instant: datetime) -> datetime | None:
        """None: nothing is planned."""
        del instant
        return None

    def previous_before(self, instant: datetime) -> datetime | None:
        """None: nothing was planned."""
        del instant
        return None

    def matches(self, instant: datetime) -> bool:
        """False: nothing is planned."""
        del instant
        return False

    def count(self, *, after: datetime, until: datetime) -> int:
        """0: nothing is planned."""
        del after, until
        return 0


@dataclass(frozen=True, slots=True)
class OnDemand(UnplannedTrigger):
    """Never fires by itself: its job runs when it is triggered."""

    def describe(self) -> str:
        """A clause that follows "the job runs"."""
        return "only when it is triggered"


@dataclass(frozen=True, slots=True)
class OnEvent(UnplannedTrigger):
    """Fires when an event arrives: for each event, after a silence, or for a batch."""

    event: str
    #: The values that the body of the event must have, as canonical JSON.
    where: str = "{}"
    #: The silence after the last event, after which all of them start one run.
    debounce_ms: int | None = None
    #: The size of a batch, and how long its first event waits.
    most: int | None = None
    batch_ms: int | None = None

    @property
    def is_batched(self) -> bool:
        """Whether several events start one run."""
        return self.debounce_ms is not None or self.batch_ms is not None

    @property
    def wait_ms(self) -> int:
        """How long an event waits for others; 0 if it does not."""
        return self.debounce_ms or self.batch_ms or 0

    @property
    def condition(self) -> dict[str, Any]:
        """The values that the body of the event must have, by path."""
        found: dict[str, Any] = msgspec.json.decode(self.where)
        return found

    def describe(self) -> str:
        """A clause that follows "the job runs"."""
        clause = f"when {self.event} happens"
        if self.where != "{}":
            clause += f" with {self.where}"
        if self.debounce_ms is not None:
            clause += f", once it has been silent for {self.debounce_ms / 1000:g} s"
        elif self.batch_ms is not None:
            size = f" or {self.most} of them" if self.most is not None else ""
            clause += f", together after {self.batch_ms / 1000:g} s{size}"
        return clause


def _since(instant: datetime, start: datetime) -> timedelta:
    try:
        return instant - start
    except TypeError:
        raise naive_instant_error(instant) from None


def _in_utc(instant: datetime, *, field: str) -> datetime:
    """The instant in UTC, truncated to milliseconds: the store cannot hold more."""
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise CronError(str(instant), field=field, reason="must be a datetime with a time zone")
    try:
        exact = instant.astimezone(UTC)
        return exact.replace(microsecond=exact.microsecond // 1000 * 1000)
    except OverflowError:
        raise CronError(str(instant), field=field, reason="lies outside the calendar") from None
