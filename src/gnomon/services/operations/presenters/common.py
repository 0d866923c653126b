"""Parts that the responses of several subjects have."""

from datetime import datetime
from typing import Any

import msgspec

from gnomon.core.cron import Cron
from gnomon.core.instants import instant_of
from gnomon.core.model import Spec
from gnomon.services.operations.jobs import JobView
from gnomon.services.operations.schedules import ScheduleView

#: A cache of sentences by expression, zone and dialect.
_SENTENCES: dict[tuple[str, str, str], str] = {}
_MOST_SENTENCES = 4096


def schedule_sentence(spec: Spec) -> str:
    """The schedule in one English sentence."""
    trigger = spec.trigger
    if not isinstance(trigger, Cron):
        return trigger.describe()
    key = trigger.expression, trigger.timezone, trigger.dialect
    found = _SENTENCES.get(key)
    if found is None:
        if len(_SENTENCES) >= _MOST_SENTENCES:
            _SENTENCES.clear()
        found = _SENTENCES[key] = trigger.describe()
    return found


def cron_expression(spec: Spec) -> str | None:
    """The cron expression of a schedule; None if it is not a cron schedule."""
    return spec.trigger.expression if isinstance(spec.trigger, Cron) else None


def optional_instant(instant: int | None) -> datetime | None:
    """The instant as a datetime; None for None."""
    return None if instant is None else instant_of(instant)


def decoded(payload: bytes | None) -> Any:  # noqa: ANN401 - any JSON value
    """An input or output, decoded from JSON."""
    return None if payload is None else msgspec.json.decode(payload)


def next_run_at(view: JobView | ScheduleView) -> int | None:
    """The next planned time of a job; None if it is paused or nothing is planned."""
    return None if view.schedule.paused_at is not None else next(iter(view.next_runs), None)
