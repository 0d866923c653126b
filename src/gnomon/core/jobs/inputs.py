"""Inputs of runs: plain JSON of limited size, with references to secrets but without secrets, checked by a schema."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.core.jobs.fields import is_storable, key_text
from gnomon.core.jobs.schema_cost import SchemaCost, input_size, is_affordable, is_explicable, schema_cost
from gnomon.core.runs.expressions import SECRET, SECRET_BEGINS
from gnomon.errors import FieldError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

LARGEST_INPUT = 65_536
_DEEPEST = 64
_NUMBERS = range(-(2**63), 2**63)
#: The largest compiled pattern, in bytes.
_LARGEST_PATTERN = 1_000_000


def read_input(field: str, value: object) -> dict[str, Any]:
    """A copy of the value; raise FieldError unless it is a mapping that every store can hold and not too large."""
    if not isinstance(value, Mapping):
        raise FieldError(field, value, "must be a mapping")
    copy: dict[str, Any] = read_json(field, value)
    return copy


def read_json(field: str, value: object) -> Any:  # noqa: ANN401 - as varied as JSON is
    """A copy of the value; raise FieldError unless it is JSON that every store can hold and not too large."""
    copy = _plain(field, value, _DEEPEST)
    _check_secrets(field, copy)
    check_size(field, copy)
    return copy


def read_data(field: str, value: object) -> Any:  # noqa: ANN401 - as varied as JSON is
    """Like `read_json`, for data that is no part of a definition: it may hold any text, and names no secrets."""
    copy = _plain(field, value, _DEEPEST)
    check_size(field, copy)
    return copy


def read_schema(field: str, value: object) -> dict[str, Any]:
    """A copy of the value; raise FieldError unless it is a JSON Schema without external references, and not too costly.

    The cost comes first: checking a schema against the schema of schemas takes time, too.
    """
    from jsonschema_rs import ValidationError

    schema = read_input(field, value)
    try:
        _costed_validator(field, schema)
    except ValidationError as error:
        wrong = schema if error.instance is None else error.instance
        raise FieldError(_under(field, error.instance_path), wrong, f"is no JSON Schema: {error.message}") from None
    return schema


def check_input(field: str, value: Mapping[str, Any], schema: Mapping[str, Any] | None) -> None:
    """Raise FieldError if the schema does not admit the input; it names the path of the first wrong value.

    Raise FieldError, too, if the check would take too long.
    """
    if schema is None:
        return
    from jsonschema_rs import ValidationError

    cost, validator = _costed_validator("input_schema", schema)
    plain, size = dict(value), input_size(value, compared=any(cost.comparisons))
    if not is_affordable(cost, size):
        reason = "needs too many checks by input_schema: give fewer values, or simplify the schema"
        raise FieldError(field, value, reason)
    if validator.is_valid(plain):
        return
    if not is_explicable(cost, size):
        raise FieldError(field, value, "is refused by input_schema, which has too many branches to say where")
    try:
        validator.validate(plain)
    except ValidationError as error:
        reason = f"is refused by input_schema: {error.message}"
        raise FieldError(_under(field, error.instance_path), error.instance, reason) from None


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
        return {_key(field, key): _plain_entry(field, key, inner, depth) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_entry(field, index, inner, depth) for index, inner in enumerate(value)]
    if isinstance(value, str):
        return _storable(field, value)
    if isinstance(value, int) and value not in _NUMBERS:
        raise FieldError(field, value, "is a number of more than 64 bits: give it as a text")
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError(field, value, "is no number that JSON has")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise FieldError(field, value, "is nothing that JSON has")


def _plain_entry(field: str, key: object, value: object, depth: int) -> Any:  # noqa: ANN401 - as varied as JSON is
    try:
        return _plain("", value, depth - 1)
    except FieldError as error:
        # The path is put together only for an error: an input may have tens of thousands of values.
        step = f"[{key}]" if isinstance(key, int) else f".{key_text(key)}"
        raise FieldError(f"{field}{step}{error.field}", error.value, error.reason) from None


def _key(field: str, key: object) -> str:
    if not isinstance(key, str):
        raise FieldError(field, key, "is a key, but no text")
    return _storable(field, key)


def _check_secrets(field: str, value: object) -> None:
    """Raise FieldError for a secret that is named in a key, or not as in `${secret:NAME}`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if SECRET_BEGINS.search(key):
                raise FieldError(field, key, "is a key, and keys name no secrets")
            _check_secrets(f"{field}.{key_text(key)}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_secrets(f"{field}[{index}]", inner)
    elif isinstance(value, str) and len(SECRET_BEGINS.findall(value)) != len(SECRET.findall(value)):
        raise FieldError(field, value, "names a secret, but not as in ${secret:NAME}")


def _storable(field: str, value: str) -> str:
    if not is_storable(value):
        raise FieldError(field, value, "has a character that not every store can hold")
    return value


def _under(field: str, path: Sequence[str | int]) -> str:
    return field + "".join(f"[{step}]" if isinstance(step, int) else f".{key_text(step)}" for step in path)


def _costed_validator(field: str, schema: Mapping[str, Any]) -> "tuple[SchemaCost, Validator]":
    """The cost of the schema and its validator; raise FieldError if the schema is too costly."""
    return _cached_validator(field, msgspec.json.encode(schema))


@lru_cache(maxsize=32)
def _cached_validator(field: str, encoded: bytes) -> "tuple[SchemaCost, Validator]":
    from jsonschema_rs import RegexOptions, validator_for

    schema: dict[str, Any] = msgspec.json.decode(encoded)
    cost = schema_cost(field, schema)
    # Patterns are matched in time proportional to their size and to the text. The limits are a second line of defence.
    options = RegexOptions(size_limit=_LARGEST_PATTERN, dfa_size_limit=_LARGEST_PATTERN)
    # Newer drafts would take a format for a remark; the cost counts every format of every draft.
    return cost, validator_for(schema, validate_formats=True, retriever=_no_retrieval, pattern_options=options)


def _no_retrieval(address: str) -> Any:  # noqa: ANN401 - as the library requires
    raise ValueError(f"{address} is an external reference, and those are not fetched")
