"""Errors as a person wants to read them: what is wrong, where, and what may have been meant."""

import sys

from gnomon.cli.output import visible
from gnomon.errors import CronError, GnomonError, Position, SentenceError

_WIDTH = 76


def show_error(error: GnomonError) -> None:
    """Print the error to standard error."""
    lines = _schedule_error(error) if isinstance(error, CronError) else [f"error: {error}"]
    sys.stderr.write("\n".join(visible(line) for line in lines) + "\n")


def show_misuse(said: str) -> None:
    """Print what was typed wrongly, in one line; nothing if the help was printed instead."""
    line = " ".join(said.split()).removesuffix(".")
    if line:
        sys.stderr.write(f"error: {visible(line[0].lower() + line[1:])}\n")


def _schedule_error(error: CronError) -> list[str]:
    subject = error.subject if error.in_the_text else f'{error.field} "{error.expression[:_WIDTH]}"'
    lines = [f"error: {subject} {error.reason}"]
    if error.position is not None:
        lines += _caret(error.expression, error.position)
    elif error.field == "expression":
        lines.append(f"  {error.expression[:_WIDTH]}")
    if isinstance(error, SentenceError) and error.expected:
        lines.append(f"expected: {', '.join(error.expected)}")
    if error.suggestion:
        lines.append(f"try: {error.suggestion}")
    return lines


def _caret(text: str, place: Position) -> list[str]:
    """The text, or the part of it around the place, and a mark under the place."""
    from rich.cells import cell_len

    start = max(0, min(place.start - _WIDTH // 2, len(text) - _WIDTH))
    shown = visible(text[start : start + _WIDTH])
    before = cell_len(visible(text[start : place.start]))
    length = cell_len(visible(text[place.start : min(place.end, start + _WIDTH)]))
    return [f"  {shown}", "  " + " " * before + "^" * max(1, length)]
