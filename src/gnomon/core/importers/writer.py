"""The writer of a jobs file from an import: its jobs, the original comments, and notes about differences."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gnomon.core.importers.report import ImportedEntry, ImportReport

#: Texts that every YAML parser reads as plain strings, and durations.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_/]*(?:[ .+@-]+[A-Za-z0-9_/]+)*|(?:[0-9]+(?:ms|[dhms]))+")
_WORDS = frozenset("y n yes no on off true false null".split())


def jobs_yaml(imported: ImportReport) -> str:
    """The text of a jobs file."""
    lines = [f"# {_line(remark)}" for remark in imported.remarks]
    carried = [entry for entry in imported.entries if entry.job is not None]
    lines += ["jobs:" if carried else "jobs: []"]
    for number, entry in enumerate(imported.entries):
        lines += [""] if number else []
        lines += _written(entry)
    lines += [f"  # {_line(comment)}".rstrip() for comment in imported.comments]
    return "\n".join(lines) + "\n"


def _written(entry: ImportedEntry) -> Iterator[str]:
    yield from (f"  # {_line(comment)}".rstrip() for comment in entry.comments)
    if entry.job is None:
        yield f"  # left out: {_line(entry.original)} ({_line(entry.place)})"
    yield from (f"  # note: {_line(note.text)}" for note in entry.notes)
    if entry.job is not None:
        first, *others = _mapping(entry.job)
        yield f"  - {first}"
        yield from (f"    {line}" for line in others)


def _mapping(data: dict[str, Any]) -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield f"{key}:"
            yield from (f"  {line}" for line in _mapping(value))
        elif isinstance(value, list):
            yield f"{key}: [{', '.join(map(_scalar, value))}]"
        else:
            yield f"{_scalar(key)}: {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if text.isprintable() and "'" not in text:
        return f"'{text}'"
    return f'"{"".join(_escaped(text))}"'


def _escaped(text: Iterable[str]) -> Iterator[str]:
    for letter in text:
        if letter in '"\\':
            yield "\\" + letter
        elif letter == "\n":
            yield "\\n"
        elif letter == "\t":
            yield "\\t"
        elif letter.isprintable():
            yield letter
        else:
            yield f"\\U{ord(letter):08x}"


def _line(text: str) -> str:
    """The text on one line, without characters that YAML forbids even in comments."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
