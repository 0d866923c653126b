"""What can be asked for in an address: read as strictly as a body."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gnomon.core.said import Said
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
            reason = str(error).partition(" - at ")[0]
            raise FieldError(field, value, f"is refused: {reason[0].lower()}{reason[1:]}") from None
        found[field] = getattr(one, field)
    return kind(**found)


def instant(field: str, value: str | None) -> int | None:
    """The instant that a field names, in milliseconds; None if it was not said."""
    if value is None:
        return None
    # In an address a plus sign stands for a space.
    text = value.replace(" ", "+")
    whole = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18
    return Said({field: int(text) if whole else text}, (field,)).instant(field)
