"""The jobs of `gnomon cron`: their definitions, the names that they get, and what an update may change.

They are ordinary jobs with a tag, by which the commands know them, also on a server.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from gnomon.core.durations import duration_ms, duration_text
from gnomon.core.jobs.announce_fields import announcements_as_data, read_delivery
from gnomon.core.jobs.fields import NAME
from gnomon.core.model import DAY_MS, MINUTE_MS
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At
from gnomon.errors import FieldError, NotFound, UsageError

#: The tag of every job that these commands make.
CRON_TAG = "cron"
#: The longest delay of a job that runs once.
LONGEST_DELAY_MS = 3660 * DAY_MS
_LONGEST_GENERATED = 40
#: The name of a job whose command has no letter and no digit in ASCII.
_DEFAULT_NAME = "command"
_NO_NAME = re.compile(r"[^a-z0-9]+")
_BARE = re.compile(r"[0-9]{1,12}")
#: How many names an error lists.
_MOST_LISTED = 5


class CronKind(StrEnum):
    """The kinds of schedules that these commands make; each is the field of the job that holds it."""

    CRON = "schedule"
    AT = "at"
    EVERY = "every"


_KIND_WORDS = {
    CronKind.CRON: "runs by a schedule",
    CronKind.AT: "runs once",
    CronKind.EVERY: "runs at an interval",
}
#: The option that changes the schedule of each kind.
_OPTIONS = {CronKind.CRON: "--expression", CronKind.AT: "--at", CronKind.EVERY: "--every"}


class CronDefaults(Struct, frozen=True, kw_only=True):
    """The attempts and the history of the jobs, as the settings have them."""

    retries: int
    backoff_ms: int
    max_backoff_ms: int
    jitter_ms: int
    max_run_history: int


def cron_job(
    name: str,
    command: str,
    schedule: Mapping[str, Any],
    defaults: CronDefaults,
    *,
    keep: bool = True,
    announce: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The definition of a job; `schedule` are the fields of its trigger. One that is not kept runs once.

    `announce` is the field that `delivery_fields` makes.
    """
    longest = max(defaults.backoff_ms, defaults.max_backoff_ms)
    return {
        "name": name,
        "command": command,
        **schedule,
        **({} if keep else {"delete_after_run": True}),
        **(announce or {}),
        "retry": {
            "max_attempts": defaults.retries + 1,
            "initial_delay": duration_text(defaults.backoff_ms),
            "multiplier": 2,
            "max_delay": duration_text(longest),
            "jitter": duration_text(defaults.jitter_ms),
        },
        "retention": {"runs": defaults.max_run_history},
        "tags": [CRON_TAG],
    }


def expression_fields(option: str, expression: str, timezone: str | None) -> dict[str, Any]:
    """The schedule of a job that runs again and again; FieldError for an instant."""
    if isinstance(parse_schedule(expression, timezone=timezone), At):
        raise FieldError(option, expression, "is one instant: use gnomon cron add-at")
    return {CronKind.CRON.value: expression} | ({} if timezone is None else {"timezone": timezone})


def instant_fields(option: str, text: str, at: datetime, *, now: datetime) -> dict[str, Any]:
    """The schedule of a job that runs once; FieldError for an instant that is over."""
    if at <= now:
        raise FieldError(option, text, f"is over: now is {now.isoformat(timespec='seconds')}")
    return {CronKind.AT.value: at.isoformat()}


def delay_ms(option: str, text: str) -> int:
    """The delay of a job that runs once: `30s`, `5m`, `2h`, `1d`; a bare number is minutes."""
    written = text.strip()
    bare = _BARE.fullmatch(written)
    span = int(written) * MINUTE_MS if bare else duration_ms(option, written)
    if not 1 <= span <= LONGEST_DELAY_MS:
        reason = "is no delay" if span < 1 else f"is longer than {duration_text(LONGEST_DELAY_MS)}"
        raise FieldError(option, text, f"{reason}: give one such as 30s, 5m, 2h or 1d")
    return span


def interval_fields(option: str, text: str) -> dict[str, Any]:
    """The schedule of a job that runs at an interval: a number of milliseconds, or a duration such as `5m`."""
    written = text.strip()
    span = int(written) if _BARE.fullmatch(written) else duration_ms(option, written)
    if span < 1:
        raise FieldError(option, text, "is no interval: give milliseconds, or a duration such as 5m")
    return {CronKind.EVERY.value: duration_text(span)}


def delivery_fields(option: str, value: object) -> dict[str, Any]:
    """The announcement that the delivery of another scheduler means; no fields if it means none."""
    rule = read_delivery(option, value)
    return {} if rule is None else {"announce": announcements_as_data((rule,))}


def generated_name(command: str, taken: Collection[str]) -> str:
    """A free name for the job of a command: its words, and a number if another job is called so."""
    words = _NO_NAME.sub("-", command.lower()).strip("-")[:_LONGEST_GENERATED].strip("-") or _DEFAULT_NAME
    number = 1
    while (name := words if number == 1 else f"{words}-{number}") in taken:
        number += 1
    return name


def resolved_name(given: str, names: Sequence[str]) -> str:
    """The one of these names that is meant: in any case, and shortened to as many characters as no other begins with.

    NotFound if there is none, UsageError if there are several.
    """
    written = given.strip().lower()
    if written in names:
        return written
    found = [name for name in names if name.startswith(written)] if NAME.fullmatch(written) else []
    if not found:
        raise NotFound("job of gnomon cron", given)
    if len(found) > 1:
        listed = ", ".join(found[:_MOST_LISTED]) + (", ..." if len(found) > _MOST_LISTED else "")
        raise UsageError(f"{given!r} is the beginning of several names: {listed}")
    return found[0]


def kind_of(definition: Mapping[str, Any]) -> CronKind:
    """The kind of the schedule that a definition has; UsageError if these commands make none of its kind."""
    for kind in CronKind:
        if kind.value in definition:
            return kind
    raise UsageError(
        f"{definition.get('name', 'it')} has no schedule that gnomon cron makes: change it with gnomon jobs"
    )


class CronUpdate(Struct, frozen=True, kw_only=True):
    """The options of an update; None for those that are not given."""

    expression: str | None = None
    timezone: str | None = None
    at: str | None = None
    every: str | None = None
    command: str | None = None
    delivery: str | None = None

    def check(self, name: str, kind: CronKind) -> None:
        """UsageError if the update says nothing, FieldError if an option does not fit the kind of the job."""
        given = {
            "--expression": (self.expression, CronKind.CRON),
            "--tz": (self.timezone, CronKind.CRON),
            "--at": (self.at, CronKind.AT),
            "--every": (self.every, CronKind.EVERY),
        }
        if self.command is None and self.delivery is None and all(value is None for value, _ in given.values()):
            raise UsageError("nothing would change: give --expression, --tz, --at, --every, --command or --delivery")
        for option, (value, fitting) in given.items():
            # With an instant, the zone says where it is.
            if value is not None and kind is not fitting and not (option == "--tz" and self.at is not None):
                reason = f"does not fit: {name} {_KIND_WORDS[kind]}, which {_OPTIONS[kind]} changes"
                raise FieldError(option, value, reason)
