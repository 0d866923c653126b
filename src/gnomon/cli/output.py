"""How results are printed: for people as text, for machines as JSON or YAML."""

import json
import sys
from enum import StrEnum


class Format(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(data: object, form: Format) -> None:
    """Print plain data for a machine."""
    if form is Format.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under their headings, as wide as they need to be."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def visible(text: str) -> str:
    """The text with every character a terminal might obey or hide replaced by a question mark."""
    return "".join(character if character.isprintable() else "?" for character in text)
