"""What can be asked for in an address: read as strictly as a body."""

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar, get_args
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from gnomon.api.route import ApiCall
from gnomon.core.jobs.fields import FieldReader, key_text
from gnomon.core.responses import Page
from gnomon.errors import BodyError, FieldError

QueryT = TypeVar("QueryT", bound=Struct)


def read_query(kind: type[QueryT], asked: Mapping[str, str]) -> QueryT:
    """What was asked for; the first field that is wrong is named by the FieldError."""
    FieldReader(asked, kind.__struct_fields__)
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


def parse_instant(field: str, value: str | None) -> int | None:
    """The instant that a field names, in milliseconds; None if it was not said."""
    if value is None:
        return None
    # In an address a plus sign stands for a space.
    text = value.replace(" ", "+")
    whole = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18
    return FieldReader({field: int(text) if whole else text}, (field,)).instant(field)


T = TypeVar("T")


def read_cursor(call: ApiCall, kind: Any) -> Any:  # noqa: ANN401 - each listing has a place of its own kind
    """The place that the caller's cursor names; None if there is none."""
    said = call.asked.get("cursor")
    if said is None:
        return None
    refused = FieldError("cursor", said, "is none that was given out for this question")
    try:
        found, seal = msgspec.json.decode(base64.b64decode(said.encode(), altchars=b"-_", validate=True))
        if seal != _cursor_checksum(call, found):
            raise refused
        return msgspec.convert(found, kind)
    except (binascii.Error, ValueError, TypeError, UnicodeEncodeError):
        raise refused from None


def make_page(call: ApiCall, items: list[T], after: object) -> Page[T]:
    """The page, with the address of the next one if there is something after it."""
    if after is None:
        return Page(items=items)
    found = msgspec.to_builtins(after)
    cursor = base64.urlsafe_b64encode(msgspec.json.encode((found, _cursor_checksum(call, found)))).decode()
    return Page(items=items, next=f"{call.url}?{urlencode({**call.asked, 'cursor': cursor})}")


def _cursor_checksum(call: ApiCall, found: object) -> str:
    """Ties a place to the caller's tenant and to all that was asked for, the size of the page aside."""
    asked = sorted((field, value) for field, value in call.asked.items() if field not in ("cursor", "limit"))
    text = msgspec.json.encode((call.tenant, call.url, asked, found))
    return hashlib.sha256(text).hexdigest()[:16]


#: More than any job needs; the reader of JSON gives up much later.
_DEEPEST = 100


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that the bytes are; BodyError or FieldError if they are anything else."""
    try:
        text = raw.decode("utf-8")
        said = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number)
    except UnicodeDecodeError:
        raise BodyError("the body is no UTF-8") from None
    except RecursionError:
        raise BodyError(f"the body is nested more than {_DEEPEST} deep") from None
    except ValueError as error:
        if isinstance(error, BodyError):
            raise
        raise BodyError(f"the body is no JSON: {_shortened(str(error))}") from None
    if not isinstance(said, dict):
        raise FieldError("body", said, "must be a JSON object")
    _check_text_and_depth(said)
    return said


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BodyError(f"the body says {_shortened(key_text(twice))} twice")
    return found


def _refuse_constant(word: str) -> Any:  # noqa: ANN401 - as the library asks for it
    raise BodyError(f"the body has {word}, which JSON has not")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BodyError(f"the body has {_shortened(text)}, which is no number that can be kept")
    return value


def _check_text_and_depth(said: object) -> None:
    """Texts that no store can hold, and depths that only an attacker needs."""
    ahead: list[tuple[object, int]] = [(said, 1)]
    while ahead:
        value, depth = ahead.pop()
        if depth > _DEEPEST:
            raise BodyError(f"the body is nested more than {_DEEPEST} deep")
        inner: Iterable[object] = ()
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= one <= "\udfff" for one in value)):
            raise BodyError("the body has a character that not every store can hold")
        if isinstance(value, dict):
            inner = (*value, *value.values())
        elif isinstance(value, list):
            inner = value
        ahead += [(one, depth + 1) for one in inner]


def _shortened(text: str) -> str:
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def body_fields(body: Mapping[str, Any], *fields: str) -> FieldReader:
    """The body, of which only these fields may be said."""
    return FieldReader(body, fields)
