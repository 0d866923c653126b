"""The names under which models act."""

import re

from gnomon.errors import FieldError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
#: A model whose program gives no name.
UNNAMED = "unnamed"


def model_name(field: str, value: str) -> str:
    """The value; FieldError unless it is a name for a model."""
    if not _NAME.fullmatch(value):
        raise FieldError(field, value, "must be 1 to 64 letters, digits, dots, dashes and underscores")
    return value


def name_of_program(given: str) -> str:
    """A name for the model of the program that calls itself so."""
    return _OTHER.sub("-", given[:200]).strip("._-")[:64] or UNNAMED
