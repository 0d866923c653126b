"""Reads which tasks a rule, a budget or a rule about outputs matches."""

from collections.abc import Callable
from typing import Any

from gnomon.core.cron.cron import Cron, known_zone
from gnomon.core.instants import EPOCH
from gnomon.core.jobs.fields import FieldReader, key_text, printable
from gnomon.core.model import DAY_MS, SECOND_MS, RunSource
from gnomon.core.policy.document import RuleMatch, RuleWindow, StepKind
from gnomon.errors import CronError, FieldError

_PATTERN_FIELDS = ("tenants", "jobs", "topics", "functions", "actors", "groups", "secrets")
#: The texts of these are compared in lower case.
_WORD_FIELDS = ("capabilities", "risk_tags", "requires")
#: The conditions about the step of a task, and all conditions.
STEP_MATCH_FIELDS = (*_PATTERN_FIELDS[:4], "kinds", *_WORD_FIELDS, "labels")
MATCH_FIELDS = (*STEP_MATCH_FIELDS, "actors", "groups", "sources", "secrets", "window")
WINDOW_FIELDS = ("cron", "lasts", "timezone")
_MOST_ENTRIES, _MOST_LABELS = 200, 100
_LONGEST_PATTERN = 256
_LONGEST_WINDOW_MS = 366 * DAY_MS


def match_of(fields: FieldReader) -> RuleMatch:
    """The conditions in the field `match`; without it, those that match everything."""
    if "match" not in fields:
        return RuleMatch()
    return read_match(FieldReader(fields["match"], MATCH_FIELDS, path=fields.at("match")))


def read_match(fields: FieldReader) -> RuleMatch:
    """The conditions about the task among the fields."""
    found: dict[str, Any] = {name: read_texts(fields, name) for name in _PATTERN_FIELDS}
    found |= {name: read_texts(fields, name, lambda text: text.strip().lower()) for name in _WORD_FIELDS}
    return RuleMatch(
        **found,
        kinds=_kinds(fields),
        sources=_sources(fields),
        labels=read_labels(fields, "labels") if "labels" in fields else None,
        window=_window(FieldReader(fields["window"], WINDOW_FIELDS, path=fields.at("window")))
        if "window" in fields
        else None,
    )


def read_texts(
    fields: FieldReader,
    field: str,
    spell: Callable[[str], str] = str,
    *,
    most: int = _MOST_ENTRIES,
    longest: int = _LONGEST_PATTERN,
) -> tuple[str, ...] | None:
    """The texts of a list, which is not empty: an empty list would match nothing, and look as if it matched all."""
    if field not in fields:
        return None
    found: dict[str, None] = {}
    for path, entry in fields.entries(field, most=most):
        text = spell(printable(path, entry, longest=longest))
        if not text:
            raise FieldError(path, entry, "is empty")
        if text in found:
            raise FieldError(path, entry, "is named a second time")
        found[text] = None
    if not found:
        raise fields.refused(field, "is empty: leave it out to match everything")
    return tuple(found)


def _kinds(fields: FieldReader) -> tuple[StepKind, ...] | None:
    names = read_texts(fields, "kinds")
    if names is None:
        return None
    for index, name in enumerate(names):
        if name not in tuple(StepKind):
            raise FieldError(f"{fields.at('kinds')}[{index}]", name, f"must be one of {', '.join(StepKind)}")
    return tuple(map(StepKind, names))


def _sources(fields: FieldReader) -> tuple[str, ...] | None:
    names = read_texts(fields, "sources")
    for index, name in enumerate(names or ()):
        if name not in tuple(RunSource):
            raise FieldError(f"{fields.at('sources')}[{index}]", name, f"must be one of {', '.join(RunSource)}")
    return names


def read_labels(fields: FieldReader, field: str) -> dict[str, str]:
    """The labels in the field, at least one."""
    value = fields[field]
    if not isinstance(value, dict) or not value:
        raise fields.refused(field, "must be a mapping of texts with at least one entry")
    if len(value) > _MOST_LABELS:
        raise fields.refused(field, f"has {len(value)} entries; at most {_MOST_LABELS} are allowed")
    found: dict[str, str] = {}
    for key, entry in value.items():
        path = f"{fields.at(field)}.{key_text(key)}"
        name = printable(path, key, longest=_LONGEST_PATTERN)
        found[name] = printable(path, entry, longest=_LONGEST_PATTERN)
    return found


def _window(fields: FieldReader) -> RuleWindow:
    expression = printable(fields.at("cron"), fields.required("cron"))
    zone = fields.text("timezone", "UTC")
    fields.required("lasts")
    lasts = fields.duration("lasts", 0, low=SECOND_MS, high=_LONGEST_WINDOW_MS)
    try:
        known_zone(zone)
    except CronError as error:
        raise FieldError(fields.at("timezone"), zone, f"is unknown: {error}") from None
    try:
        fires = Cron(expression, zone).next_after(EPOCH)
    except CronError as error:
        raise FieldError(fields.at("cron"), expression, f"opens no window: {error}") from None
    if fires is None:
        raise fields.refused("cron", "never fires: the window would never open")
    return RuleWindow(cron=expression, lasts_ms=lasts, timezone=zone)
