"""What is given to a command as JSON."""

import json
from pathlib import Path
from typing import Any

from gnomon.errors import FieldError


def json_given(option: str, given: str | None) -> Any:  # noqa: ANN401 - whether it fits is for others to say
    """What an option says: JSON, or the JSON in the file after an @."""
    if given is None:
        return None
    try:
        text = Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given
        return json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError(option, given, f"cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise FieldError(option, given, f"is no JSON: {error}") from None
