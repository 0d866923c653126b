"""Parse query parameters, cursors and bodies of requests, strictly: unknown or repeated fields are errors."""

import base64
import binascii
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from gnomon.api.route import ApiCall
from gnomon.core.jobs.fields import FieldReader, is_storable, key_text
from gnomon.core.responses.base import Page
from gnomon.errors import BodyError, FieldError, truncate
from gnomon.services.loop import ComputeQueue

QueryT = TypeVar("QueryT", bound=Struct)


def read_query(kind: type[QueryT], raw_query: Mapping[str, str]) -> QueryT:
    """Parse the query parameters; FieldError names the first invalid one."""
    # A field has another name than its parameter if that is a keyword.
    names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    FieldReader(raw_query, tuple(names))
    found: dict[str, Any] = {}
    for field, value in raw_query.items():
        try:
            one = msgspec.convert({field: value}, kind, strict=False)
        except msgspec.ValidationError as error:
            raise FieldError(field, value, _reason(error, kind, field)) from None
        found[names[field]] = getattr(one, names[field])
    return kind(**found)


def _reason(error: msgspec.ValidationError, kind: type[Struct], field: str) -> str:
    about = next(one for one in msgspec.structs.fields(kind) if one.encode_name == field)
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


S = TypeVar("S")
T = TypeVar("T")
#: The parts of positions in lists. The seal vouches for a position; the bounds hold even if it did not.
CursorNumber = Annotated[int, Meta(ge=-(2**62), le=2**62)]
CursorName = Annotated[str, Meta(max_length=300)]


async def read_cursor(call: ApiCall, kind: Any) -> Any:  # noqa: ANN401 - each list has its own type of position
    """The position in the caller's cursor; None without a cursor."""
    cursor = call.raw_query.get("cursor")
    if cursor is None:
        return None
    refused = FieldError("cursor", cursor, "does not belong to this request")
    try:
        found, seal = msgspec.json.decode(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if not hmac.compare_digest(seal.encode(), (await _cursor_seal(call, found)).encode()):
            raise refused
        return msgspec.convert(found, kind)
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError):
        raise refused from None


async def make_page(call: ApiCall, present: Callable[[S], T], items: Sequence[S], after: object) -> Page[T]:
    """The page of these items, with the URL of the next one if there is a position after it."""
    shown = await call.services.compute.map(present, items)
    if after is None:
        return Page(items=shown)
    found = msgspec.to_builtins(after)
    cursor = base64.urlsafe_b64encode(msgspec.json.encode((found, await _cursor_seal(call, found)))).decode()
    return Page(items=shown, next=f"{call.url}?{urlencode({**call.raw_query, 'cursor': cursor})}")


async def make_full_page(
    call: ApiCall, present: Callable[[S], T], items: Sequence[S], place: Callable[[S], object]
) -> Page[T]:
    """The page of these items, of at most as many as the query asks for. Behind a full one there may be more."""
    after = place(items[-1]) if len(items) == call.query.limit else None
    return await make_page(call, present, items, after)


async def _cursor_seal(call: ApiCall, found: object) -> str:
    """Ties a position to the caller's tenant and to the query, the page size aside.

    Only the store has the key, so that a caller cannot invent a position; all nodes on the store accept each other's.
    """
    query = sorted((field, value) for field, value in call.raw_query.items() if field not in ("cursor", "limit"))
    text = msgspec.json.encode((call.tenant, call.url, query, found))
    return hmac.digest(await call.services.cursor_key(), text, "sha256").hex()[:32]


async def concealed_number(call: ApiCall, number: int) -> str:
    """The number as a position that tells nothing: encrypted under a nonce that is derived from it."""
    key, plain = await call.services.cursor_key(), number.to_bytes(8)
    nonce = hmac.digest(key, b"nonce" + call.tenant.encode() + plain, "sha256")[:_NONCE_BYTES]
    return (nonce + _xor(plain, _number_mask(key, nonce))).hex()


async def revealed_number(call: ApiCall, position: str | None) -> int | None:
    """The number in a position of `concealed_number`; the seal of its cursor vouches for it."""
    if position is None:
        return None
    key, raw = await call.services.cursor_key(), bytes.fromhex(position)
    nonce, hidden = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
    return int.from_bytes(_xor(hidden, _number_mask(key, nonce)))


def _number_mask(key: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, b"mask" + nonce, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=False))


_NONCE_BYTES = 16

#: The maximum nesting of a body: more than any job needs, and far below the limit of the JSON parser.
_DEEPEST = 100
#: Larger bodies are parsed in a thread.
_LARGE = 65_536


