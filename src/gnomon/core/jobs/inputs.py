"""Inputs of runs: plain JSON of limited size, with references to secrets but without secrets, checked by a schema."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.core.jobs.fields import key_text
from gnomon.core.runs.expressions import SECRET, SECRET_BEGINS
from gnomon.errors import FieldError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

LARGEST_INPUT = 65_536
_DEEPEST = 64
_NUMBERS = range(-(2**63), 2**63)


def read_input(field: str, value: object) -> dict[str, Any]:
    """A copy of the value; raise FieldError unless it is a mapping that every store can hold and not too large."""
    if not isinstance(value, Mapping):
        raise FieldError(field, value, "must be a mapping")
    copy: dict[str, Any] = read_json(field, value)
    return copy


def read_json(field: str, value: object) -> Any:  # noqa: ANN401 - as varied as JSON is
    """A copy of the value; raise FieldError unless it is JSON that every store can hold and not too large."""
    copy = _plain(field, value, _DEEPEST)
    check_size(field, copy)
    return copy


def read_schema(field: str, value: object) -> dict[str, Any]:
    """A copy of the value; raise FieldError unless it is a JSON Schema without external references."""
    from jsonschema_rs import ValidationError

    schema = read_input(field, value)
    try:
        _validator(schema)
    except ValidationError as error:
        wrong = schema if error.instance is None else error.instance
        raise FieldError(_under(field, error.instance_path), wrong, f"is no JSON Schema: {error.message}") from None
    return schema


def check_input(field: str, value: Mapping[str, Any], schema: Mapping[str, Any] | None) -> None:
    """Raise FieldError if the schema does not admit the input; it names the path of the first wrong value."""
    if schema is None:
        return
    error = next(_validator(schema).iter_errors(dict(value)), None)
    if error is not None:
        reason = f"is refused by input_schema: {error.message}"
        raise FieldError(_under(field, error.instance_path), error.instance, reason)


def check_size(field: str, value: object) -> None:
    """Raise FieldError if the value is too large as compact JSON."""
    size = len(msgspec.json.encode(value))
    if size > LARGEST_INPUT:
        reason = f"has {size} bytes; at most {LARGEST_INPUT} are allowed: pass a reference to large data instead"
        raise FieldError(field, value, reason)


def _plain(field: str, value: object, depth: int) -> Any:  # noqa: ANN401 - as varied as JSON is
    """A copy of the value, made of JSON types only."""
    if not depth:
        raise FieldError(field, value, f"is nested more than {_DEEPEST} deep")
    if isinstance(value, Mapping):
        return {_key(field, key): _plain(f"{field}.{key_text(key)}", inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{field}[{index}]", inner, depth - 1) for index, inner in enumerate(value)]
    if isinstance(value, str):
        return _text(field, value)
    if isinstance(value, int) and value not in _NUMBERS:
        raise FieldError(field, value, "is a number of more than 64 bits: give it as a text")
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError(field, value, "is no number that JSON has")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise FieldError(field, value, "is nothing that JSON has")


def _key(field: str, key: object) -> str:
    if not isinstance(key, str):
        raise FieldError(field, key, "is a key, but no text")
    if SECRET_BEGINS.search(key):
        raise FieldError(field, key, "is a key, and keys name no secrets")
    return _storable(field, key)


def _text(field: str, value: str) -> str:
    if len(SECRET_BEGINS.findall(value)) != len(SECRET.findall(value)):
        raise FieldError(field, value, "names a secret, but not as in ${secret:NAME}")
    return _storable(field, value)


def _storable(field: str, value: str) -> str:
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise FieldError(field, value, "has a character that not every store can hold")
    return value


def _under(field: str, path: Sequence[str | int]) -> str:
    return field + "".join(f"[{step}]" if isinstance(step, int) else f".{key_text(step)}" for step in path)


def _validator(schema: Mapping[str, Any]) -> "Validator":
    from jsonschema_rs import RegexOptions, validator_for

    # These patterns are matched in linear time: an expensive pattern must not block a node.
    return validator_for(dict(schema), retriever=_no_retrieval, pattern_options=RegexOptions())


def _no_retrieval(address: str) -> Any:  # noqa: ANN401 - as the library requires
    raise ValueError(f"{address} is an external reference, and those are not fetched")
