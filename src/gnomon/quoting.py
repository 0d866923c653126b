"""Values as errors show them: on one line, and never without end."""


def escaped(text: str) -> str:
    """The text on one line that no terminal or log obeys, so that input cannot forge what is shown."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def written(value: object) -> str:
    """The value as one would write it; what it is, if it is too deep or too long for that."""
    try:
        return shortened(repr(value), 80)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"


def shortened(text: str, limit: int = 120) -> str:
    """The text, or its beginning."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
