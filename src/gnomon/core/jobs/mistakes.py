"""Finds all mistakes of a definition, where reading it stops at the first.

A field that is refused is replaced by a value that fits, or removed, and the definition is read again. So a mistake
that only follows from another one is not told.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from gnomon.errors import FieldError

#: How many mistakes of one definition are reported.
MOST_MISTAKES = 20
#: Values for fields that others depend on.
_STAND_INS: dict[str, Any] = {
    "name": "name",
    "step": "step",
    "function": "function",
    "command": "true",
    "http": {"url": "https://example.com/"},
    "url": "https://example.com/",
    "agent": {"prompt": "prompt"},
    "prompt": "prompt",
    "network": True,
    "schedule": "@daily",
    "at": "2100-01-01T00:00:00Z",
    "every": "1h",
    "on": {"event": "event"},
}
_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


def mistakes(definition: Mapping[str, Any], read: Callable[[Mapping[str, Any]], object]) -> list[FieldError]:
    """The errors that `read` raises, each for another field; empty if it accepts the definition."""
    left, found = deepcopy(dict(definition)), list[FieldError]()
    while len(found) < MOST_MISTAKES:
        try:
            read(left)
        except FieldError as error:
            if error.field in {other.field for other in found}:
                break
            found.append(error)
            if not _repaired(left, error.field):
                break
        else:
            break
    return found


def _repaired(definition: dict[str, Any], path: str) -> bool:
    """Replace or remove the field that the path leads to; False if there is none."""
    holder, key = definition, ""
    value: Any = definition
    for name, index in _STEP.findall(path):
        if name and isinstance(value, dict):
            holder, key = value, name
            value = value.get(name)
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            break
    if key in _STAND_INS:
        holder[key] = deepcopy(_STAND_INS[key])
        return True
    # Without its steps, a job would lack a function.
    return key != "dag" and holder.pop(key, None) is not None