def read_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object; BodyError or FieldError if the bytes are anything else."""
    try:
        text = raw.decode("utf-8")
        body = _DECODER.decode(text) if len(text) <= LONGEST_VALUE else _parse_in_parts(text)
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


async def read_object_in_turn(raw: bytes, compute: ComputeQueue) -> dict[str, Any]:
    """The same, in a thread if the body is large: it takes too long on the event loop, which the ticker shares."""
    return read_object(raw) if len(raw) < _LARGE else await compute.run_in_thread(partial(read_object, raw))


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


def _check_text_and_depth(value: object, depth: int = 1) -> None:
    """Refuse texts that a store cannot hold, and nesting beyond the limit."""
    if depth > _DEEPEST:
        raise BodyError(f"the body is nested more than {_DEEPEST} deep")
    if isinstance(value, str):
        if not is_storable(value):
            raise BodyError("the body has a NUL or a lone surrogate, which not every store can hold")
    elif isinstance(value, dict):
        for key, entry in value.items():
            _check_text_and_depth(key, depth + 1)
            _check_text_and_depth(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_text_and_depth(entry, depth + 1)


#: The longest value in characters that is parsed in one go: the parser holds the interpreter for some milliseconds.
LONGEST_VALUE = 262_144
_DECODER: Any = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number)
_BLANK = re.compile(r"[ \t\n\r]*")


def _parse_in_parts(text: str) -> Any:  # noqa: ANN401 - as varied as JSON is
    """Parse a long JSON object: each entry by itself, and each item of an entry that is a list."""
    reader = _PartReader(text)
    if not reader.skip("{"):
        return _DECODER.decode(text[:LONGEST_VALUE])
    pairs: list[tuple[str, Any]] = []
    while not reader.skip("}"):
        if pairs:
            reader.expect(",")
        key = reader.value()
        if not isinstance(key, str):
            raise BodyError(f"the body is not JSON: a name must be a text, before character {reader.place}")
        reader.expect(":")
        pairs.append((key, _parse_list(reader) if reader.skip("[") else reader.value()))
    reader.expect_end()
    return _object(pairs)


def _parse_list(reader: "_PartReader") -> list[Any]:
    items: list[Any] = []
    while not reader.skip("]"):
        if items:
            reader.expect(",")
        items.append(reader.value())
    return items


class _PartReader:
    """Reads values from a long text, of which it copies one part after another: the parser cannot be stopped."""

    def __init__(self, text: str) -> None:
        self._text = text
        #: The part that is being read, where it begins in the text, and the next character in it.
        self._part, self._begins, self._next = text[:LONGEST_VALUE], 0, 0

    @property
    def place(self) -> int:
        """The next character."""
        return self._begins + self._next

    def skip(self, letter: str) -> bool:
        """Whether this character comes next, after white space; it is skipped."""
        self._skip_blanks()
        found = self._text[self.place : self.place + 1] == letter
        self._next += found
        return found

    def expect(self, letter: str) -> None:
        """Skip this character; BodyError if another one comes next."""
        if not self.skip(letter):
            raise BodyError(f"the body is not JSON: expecting {letter!r} at character {self.place}")

    def expect_end(self) -> None:
        """BodyError if anything but white space follows."""
        self._skip_blanks()
        if self.place < len(self._text):
            raise BodyError(f"the body is not JSON: extra data at character {self.place}")

    def value(self) -> Any:  # noqa: ANN401 - as varied as JSON is
        """The next value; BodyError if there is none, or if it is too long."""
        self._skip_blanks()
        found, end = self._scanned()
        if end is None and self._next:
            self._begins, self._next = self.place, 0
            self._part = self._text[self._begins : self._begins + LONGEST_VALUE]
            found, end = self._scanned()
        if end is not None:
            self._next = end
            return found
        if self._begins + len(self._part) < len(self._text):
            raise BodyError(
                f"the value at character {self.place} is not JSON, or longer than {LONGEST_VALUE} characters"
            )
        raise BodyError(f"the body is not JSON: expecting a value at character {self.place}")

    def _scanned(self) -> tuple[Any, int | None]:
        """The value at the next character, and where it ends in the part; None if it does not end there."""
        try:
            found, end = _DECODER.scan_once(self._part, self._next)
        except (StopIteration, json.JSONDecodeError):
            return None, None
        # A number that reaches to the end of the part may go on.
        return found, end if end < len(self._part) or self._begins + end == len(self._text) else None

    def _skip_blanks(self) -> None:
        blanks = _BLANK.match(self._text, self.place)
        self._next = (blanks.end() if blanks else self.place) - self._begins


def _shortened(text: str) -> str:
    return truncate("".join(one if one.isprintable() else "?" for one in text), 80)


def body_fields(body: Mapping[str, Any], *fields: str) -> FieldReader:
    """A reader of the body; other fields than these are errors."""
    return FieldReader(body, fields)


def refuse_other_filters(call: ApiCall) -> None:
    """Raise FieldError if a prefix is not the only filter."""
    for field, value in call.raw_query.items():
        if field not in ("prefix", "limit"):
            raise FieldError(field, value, "cannot be used with prefix")
