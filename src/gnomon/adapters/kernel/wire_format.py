"""The binary form of messages over gRPC: the wire format of Protocol Buffers, for the few kinds of fields that we use.

A message is a sequence of fields. Each begins with a number that holds the number of the field and its wire type:
0 a number of 7 bits per byte, 1 eight bytes, 2 bytes behind their length, 5 four bytes. A field that is not known is
skipped; of a field that is there twice the last one counts, and parts of a message that is there twice are merged.
`docs/decisions/0034-messages-of-the-policy-kernel.md` says why there is no library for it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from msgspec import Raw, Struct

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MAX_VARINT_BYTES = 10
_MASK, _SIGN = (1 << 64) - 1, 1 << 63
#: How deep messages may be in each other, and how many fields a message may have with all messages in it.
_DEEPEST, _MOST_FIELDS = 20, 10_000


class WireKind(Enum):
    """The kinds of values."""

    TEXT = "text"
    RAW = "raw"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    #: A number in the message, a word in the program.
    WORD = "word"
    MESSAGE = "message"
    TEXTS = "texts"
    MESSAGES = "messages"
    TEXT_MAP = "text map"


_BY_VARINT = (WireKind.INTEGER, WireKind.BOOLEAN, WireKind.WORD)


class WireField(NamedTuple):
    """A field of a message."""

    number: int
    name: str
    kind: WireKind
    message: "WireMessage | None" = None
    #: The words of its numbers.
    words: Mapping[int, str] = {}


class WireMessage:
    """A message: its class, and its fields."""

    def __init__(self, made: type[Struct], *fields: WireField) -> None:
        self.made, self.fields = made, fields
        self.by_number = {field.number: field for field in fields}


#: The two fields of each entry of a map.
_KEY, _VALUE = WireField(1, "key", WireKind.TEXT), WireField(2, "value", WireKind.TEXT)


# ---- encoding ------------------------------------------------------------------------------------------


def encode(message: WireMessage, value: Struct) -> bytes:
    """The binary form of a value; empty values are left out."""
    written = bytearray()
    for field in message.fields:
        found = getattr(value, field.name)
        if found:
            _write(written, field, found)
    return bytes(written)


def _write(written: bytearray, field: WireField, value: Any) -> None:  # noqa: ANN401 - of the kind of the field
    match field.kind:
        case WireKind.TEXT:
            _write_bytes(written, field.number, value.encode())
        case WireKind.RAW:
            _write_bytes(written, field.number, bytes(value))
        case WireKind.TEXTS:
            for text in value:
                _write_bytes(written, field.number, text.encode())
        case WireKind.TEXT_MAP:
            for key, text in value.items():
                entry = bytearray()
                _write(entry, _KEY, key)
                _write(entry, _VALUE, text)
                _write_bytes(written, field.number, entry)
        case WireKind.MESSAGE | WireKind.MESSAGES:
            _write_messages(written, field, value)
        case WireKind.INTEGER | WireKind.BOOLEAN | WireKind.WORD:
            _write_varint(written, field.number << 3 | _VARINT)
            _write_varint(written, _number(field, value) & _MASK)


def _write_messages(written: bytearray, field: WireField, value: Any) -> None:  # noqa: ANN401
    assert field.message is not None, field.name  # noqa: S101 - a mistake in a table
    for one in value if field.kind is WireKind.MESSAGES else (value,):
        inner = encode(field.message, one)
        if inner or field.kind is WireKind.MESSAGES:
            _write_bytes(written, field.number, inner)


def _number(field: WireField, value: Any) -> int:  # noqa: ANN401
    if field.kind is WireKind.WORD:
        return next((number for number, word in field.words.items() if word == value), 0)
    return int(value)


def _write_bytes(written: bytearray, number: int, data: bytes | bytearray) -> None:
    _write_varint(written, number << 3 | _BYTES)
    _write_varint(written, len(data))
    written += data


def _write_varint(written: bytearray, value: int) -> None:
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)


# ---- decoding ------------------------------------------------------------------------------------------


def decode(message: WireMessage, data: bytes) -> Struct:
    """The value of a binary form; ValueError if it is none."""
    return _made(message, _values(message, memoryview(data), count(1), 0))


def _made(message: WireMessage, values: Mapping[str, Any]) -> Struct:
    made: dict[str, Any] = {}
    for field in message.fields:
        if field.name not in values:
            continue
        value = values[field.name]
        match field.kind:
            case WireKind.MESSAGE:
                assert field.message is not None, field.name  # noqa: S101 - a mistake in a table
                made[field.name] = _made(field.message, value)
            case WireKind.MESSAGES:
                assert field.message is not None, field.name  # noqa: S101 - a mistake in a table
                made[field.name] = tuple(_made(field.message, one) for one in value)
            case WireKind.TEXTS:
                made[field.name] = tuple(value)
            case _:
                made[field.name] = value
    return message.made(**made)


def _values(message: WireMessage, data: memoryview, counted: Iterator[int], depth: int) -> dict[str, Any]:
    """The values of the fields of a message by name; those of messages in it are such mappings, too."""
    if depth > _DEEPEST:
        raise ValueError("its messages are too deep in each other")
    found: dict[str, Any] = {}
    for number, wire_type, value in _fields(data):
        if next(counted) > _MOST_FIELDS:
            raise ValueError(f"it has more than {_MOST_FIELDS} fields")
        field = message.by_number.get(number)
        if field is None:
            continue
        if wire_type != (_VARINT if field.kind in _BY_VARINT else _BYTES):
            raise ValueError(f"the field {field.name} has the wire type {wire_type}")
        if isinstance(value, int):
            found[field.name] = _from_number(field, value)
        else:
            _read(found, field, value, counted, depth)
    return found


def _from_number(field: WireField, value: int) -> int | bool | str:
    if field.kind is WireKind.BOOLEAN:
        return value != 0
    signed = value - (1 << 64) if value & _SIGN else value
    return field.words.get(signed, f"number {signed}") if field.kind is WireKind.WORD else signed


def _read(found: dict[str, Any], field: WireField, data: memoryview, counted: Iterator[int], depth: int) -> None:
    match field.kind:
        case WireKind.TEXT:
            found[field.name] = _text(field, data)
        case WireKind.TEXTS:
            found.setdefault(field.name, []).append(_text(field, data))
        case WireKind.TEXT_MAP:
            entry = {_KEY.name: "", _VALUE.name: ""} | _values(_ENTRY, data, counted, depth + 1)
            found.setdefault(field.name, {})[entry[_KEY.name]] = entry[_VALUE.name]
        case WireKind.MESSAGE | WireKind.MESSAGES:
            assert field.message is not None, field.name  # noqa: S101 - a mistake in a table
            values = _values(field.message, data, counted, depth + 1)
            if field.kind is WireKind.MESSAGES:
                found.setdefault(field.name, []).append(values)
            else:
                found[field.name] = _merged(found.get(field.name, {}), values)
        case _:
            found[field.name] = Raw(bytes(data))


def _merged(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of one message: lists grow, other values are replaced."""
    for name, value in other.items():
        before = one.get(name)
        if isinstance(before, list):
            before += value
        elif isinstance(before, dict):
            one[name] = _merged(before, value)
        else:
            one[name] = value
    return one


def _text(field: WireField, data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the field {field.name} is not UTF-8") from None


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"it has a field with the number {number}")
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            size, at = _varint(data, at)
        elif wire_type in _FIXED:
            size = _FIXED[wire_type]
        else:
            raise ValueError(f"it has a field of the wire type {wire_type}")
        if at + size > end:
            raise ValueError("it ends within a field")
        yield number, wire_type, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & _MASK, at + shift + 1
    raise ValueError("it ends within a number, or has one that is too long")


class _Entry(Struct):
    """An entry of a map."""

    key: str = ""
    value: str = ""


_ENTRY = WireMessage(_Entry, _KEY, _VALUE)
