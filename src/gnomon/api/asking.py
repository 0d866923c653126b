"""What can be asked for in an address: read as strictly as a body."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from gnomon.core.jobs.fields import Said
from gnomon.errors import FieldError

T = TypeVar("T", bound=Struct)


def read_query(kind: type[T], asked: Mapping[str, str]) -> T:
    """What was asked for; the first field that is wrong is named by the FieldError."""
    Said(asked, kind.__struct_fields__)
    found: dict[str, Any] = {}
    for field, value in asked.items():
        try:
            one = msgspec.convert({field: value}, kind, strict=False)
        except msgspec.ValidationError as error:
            raise FieldError(field, value, _reason(error, kind, field)) from None
        found[field] = getattr(one, field)
    return kind(**found)


def _reason(error: msgspec.ValidationError, kind: type[Struct], field: str) -> str:
    about = next(one for one in msgspec.structs.fields(kind) if one.name == field)
    choices = _choices(about.type)
    if choices:
        return f"must be one of {', '.join(choices)}"
    reason = str(error).partition(" - at ")[0]
    return f"is refused: {reason[0].lower()}{reason[1:]}"


def _choices(kind: object) -> list[str]:
    """What may be said of a kind that has a few words only."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [one.value for one in kind]
    return [one for inner in get_args(kind) for one in _choices(inner)]


def instant(field: str, value: str | None) -> int | None:
    """The instant that a field names, in milliseconds; None if it was not said."""
    if value is None:
        return None
    # In an address a plus sign stands for a space.
    text = value.replace(" ", "+")
    whole = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18
    return Said({field: int(text) if whole else text}, (field,)).instant(field)
