"""The diagram and the table in docs/states.md are generated from the table of transitions."""

import os
from pathlib import Path

import pytest

from gnomon.core.runs.states import INITIAL, TERMINAL, TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", *(f"    [*] --> {state}" for state in INITIAL)]
    lines += [f"    {before} --> {after}" for before, exits in TRANSITIONS.items() for after in exits]
    lines += [f"    {state} --> [*]" for state in sorted(TERMINAL)]
    return "\n".join([*lines, "```\n"])


def table() -> str:
    lines = ["| from | to | when |", "|---|---|---|"]
    lines += [f"| (new) | {state} | {when} |" for state, when in INITIAL.items()]
    lines += [
        f"| {before} | {after} | {when} |" for before, exits in TRANSITIONS.items() for after, when in exits.items()
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("part", "end"), [(diagram(), "```\n"), (table(), "\n\n")], ids=["diagram", "table"])
def test_the_page_shows_the_transitions(part: str, end: str) -> None:
    head = "\n".join(part.splitlines()[:2])
    text = PAGE.read_text()
    if os.environ.get("GNOMON_REDRAW"):
        start = text.index(head)
        stop = text.index(end, start + len(head)) + len(end.removesuffix("\n") if end == "\n\n" else end)
        PAGE.write_text(text[:start] + part + text[stop:])

    assert part in PAGE.read_text()
