"""How results are printed: for people as text, for machines as JSON or YAML."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import msgspec

from gnomon.core.durations import span_text
from gnomon.core.instants import in_zone, instant_of
from gnomon.errors import CronError, GnomonError, Position, SentenceError

T = TypeVar("T")


class Format(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(data: object, form: Format) -> None:
    """Print plain data, or answers, for a machine: in the words of the API, instants included."""
    data = msgspec.to_builtins(data)
    if form is Format.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=supports_unicode()))
    else:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=not supports_unicode()) + "\n")


def supports_unicode() -> bool:
    """Whether the output can carry every character; if not, data is escaped rather than damaged."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under their headings, as wide as they need to be on a terminal."""
    from rich.cells import cell_len

    lines = [columns, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_list(found: Sequence[T], form: Format, columns: list[str], row: Callable[[T], list[str]], none: str) -> None:
    """Print what was found, for people a row each; if there is nothing, they are told so."""
    if form is not Format.TABLE:
        print_data(found, form)
    elif not found:
        sys.stdout.write(f"{none}\n")
    else:
        print_table(columns, [row(one) for one in found])


def printable(text: str) -> str:
    """The text with every character a terminal might obey or hide replaced by a question mark."""
    return "".join(character if character.isprintable() else "?" for character in text)


def discard_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_or_discard_output() -> None:
    """What is still buffered is written, or forgotten if it cannot be."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


_WIDTH = 76


def show_error(error: GnomonError) -> None:
    """Print the error to standard error."""
    lines = _schedule_error(error) if isinstance(error, CronError) else [f"error: {error}"]
    sys.stderr.write("\n".join(printable(line) for line in lines) + "\n")


def show_usage_error(said: str) -> None:
    """Print what was typed wrongly, in one line; nothing if the help was printed instead."""
    line = " ".join(said.split()).removesuffix(".")
    if line:
        sys.stderr.write(f"error: {printable(line[0].lower() + line[1:])}\n")


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
    shown = printable(text[start : start + _WIDTH])
    before = cell_len(printable(text[start : place.start]))
    length = cell_len(printable(text[place.start : min(place.end, start + _WIDTH)]))
    return [f"  {shown}", "  " + " " * before + "^" * max(1, length)]


def format_instant(at: int | datetime | None, zone: str = "UTC") -> str:
    """An instant on the clocks of a zone, which is named; nothing for none."""
    if at is None:
        return ""
    local = in_zone(instant_of(at) if isinstance(at, int) else at, zone)
    return f"{local:%a %Y-%m-%d %H:%M:%S %Z}"


def format_iso(at: int | None) -> str | None:
    """An instant for machines, spelt as the API does."""
    return None if at is None else msgspec.to_builtins(instant_of(at))


def format_duration(ms: int | None) -> str:
    """A stretch of time in its two largest units; nothing for none."""
    return "" if ms is None else span_text(ms)


def first_line(text: str | None, width: int = 60) -> str:
    """As much of a text as a table has room for."""
    line = (text or "").partition("\n")[0]
    return line if len(line) <= width else f"{line[: width - 1]}…"


def format_fields(pairs: list[tuple[str, str]]) -> list[str]:
    """Lines of names and what there is to say about them; further lines of a text stand under its first."""
    told = [(name, text) for name, text in pairs if text]
    width = max(len(name) for name, _ in told) + 2
    return [
        printable(f"{'' if place else name:<{width}}{line}")
        for name, text in told
        for place, line in enumerate(text.split("\n"))
    ]


@contextmanager
def progress_spinner(what: str) -> Iterator[None]:
    """A line that moves while it takes long, and nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
