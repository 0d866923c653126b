"""The picture in docs/states.md is drawn from the table."""

import os
from pathlib import Path

from gnomon.core.runs.states import TERMINAL, TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
BEGIN, END = "```mermaid\n", "```\n"


def picture() -> str:
    lines = ["stateDiagram-v2", "    [*] --> PENDING"]
    for state, exits in TRANSITIONS.items():
        lines += [f"    {state} --> {after}: {signal}" for signal, after in exits.items()]
    lines += [f"    {state} --> [*]" for state in sorted(TERMINAL)]
    return "\n".join(lines) + "\n"


def test_the_picture_shows_the_table() -> None:
    text = PAGE.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, start)
    if os.environ.get("GNOMON_REDRAW"):
        PAGE.write_text(text[:start] + picture() + text[end:])

    assert PAGE.read_text()[start : start + len(picture())] == picture()
