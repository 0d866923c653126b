"""Parse query parameters, cursors and bodies of requests, strictly: unknown or repeated fields are errors."""

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


def read_query(kind: type[QueryT], raw_query: Mapping[str, str]) -> QueryT:
    """Parse the query parameters; FieldError names the first invalid one."""
    FieldReader(raw_query, kind.__struct_fields__)
    found: dict[str, Any] = {}
    for field, value in raw_query.items():
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
    """The values of an enum type, also inside a union; empty for other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [one.value for one in kind]
    return [one for inner in get_args(kind) for one in _choices(inner)]


def parse_instant(field: str, value: str | None) -> int | None:
    """The instant of a query parameter in milliseconds; None if it is missing."""
    if value is None:
        return None
    # In a query a plus sign stands for a space, so that the sign of an offset arrives as one.
    text = value.replace(" ", "+")
    whole = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18
    return FieldReader({field: int(text) if whole else text}, (field,)).instant(field)


T = TypeVar("T")


def read_cursor(call: ApiCall, kind: Any) -> Any:  # noqa: ANN401 - each list has its own type of position
    """The position in the caller's cursor; None without a cursor."""
    cursor = call.raw_query.get("cursor")
    if cursor is None:
        return None
    refused = FieldError("cursor", cursor, "does not belong to this request")
    try:
        found, checksum = msgspec.json.decode(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if checksum != _cursor_checksum(call, found):
            raise refused
        return msgspec.convert(found, kind)
    except (binascii.Error, ValueError, TypeError, UnicodeEncodeError):
        raise refused from None


def make_page(call: ApiCall, items: list[T], after: object) -> Page[T]:
    """The page, with the URL of the next one if there is a position after it."""
    if after is None:
        return Page(items=items)
    found = msgspec.to_builtins(after)
    cursor = base64.urlsafe_b64encode(msgspec.json.encode((found, _cursor_checksum(call, found)))).decode()
    return Page(items=items, next=f"{call.url}?{urlencode({**call.raw_query, 'cursor': cursor})}")


def _cursor_checksum(call: ApiCall, found: object) -> str:
    """Ties a position to the caller's tenant and to the query, the page size aside."""
    query = sorted((field, value) for field, value in call.raw_query.items() if field not in ("cursor", "limit"))
    text = msgspec.json.encode((call.tenant, call.url, query, found))
    return hashlib.sha256(text).hexdigest()[:16]


#: The maximum nesting of a body: more than any job needs, and far below the limit of the JSON parser.
_DEEPEST = 100


def read_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object; BodyError or FieldError if the bytes are anything else."""
    try:
        text = raw.decode("utf-8")
        body = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number)
    except UnicodeDecodeError:
        raise BodyError("the body is not UTF-8") from None
    except RecursionError:
        raise BodyError(f"the body is nested more than {_DEEPEST} deep") from None
    except ValueError as error:
        if isinstance(error, BodyError):
            raise
        raise BodyError(f"the body is not JSON: {_shortened(str(error))}") from None
    if not isinstance(body, dict):
        raise FieldError("body", body, "must be a JSON object")
    _check_text_and_depth(body)
    return body


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BodyError(f"the body has {_shortened(key_text(twice))} twice")
    return found


def _refuse_constant(word: str) -> Any:  # noqa: ANN401 - the signature that json.loads requires
    raise BodyError(f"the body has {word}, which is not JSON")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BodyError(f"the body has {_shortened(text)}, which is out of range")
    return value


def _check_text_and_depth(body: object) -> None:
    """Refuse texts that a store cannot hold, and nesting beyond the limit."""
    ahead: list[tuple[object, int]] = [(body, 1)]
    while ahead:
        value, depth = ahead.pop()
        if depth > _DEEPEST:
            raise BodyError(f"the body is nested more than {_DEEPEST} deep")
        inner: Iterable[object] = ()
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= one <= "\udfff" for one in value)):
            raise BodyError("the body has a NUL or a lone surrogate, which not every store can hold")
        if isinstance(value, dict):
            inner = (*value, *value.values())
        elif isinstance(value, list):
            inner = value
        ahead += [(one, depth + 1) for one in inner]


def _shortened(text: str) -> str:
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def body_fields(body: Mapping[str, Any], *fields: str) -> FieldReader:
    """A reader of the body; other fields than these are errors."""
    return FieldReader(body, fields)
