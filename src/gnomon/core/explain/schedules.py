"""A schedule in words, as cron, and its next fires."""

from collections.abc import Iterator
from datetime import datetime

from gnomon.core.cron import Cron, Dialect
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At, Every


def parsed_schedule(text: str, *, timezone: str | None, dialect: Dialect, now: datetime) -> Cron | Every | At:
    """The trigger of a text; an interval is assumed to start now."""
    trigger = parse_schedule(text, timezone=timezone, dialect=dialect)
    return trigger.anchored(now) if isinstance(trigger, Every) else trigger


def next_fires(trigger: Cron | Every | At, now: datetime, count: int) -> Iterator[datetime]:
    """The next fires, at most `count`."""
    for _ in range(count):
        fire = trigger.next_after(now)
        if fire is None:
            return
        yield fire
        now = fire
