"""Data between steps: `${steps.extract.output.path}`, `${input.mode}`, `${item}`, `${run.planned_at}` inside inputs.

A text that is nothing but one reference becomes the value itself; references inside a longer text become text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gnomon.core.inputs import SECRET_BEGINS
from gnomon.errors import FieldError

#: What a reference may begin with.
ROOTS = ("steps", "input", "item", "index", "run")
_PATH = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+|\[\d{1,9}\])*"
_REFERENCE = re.compile(r"\$\{(" + _PATH + r")\}")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
Scope = Mapping[str, Any]


def references(value: object) -> Iterator[str]:
    """Every reference in a value, however deep. Those to secrets are none of ours."""
    if isinstance(value, str):
        yield from (found[1] for found in _REFERENCE.finditer(value))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from references(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from references(one)


def steps_referred_to(value: object) -> frozenset[str]:
    """The steps whose outputs a value needs."""
    paths = (segments(path) for path in references(value))
    return frozenset(path[1] for path in paths if path[0] == "steps" and len(path) > 1)


def segments(path: str) -> list[str]:
    """The parts of a path."""
    return _SEGMENT.findall(path)


def check_references(field: str, value: object, steps: frozenset[str], *, item: bool) -> None:
    """Refuse a reference that can never mean anything here: an unknown root, or a step that does not come before."""
    for path in references(value):
        root, *rest = segments(path)
        if root not in ROOTS or (root in ("item", "index") and not item):
            raise FieldError(field, f"${{{path}}}", f"must begin with {', '.join(_roots(item=item))}")
        if root == "steps" and (len(rest) < 2 or rest[1] != "output"):
            raise FieldError(field, f"${{{path}}}", "must be steps.STEP.output, and perhaps a path within it")
        if root == "steps" and rest[0] not in steps:
            raise FieldError(field, f"${{{path}}}", f"names {rest[0]}, which this step does not come after")


def _roots(*, item: bool) -> tuple[str, ...]:
    return ROOTS if item else tuple(root for root in ROOTS if root not in ("item", "index"))


def resolved(value: Any, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    """The value with every reference replaced; FieldError for one that leads nowhere."""
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole:
            return looked_up(whole[1], scope)
        return _REFERENCE.sub(lambda found: _spelled(looked_up(found[1], scope)), value)
    if isinstance(value, Mapping):
        return {key: resolved(one, scope) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(one, scope) for one in value]
    return value


def looked_up(path: str, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    """What a path leads to."""
    found: Any = scope
    for part in segments(path):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list | tuple) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise FieldError(f"${{{path}}}", None, f"leads nowhere: there is no {part}")
    if path.startswith("steps"):
        _refuse_secrets(path, found)
    return found


def _refuse_secrets(path: str, value: object) -> None:
    """What a step returned is data: if it could name secrets, whoever writes the data could have them."""
    if isinstance(value, str) and SECRET_BEGINS.search(value):
        raise FieldError(f"${{{path}}}", "[hidden]", "holds a reference to a secret, which only a definition may")
    if isinstance(value, Mapping):
        for key, one in value.items():
            _refuse_secrets(path, key)
            _refuse_secrets(path, one)
    elif isinstance(value, list | tuple):
        for one in value:
            _refuse_secrets(path, one)


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
