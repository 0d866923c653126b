"""What is given to a command as JSON."""

import json
from pathlib import Path
from typing import Any

from gnomon.errors import FieldError


def json_given(option: str, given: str | None) -> Any:  # noqa: ANN401 - whether it fits is for others to say
    """What an option says: JSON, or the JSON in the file after an @."""
    if given is None:
        return None
    if given.startswith("@"):
        return json_file(option, given[1:], given)
    return _json(option, given, given)


def json_file(option: str, path: str, given: str | None = None) -> Any:  # noqa: ANN401 - as above
    """The JSON in a file. `given` is how it was named, if not by its path."""
    said = path if given is None else given
    try:
        return _json(option, Path(path).read_text(encoding="utf-8"), said)
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError(option, said, f"cannot be read: {error}") from None


def _json(option: str, text: str, said: str) -> Any:  # noqa: ANN401 - as above
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(option, said, f"is no JSON: {error}") from None
