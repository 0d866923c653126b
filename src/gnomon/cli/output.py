"""How results are printed: for people as text, for machines as JSON or YAML."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from gnomon.core.instants import in_zone

__all__ = [
    "Format",
    "in_zone",
    "let_go_of_broken_output",
    "let_go_of_output",
    "print_data",
    "print_list",
    "print_table",
    "speaks_unicode",
    "visible",
]

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

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=speaks_unicode()))
    else:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=not speaks_unicode()) + "\n")


def speaks_unicode() -> bool:
    """Whether the output can carry every character; if not, data is escaped rather than damaged."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under their headings, as wide as they need to be on a terminal."""
    from rich.cells import cell_len

    lines = [columns, *([visible(cell) for cell in row] for row in rows)]
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


def visible(text: str) -> str:
    """The text with every character a terminal might obey or hide replaced by a question mark."""
    return "".join(character if character.isprintable() else "?" for character in text)


def let_go_of_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def let_go_of_broken_output() -> None:
    """What is still buffered is written, or forgotten if it cannot be."""
    try:
        sys.stdout.flush()
    except OSError:
        let_go_of_output()
