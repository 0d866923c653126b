"""What callers send, read strictly: nothing that two readers could understand differently gets in."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.core.jobs.fields import Said, key_text
from gnomon.errors import BodyError, FieldError

#: More than any job needs; the reader of JSON gives up much later.
_DEEPEST = 100


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that the bytes are; BodyError or FieldError if they are anything else."""
    try:
        text = raw.decode("utf-8")
        said = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_number)
    except UnicodeDecodeError:
        raise BodyError("the body is no UTF-8") from None
    except RecursionError:
        raise BodyError(f"the body is nested more than {_DEEPEST} deep") from None
    except ValueError as error:
        if isinstance(error, BodyError):
            raise
        raise BodyError(f"the body is no JSON: {_short(str(error))}") from None
    if not isinstance(said, dict):
        raise FieldError("body", said, "must be a JSON object")
    _refuse_oddities(said)
    return said


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BodyError(f"the body says {_short(key_text(twice))} twice")
    return found


def _no_number(word: str) -> Any:  # noqa: ANN401 - as the library asks for it
    raise BodyError(f"the body has {word}, which JSON has not")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BodyError(f"the body has {_short(text)}, which is no number that can be kept")
    return value


def _refuse_oddities(said: object) -> None:
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


def _short(text: str) -> str:
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def said_in(body: Mapping[str, Any], *fields: str) -> Said:
    """The body, of which only these fields may be said."""
    return Said(body, fields)
