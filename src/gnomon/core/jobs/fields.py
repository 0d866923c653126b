"""Reading a mapping that a user wrote: each field is read by name and checked; errors name it by its path."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from gnomon.core.durations import LONGEST_MS, duration_ms
from gnomon.core.instants import FIRST_SECOND, LAST_SECOND, ms_of
from gnomon.core.jobs.synonyms import unknown_choice, unknown_field
from gnomon.errors import CronError, FieldError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
#: The name of a function.
FUNCTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]{0,254}")
LONGEST_TEXT = 1000
LONGEST_LIST = 1000
LONGEST_KEY = 80
#: The reason that refuses other words for a boolean, with and without quotes.
NO_FLAG = "must be true or false; yes, no, on and off mean different things to different YAML parsers"
_FLAG_WORDS = ("yes", "no", "on", "off")
_CHOICE = TypeVar("_CHOICE", bound=StrEnum)


class FieldReader:
    """Reads the fields of a mapping; an unknown key is an error, and so is a field under two names."""

    def __init__(
        self, mapping: object, known: Iterable[str], *, path: str = "", other_names: Mapping[str, str] | None = None
    ) -> None:
        if not isinstance(mapping, Mapping):
            raise FieldError(path, mapping, f"must be a mapping with {', '.join(known)}")
        self.path = path
        self._values = self._known(mapping, tuple(known), other_names or {})

    def _known(
        self, mapping: Mapping[Any, Any], known: Sequence[str], other_names: Mapping[str, str]
    ) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in mapping.items():
            name = other_names.get(key, key)
            if name not in known:
                raise FieldError(self.at(key_text(key)), value, unknown_field(key, known))
            if name in values:
                raise FieldError(self.at(key_text(key)), value, f"sets {name} a second time")
            values[name] = value
        return values

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401 - nothing is known about it before it is checked
        return self._values[field]

    def at(self, field: str) -> str:
        """The path of the field in the whole document."""
        return f"{self.path}.{field}" if self.path else field

    def refused(self, field: str, reason: str) -> FieldError:
        """The error that refuses this field."""
        return FieldError(self.at(field), self._values.get(field), reason)

    def required(self, field: str) -> Any:  # noqa: ANN401 - nothing is known about it before it is checked
        """The value of the field; raise FieldError if it is missing."""
        if field not in self._values:
            raise self.refused(field, "is missing")
        return self._values[field]

    def name(self, field: str) -> str:
        """The name in the field, which is required."""
        return schedule_name(self.at(field), self.required(field))

    def text(self, field: str, default: str | None = None) -> str:
        """A text of limited length; the field is required if there is no default."""
        if default is not None and field not in self._values:
            return default
        return printable(self.at(field), self.required(field))

    def lines(self, field: str, default: str) -> str:
        """A text that may have several lines."""
        value = self._values.get(field, default)
        printable(self.at(field), value.replace("\n", " ") if isinstance(value, str) else value)
        return str(value)

    def flag(self, field: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._values.get(field, default)
        if not isinstance(value, bool):
            raise self.refused(field, NO_FLAG if str(value).lower() in _FLAG_WORDS else "must be true or false")
        return value

    def whole(self, field: str, default: int, *, low: int, high: int) -> int:
        """A whole number."""
        value = self._values.get(field, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refused(field, f"must be a whole number from {low} to {high}")
        return value

    def number(self, field: str, default: float, *, low: float, high: float) -> float:
        """A number, whole or not."""
        value = self._values.get(field, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self.refused(field, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def choice(
        self, field: str, kind: type[_CHOICE], default: _CHOICE, *, other_names: Mapping[str, str] | None = None
    ) -> _CHOICE:
        """One of the values of the enumeration `kind`."""
        value = self._values.get(field, default)
        if isinstance(value, str):
            try:
                return kind((other_names or {}).get(value, value))
            except ValueError:
                pass
        raise self.refused(field, unknown_choice(str(value), list(kind)))

    def duration(self, field: str, default: int, *, low: int = 0, high: int = LONGEST_MS) -> int:
        """A span in milliseconds."""
        return duration_ms(self.at(field), self[field], low=low, high=high) if field in self else default

    def entries(self, field: str, *, most: int = LONGEST_LIST) -> list[tuple[str, object]]:
        """The entries of a list, each with its path; empty if the field is missing."""
        if field not in self._values:
            return []
        value = self._values[field]
        if not isinstance(value, list | tuple):
            raise self.refused(field, "must be a list")
        if len(value) > most:
            raise self.refused(field, f"has {len(value)} entries; at most {most} are allowed")
        return [(f"{self.at(field)}[{index}]", entry) for index, entry in enumerate(value)]

    def instant(self, field: str) -> int | None:
        """An instant with a time zone, in milliseconds; None if the field is missing."""
        value = self._values.get(field)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return self._on_the_calendar(field, value)
        try:
            instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
            if instant.tzinfo is None:
                raise self.refused(field, "names no time zone")
            return self._on_the_calendar(field, ms_of(instant))
        except ValueError as error:
            if isinstance(error, (FieldError, CronError)):
                raise
            raise self.refused(field, "must be an ISO instant or milliseconds since 1970") from None

    def _on_the_calendar(self, field: str, at: int) -> int:
        if not FIRST_SECOND <= at // 1000 <= LAST_SECOND:
            raise self.refused(field, "lies outside the calendar")
        return at


def key_text(key: object) -> str:
    """A key of user data, made fit for an error message: short, and on one line."""
    text = str(key)[:LONGEST_KEY]
    return text if text.isprintable() else repr(text)


def is_storable(text: str) -> bool:
    """Whether every store can hold the text: it has no NUL and no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def schedule_name(field: str, value: object) -> str:
    """The value; raise FieldError unless it is a name: lower-case ASCII letters, digits, dots, dashes, underscores."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        reason = "must be 1 to 128 of a-z, 0-9, dot, dash and underscore, beginning with a letter or digit"
        raise FieldError(field, value, reason)
    return value


def printable(field: str, value: object, *, longest: int = LONGEST_TEXT) -> str:
    """The value; raise FieldError unless it is a printable text of limited length that every store can hold."""
    if not isinstance(value, str):
        raise FieldError(field, value, "must be a text")
    if len(value) > longest:
        raise FieldError(field, value, f"has {len(value)} characters; at most {longest} are allowed")
    if not value.isprintable():
        raise FieldError(field, value, "has a character that cannot be printed")
    return value


#: The longest idempotency key, and the largest page of a list.
_LONGEST_KEY, _LARGEST_PAGE = 255, 10_000


def idempotency_key(key: str) -> str:
    """The key; raise FieldError if it is empty, too long or not printable."""
    if not key:
        raise FieldError("key", key, "is empty")
    return printable("key", key, longest=_LONGEST_KEY)


def page_limit(limit: int, largest: int = _LARGEST_PAGE) -> int:
    """The number of items of a page; raise FieldError if it is out of range."""
    if not 1 <= limit <= largest:
        raise FieldError("limit", limit, f"must be from 1 to {largest}")
    return limit
