"""Print results as text, JSON or YAML, and errors as one line each."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import msgspec

from gnomon.cli.reader_zone import reader_zone
from gnomon.core.durations import span_text
from gnomon.core.instants import in_zone, instant_of
from gnomon.errors import CronError, FileError, GnomonError, Position, SentenceError

T = TypeVar("T")


class Format(StrEnum):
    """The values of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(data: object, form: Format) -> None:
    """Print plain data or API responses as JSON or YAML, with the field names and instant format of the API."""
    sys.stdout.write(_data_text(msgspec.to_builtins(data), form))


def _data_text(data: object, form: Format) -> str:
    if form is Format.YAML:
        import yaml

        text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=supports_unicode())
        return text
    return json.dumps(data, indent=2, ensure_ascii=not supports_unicode()) + "\n"


def supports_unicode() -> bool:
    """Whether the output encoding covers Unicode; if not, data is escaped instead of replaced."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under their headings, in columns as wide as their content."""
    from rich.cells import cell_len

    lines = [columns, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_list(found: Sequence[T], form: Format, columns: list[str], row: Callable[[T], list[str]], none: str) -> None:
    """Print a list in the chosen format; as a table, print `none` if the list is empty."""
    if form is not Format.TABLE:
        print_data(found, form)
    elif not found:
        sys.stdout.write(f"{none}\n")
    else:
        print_table(columns, [row(one) for one in found])


def printable(text: str) -> str:
    """The text with control and invisible characters replaced by question marks."""
    return "".join(character if character.isprintable() else "?" for character in text)


def discard_output() -> None:
    """Redirect buffered output to the null device, so that Python does not fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_or_discard_output() -> None:
    """Write buffered output; discard it if it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


_WIDTH = 76


#: The format of the command that is being run, for its errors.
_CHOSEN: ContextVar[Format] = ContextVar("output_format", default=Format.TABLE)


def choose_format(form: Format) -> Format:
    """Print errors in this format, too. For the option `-o`, whose value it returns."""
    _CHOSEN.set(form)
    return form


def show_errors(errors: Sequence[GnomonError]) -> None:
    """Print the errors to standard error, in the format of the command."""
    form = _CHOSEN.get()
    if form is Format.TABLE:
        for error in errors:
            _show_error(error)
    else:
        sys.stderr.write(_data_text({"errors": [_error_data(error) for error in errors]}, form))


def _error_data(error: GnomonError) -> dict[str, object]:
    """The code and the message of an error, and its place and reason if it has them."""
    facts = {name: getattr(error, name, None) for name in ("line", "column", "field", "reason")}
    file = {"file": str(error.file)} if isinstance(error, FileError) else {}
    return {"code": error.code, "message": str(error), **file} | {name: fact for name, fact in facts.items() if fact}


def _show_error(error: GnomonError) -> None:
    lines = _schedule_error(error) if isinstance(error, CronError) else [f"error: {error}"]
    sys.stderr.write("\n".join(printable(line) for line in lines) + "\n")


def show_usage_error(message: str) -> None:
    """Print a usage error in one line; nothing if it is empty because the help was printed."""
    line = " ".join(message.split()).removesuffix(".")
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
    """The text, or the part of it around `place`, and carets under `place`."""
    from rich.cells import cell_len

    start = max(0, min(place.start - _WIDTH // 2, len(text) - _WIDTH))
    shown = printable(text[start : start + _WIDTH])
    before = cell_len(printable(text[start : place.start]))
    length = cell_len(printable(text[place.start : min(place.end, start + _WIDTH)]))
    return [f"  {shown}", "  " + " " * before + "^" * max(1, length)]


def format_instant(at: int | datetime | None, zone: str | None = None) -> str:
    """The instant with the abbreviation of its zone: see `reader_zone`; an empty string for None."""
    return format_instant_in(at, reader_zone(zone))


def format_instant_in(at: int | datetime | None, zone: str) -> str:
    """The instant in this time zone, whatever the reader chose; an empty string for None."""
    if at is None:
        return ""
    local = in_zone(instant_of(at) if isinstance(at, int) else at, zone)
    return f"{local:%a %Y-%m-%d %H:%M:%S %Z}"


def format_iso(at: int | None) -> str | None:
    """The instant in the ISO 8601 format of the API."""
    return None if at is None else msgspec.to_builtins(instant_of(at))


def format_duration(ms: int | None) -> str:
    """The duration in its two largest units; an empty string for None."""
    return "" if ms is None else span_text(ms)


def first_line(text: str | None, width: int = 60) -> str:
    """The first line of a text, truncated to `width` characters."""
    line = (text or "").partition("\n")[0]
    return line if len(line) <= width else f"{line[: width - 1]}…"


def format_fields(pairs: list[tuple[str, str]]) -> list[str]:
    """One line per name and text, aligned; further lines of a text are indented under its first."""
    filled = [(name, text) for name, text in pairs if text]
    width = max(len(name) for name, _ in filled) + 2
    return [
        printable(f"{'' if place else name:<{width}}{line}")
        for name, text in filled
        for place, line in enumerate(text.split("\n"))
    ]


@contextmanager
def progress_spinner(what: str) -> Iterator[None]:
    """Show a spinner on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
