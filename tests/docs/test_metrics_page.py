"""The table in docs/metrics.md is that of the code."""

import os
from pathlib import Path

from gnomon.config.sections import MetricsSettings
from gnomon.core.metrics import METRICS
from support.promql import exposed_name

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- table -->\n", "<!-- end -->\n"


def table() -> str:
    rows = ["| name | kind | labels | exported by | |", "| --- | --- | --- | --- | --- |"]
    for measure in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in measure.labels)
        name = exposed_name(measure, MetricsSettings().prefix)
        rows.append(f"| `{name}` | {measure.kind} | {labels} | {measure.scope} | {measure.help} |")
    return "\n".join(rows) + "\n"


def test_the_page_shows_every_metric() -> None:
    text = PAGE.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, start)
    if os.environ.get("GNOMON_REDRAW"):
        PAGE.write_text(text[:start] + table() + text[end:])

    assert PAGE.read_text()[start : start + len(table())] == table()
