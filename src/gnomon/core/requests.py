"""What operators write about a schedule, checked field by field."""

import re
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from gnomon.core.cron import Cron, Dst
from gnomon.core.instants import FIRST_SECOND, LAST_SECOND, instant_of, ms_of
from gnomon.core.model import DAY_MS, Catchup, Overlap, Spec
from gnomon.core.parsing import parse_schedule
from gnomon.core.triggers import Every
from gnomon.errors import CronError, FieldError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_LONGEST_TEXT = 1000
#: A fire may come that much before its planned time, and an edit in between must not lose a day.
_MOST_JITTER_MS = 60 * 60_000
_CHOICE = TypeVar("_CHOICE", bound=StrEnum)

#: Names of other schedulers' fields for ours.
_OTHER_NAMES = {
    "cron_expr": "schedule",
    "version": "workflow_version",
    "overlap_policy": "overlap",
    "catchup_policy": "catchup",
}
_OTHER_CHOICES = {"fire_immediately": "all"}
_FIELDS = (
    "schedule_id", "schedule", "timezone", "dialect", "dst", "workflow_id", "workflow_version", "user_id",
    "start_at", "end_at", "overlap", "catchup", "jitter_ms", "misfire_grace_ms", "catchup_window_ms", "queue_limit",
)  # fmt: skip


class Defaults:
    """What counts where a request says nothing."""

    def __init__(
        self,
        *,
        overlap: Overlap = Overlap.SKIP,
        catchup: Catchup = Catchup.NONE,
        jitter_ms: int = 0,
        lookahead_ms: int = 60_000,
        catchup_cap: int = 100,
    ) -> None:
        self.overlap, self.catchup, self.jitter_ms = overlap, catchup, jitter_ms
        self.lookahead_ms, self.catchup_cap = lookahead_ms, catchup_cap


def read_request(request: Mapping[str, Any], defaults: Defaults, *, now: int) -> tuple[str | None, Spec]:
    """The name that was asked for, if any, and the spec; the first field that is wrong is named by the error."""
    said = _known_fields(request)
    name = said.get("schedule_id")
    if name is not None:
        schedule_name("schedule_id", name)
    start, end = _instant(said, "start_at"), _instant(said, "end_at")
    if start is not None and end is not None and end <= start:
        raise FieldError("end_at", said["end_at"], "must be after start_at")
    trigger = _trigger(said)
    if isinstance(trigger, Every):
        trigger = trigger.anchored(instant_of(now if start is None else start))
    spec = Spec(
        trigger=trigger,
        workflow_id=schedule_name("workflow_id", _required(said, "workflow_id")),
        workflow_version=_whole(said, "workflow_version", 1, low=1, high=2**31 - 1),
        user_id=_text(said, "user_id", ""),
        start_at=start,
        end_at=end,
        overlap=_choice(said, "overlap", Overlap, defaults.overlap),
        catchup=_choice(said, "catchup", Catchup, defaults.catchup),
        jitter_ms=_whole(said, "jitter_ms", defaults.jitter_ms, low=0, high=_MOST_JITTER_MS),
        misfire_grace_ms=_whole(said, "misfire_grace_ms", 60_000, low=0, high=365 * DAY_MS),
        catchup_window_ms=_whole(said, "catchup_window_ms", DAY_MS, low=0, high=365 * DAY_MS),
        catchup_cap=defaults.catchup_cap,
        queue_limit=_whole(said, "queue_limit", 100, low=1, high=10_000),
        lookahead_ms=defaults.lookahead_ms,
    )
    return name, spec


def schedule_name(field: str, value: object) -> str:
    """The value, if it is a name: lower-case ASCII letters, digits, dots, dashes and underscores."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        reason = "must be 1 to 128 of a-z, 0-9, dot, dash and underscore, beginning with a letter or digit"
        raise FieldError(field, value, reason)
    return value


def _known_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key, value in request.items():
        name = _OTHER_NAMES.get(key, key)
        if name not in _FIELDS:
            near = get_close_matches(str(key), _FIELDS, n=1)
            raise FieldError(str(key), value, "is no field" + (f"; did you mean {near[0]}?" if near else ""))
        if name in said:
            raise FieldError(str(key), value, f"says {name} a second time")
        said[name] = value
    return said


def _trigger(said: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of the three triggers
    text = _text(said, "schedule", None)
    zone = _text(said, "timezone", None) if said.get("timezone") is not None else None
    dst = said.get("dst")
    if dst is not None and not isinstance(dst, Mapping):
        raise FieldError("dst", dst, "must be a mapping with gap and fold")
    unknown = sorted(set(dst or ()) - {"gap", "fold"}, key=str)
    if unknown:
        raise FieldError(f"dst.{unknown[0]}", (dst or {})[unknown[0]], "is no field")
    choice = Dst(**dst) if dst is not None else None
    if said.get("dialect", "standard") == "standard":
        return parse_schedule(text, timezone=zone, dst=choice)
    return Cron(text, zone or "UTC", said["dialect"], choice or Dst())


def _required(said: Mapping[str, Any], field: str) -> object:
    if field not in said:
        raise FieldError(field, None, "is missing")
    return said[field]


def _text(said: Mapping[str, Any], field: str, default: str | None) -> str:
    return printable(field, said.get(field, default) if default is not None else _required(said, field))


def printable(field: str, value: object) -> str:
    """The value, if it is a text of moderate length that every store can hold."""
    if not isinstance(value, str):
        raise FieldError(field, value, "must be a text")
    if len(value) > _LONGEST_TEXT:
        raise FieldError(field, value, f"has {len(value)} characters; at most {_LONGEST_TEXT} are taken")
    if not value.isprintable():
        raise FieldError(field, value, "has a character that cannot be printed")
    return value


def _whole(said: Mapping[str, Any], field: str, default: int, *, low: int, high: int) -> int:
    value = said.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FieldError(field, value, f"must be a whole number from {low} to {high}")
    return value


def _choice(said: Mapping[str, Any], field: str, kind: type[_CHOICE], default: _CHOICE) -> _CHOICE:
    value = said.get(field, default)
    try:
        return kind(_OTHER_CHOICES.get(value, value))
    except (ValueError, TypeError):
        raise FieldError(field, value, f"must be one of {', '.join(kind)}") from None


def _instant(said: Mapping[str, Any], field: str) -> int | None:
    value = said.get(field)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return _on_the_calendar(field, value)
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if instant.tzinfo is None:
            raise FieldError(field, value, "names no time zone")
        return _on_the_calendar(field, ms_of(instant))
    except (TypeError, ValueError) as error:
        if isinstance(error, (FieldError, CronError)):
            raise
        raise FieldError(field, value, "must be an ISO instant or milliseconds since 1970") from None


def _on_the_calendar(field: str, at: int) -> int:
    if not FIRST_SECOND <= at // 1000 <= LAST_SECOND:
        raise FieldError(field, at, "lies outside the calendar")
    return at
