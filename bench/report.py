"""Writes RESULTS.md: each benchmark owns one section and replaces it."""

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEADER = """# Results

The last run of each benchmark, with its machine and date. Peers run in the same process and minute as we do, so compare
the ratios; the figures themselves move with the machine. `make bench` measures again and rewrites this page.
"""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def print_section(title: str, body: str) -> str:
    """Print the section with its machine and date, and return it."""
    section = f"## {title}\n\n{_machine()}\n\n{body}\n"
    print(section)
    return section


def write_section(title: str, body: str) -> None:
    """Print the section and put it into RESULTS.md in place of the last one of that title."""
    section = print_section(title, body)
    text = RESULTS.read_text() if RESULTS.exists() else _HEADER
    pattern = re.compile(rf"## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    found = pattern.search(text)
    RESULTS.write_text(text[: found.start()] + section + text[found.end() :] if found else f"{text}\n{section}")


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} cores {platform.machine()}, {memory:.0f} GiB, {platform.system()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine}, {python}."
