"""Texts with secrets: the places that a definition marks, and data beside them that stays data.

In a definition `${secret:NAME}` marks the place of a secret, which the worker fills when an attempt starts. A doubled
dollar sign, `$${secret:NAME}`, stands for the text `${secret:NAME}` itself. Every stored or sent input is in this form.

Data never marks a place. `escape_data` turns data into this form, and `text_of` joins parts without making a place of
two halves. A text without `{secret:` is the same in both forms.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
#: A place, or its escaped text: an odd number of dollar signs marks a place. Dollar signs are read once, from the first
#: of them on: a search that begins again at each of them takes seconds for a long row of them.
_PLACE = re.compile(r"(?<!\$)(\$++)\{secret:(" + _NAME + r")\}")
#: A text without this has no place, and nothing to escape.
_HINT = "{secret:"
#: A mapping of another class than dict is encoded as one.
_ENCODER = msgspec.json.Encoder(enc_hook=dict)


class SecretPlace(Struct, frozen=True):
    """The place of a secret in a text."""

    name: str


TextPart = str | SecretPlace


def parts_of(text: str) -> list[TextPart]:
    """The literal parts and the places of a text, in order."""
    if _HINT not in text:
        return [text]
    parts: list[TextPart] = []
    end = 0
    for found in _PLACE.finditer(text):
        dollars = len(found[1])
        literal = text[end : found.start()] + "$" * (dollars // 2)
        parts += (literal, SecretPlace(found[2])) if dollars % 2 else (f"{literal}{{secret:{found[2]}}}",)
        end = found.end()
    return [*parts, text[end:]]


def text_of(parts: Sequence[TextPart]) -> str:
    """The text of these parts: `parts_of` finds the same places in it, and no others."""
    written: list[str] = []
    literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
            continue
        written += (_before_place(_escaped(literal)), f"${{secret:{part.name}}}")
        literal = ""
    return "".join((*written, _escaped(literal)))


def escape_data(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The data as a part of an input: it marks no place."""
    return _each_text(value, _escaped) if has_places(value) else value


def escape_json(body: bytes) -> bytes:
    """The data in JSON as a part of an input in JSON; it is decoded only if it may need escapes."""
    # Another encoder may have written `{` or `:` as an escape sequence.
    if _HINT.encode() not in body and b"\\u00" not in body:
        return body
    return msgspec.json.encode(escape_data(msgspec.json.decode(body)))


def shown_data(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The input as people read it: escaped texts as they were given, places as `${secret:NAME}`."""
    return _each_text(value, _shown) if has_places(value) else value


def has_places(value: object) -> bool:
    """Whether a text in the value may have a place or an escaped text."""
    if isinstance(value, str):
        return _HINT in value
    # One search in its JSON takes a twentieth of the time that a visit to each of its values takes.
    return isinstance(value, Mapping | list | tuple) and _HINT.encode() in _ENCODER.encode(value)


def json_parts(value: object) -> list[TextPart]:
    """The value as JSON, for use inside a text. The places in its texts are places of the result."""
    written = msgspec.json.encode(value).decode()
    return list(_json_parts(value)) if _HINT in written else [written]


def _json_parts(value: object) -> Iterator[TextPart]:
    if isinstance(value, str):
        yield '"'
        for part in parts_of(value):
            yield _json(part)[1:-1] if isinstance(part, str) else part
        yield '"'
    elif isinstance(value, Mapping):
        before = "{"
        for key, entry in value.items():
            yield f"{before}{_json(key)}:"
            yield from _json_parts(entry)
            before = ","
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        before = "["
        for entry in value:
            yield before
            yield from _json_parts(entry)
            before = ","
        yield "]" if value else "[]"
    else:
        yield _json(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _each_text(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON
    """A copy of the value with every text changed; keys are no texts: they hold no places."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each_text(entry, change) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_each_text(entry, change) for entry in value]
    return value


def _escaped(literal: str) -> str:
    return _PLACE.sub(lambda found: f"{found[1]}{found[0]}", literal) if _HINT in literal else literal


def _before_place(text: str) -> str:
    """The text with the dollar signs at its end doubled: they would be read as a part of the place."""
    return text + "$" * (len(text) - len(text.rstrip("$")))


def _shown(text: str) -> str:
    return "".join(part if isinstance(part, str) else f"${{secret:{part.name}}}" for part in parts_of(text))
