"""When a schedule fires. A trigger is a value: it has no position, so it can be asked about any moment."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

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


class Trigger(Protocol):
    """Anything that can say when it fires."""

    def next_after(self, instant: datetime) -> datetime | None:
        """The first fire after `instant`, in UTC; None if no more will come."""
        ...

    def previous_before(self, instant: datetime) -> datetime | None:
        """The last fire before `instant`, in UTC; None if there was none."""
        ...

    def matches(self, instant: datetime) -> bool:
        """Whether it fires at `instant`."""
        ...

    def count(self, *, after: datetime, until: datetime) -> int:
        """How many fires lie after `after` and up to `until`."""
        ...

    def describe(self) -> str:
        """One English sentence."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Fires on a grid laid from `anchor`, so that a late fire never shifts the ones after it."""

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
        """The first fire after `instant`; the anchor itself is the first of all."""
        since = _since(instant, self.anchor)
        return self._at(since // self.period + 1 if since >= timedelta() else 0)

    def previous_before(self, instant: datetime) -> datetime | None:
        """The last fire before `instant`; None up to the anchor."""
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
        return f"every {self._spoken()}, counted from its start"

    def _spoken(self) -> str:
        for name, unit in _UNITS.items():
            if not self.period % unit:
                count = self.period // unit
                # "every day" alone would be a time of day.
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
        """The one fire, if it is still to come."""
        return self.instant if _since(instant, self.instant) < timedelta() else None

    def previous_before(self, instant: datetime) -> datetime | None:
        """The one fire, if it is over."""
        return self.instant if _since(instant, self.instant) > timedelta() else None

    def matches(self, instant: datetime) -> bool:
        """Whether `instant` is the one."""
        return not _since(instant, self.instant)

    def count(self, *, after: datetime, until: datetime) -> int:
        """1 if the one fire lies after `after` and up to `until`, else 0."""
        return int(_since(after, self.instant) < timedelta() <= _since(until, self.instant))

    def describe(self) -> str:
        """The instant, in UTC."""
        return f"once at {self.instant.isoformat()}"


class UnplannedTrigger:
    """Fires at no time that can be foretold."""

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
        """Never."""
        del instant
        return False

    def count(self, *, after: datetime, until: datetime) -> int:
        """None at all."""
        del after, until
        return 0


@dataclass(frozen=True, slots=True)
class OnDemand(UnplannedTrigger):
    """Never fires by itself: its job runs when someone, or an event, asks for it."""

    def describe(self) -> str:
        """That it waits to be asked."""
        return "only when it is triggered"


@dataclass(frozen=True, slots=True)
class OnEvent(UnplannedTrigger):
    """Fires when something happens, not at any time: for each event, after a silence, or for many at once."""

    event: str
    #: What the event's body must have, as canonical JSON.
    where: str = "{}"
    #: How long it must have been silent.
    debounce_ms: int | None = None
    #: How many events make a batch, and how long its first one waits.
    most: int | None = None
    batch_ms: int | None = None

    @property
    def is_batched(self) -> bool:
        """Whether several events start one run."""
        return self.debounce_ms is not None or self.batch_ms is not None

    @property
    def wait_ms(self) -> int:
        """How long an event waits for others."""
        return self.debounce_ms or self.batch_ms or 0

    @property
    def condition(self) -> dict[str, Any]:
        """What the event's body must have."""
        found: dict[str, Any] = msgspec.json.decode(self.where)
        return found

    def describe(self) -> str:
        """What it waits for."""
        what = f"when {self.event} happens"
        if self.where != "{}":
            what += f" with {self.where}"
        if self.debounce_ms is not None:
            what += f", once it has been silent for {self.debounce_ms / 1000:g} s"
        elif self.batch_ms is not None:
            most = f" or {self.most} of them" if self.most is not None else ""
            what += f", together after {self.batch_ms / 1000:g} s{most}"
        return what


def fire_times(trigger: Trigger, *, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every fire after `after` and up to `until`, oldest first."""
    instant = trigger.next_after(after)
    while instant is not None and instant <= until:
        yield instant
        instant = trigger.next_after(instant)


def _since(instant: datetime, start: datetime) -> timedelta:
    try:
        return instant - start
    except TypeError:
        raise naive_instant_error(instant) from None


def _in_utc(instant: datetime, *, field: str) -> datetime:
    """The instant in UTC, to the millisecond: what is finer could not be kept."""
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise CronError(str(instant), field=field, reason="must be a datetime with a time zone")
    try:
        exact = instant.astimezone(UTC)
        return exact.replace(microsecond=exact.microsecond // 1000 * 1000)
    except OverflowError:
        raise CronError(str(instant), field=field, reason="lies outside the calendar") from None
