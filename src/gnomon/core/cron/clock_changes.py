"""The effect of clock changes (daylight saving time) on the fires of a cron trigger."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from gnomon.core.cron.calendar import fire_time_finder
from gnomon.core.cron.cron import Cron, known_zone
from gnomon.core.cron.fields import HOUR
from gnomon.core.instants import EPOCH, second_of
from gnomon.core.timezones import OffsetSpan

Effect = Literal["none", "made_up", "skipped", "once", "twice", "elapsed"]

_SENTENCES: dict[Effect, str] = {
    "none": "no fire is affected",
    "made_up": "skipped times fire once, at {resumes}",
    "skipped": "skipped times do not fire",
    "once": "repeated times fire the first time only",
    "twice": "repeated times fire both times",
    "elapsed": "fires follow elapsed time",
}


@dataclass(frozen=True, slots=True)
class ClockChange:
    """One change of the clocks in a schedule's zone, and its effect on the schedule."""

    #: The instant of the change, in the zone's new time.
    at: datetime
    #: The wall time of the same instant by the offset that held before the change.
    instead_of: datetime
    effect: Effect

    def describe(self) -> str:
        """One English sentence: from which to which wall time clocks go, and what fires."""
        way = "forward" if self.instead_of.replace(tzinfo=None) < self.at.replace(tzinfo=None) else "back"
        resumes = f"{self.at + timedelta(seconds=-self.at.second % 60):%H:%M}"
        what = _SENTENCES[self.effect].format(resumes=resumes)
        return f"clocks go {way} from {self.instead_of:%H:%M} to {self.at:%H:%M}: {what}"


def clock_changes(cron: Cron, *, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """The changes after `after` and up to `until`, oldest first."""
    zone = known_zone(cron.timezone)
    span, last = zone.span_at(second_of(after)), second_of(until)
    while span.end <= last:
        span = zone.span_at(span.end)
        if span.skipped or span.repeated:
            yield ClockChange(
                at=_local(span.start, span.offset),
                instead_of=_local(span.start, span.offset - span.skipped + span.repeated),
                effect=_effect(cron, span),
            )


def _local(second: int, offset: int) -> datetime:
    return (EPOCH + timedelta(seconds=second)).astimezone(timezone(timedelta(seconds=offset)))


def _effect(cron: Cron, span: OffsetSpan) -> Effect:
    begins = span.start + span.offset
    affected = (begins - span.skipped, begins) if span.skipped else (begins, begins + span.repeated)
    if fire_time_finder(cron.fields, mirrored=False).first_from(0, affected[0]) >= affected[1]:
        return "none"
    if not cron.fields.fixed and cron.fields.hour.full(HOUR):
        # The expression restricts no hour, so none is missed and none comes twice.
        return "elapsed"
    if span.skipped:
        return "made_up" if cron.fields.fixed and cron.dst.gap == "next" else "skipped"
    return "once" if cron.fields.fixed and cron.dst.fold == "first" else "twice"
