"""Times and spans as a person reads them, and as a machine does."""

from datetime import datetime

import msgspec

from gnomon.cli.output import in_zone, visible
from gnomon.core.durations import span_text
from gnomon.core.instants import instant_of
from gnomon.services.operations.presenters import zone_of

__all__ = ["facts", "first_line", "iso", "moment", "span", "zone_of"]


def moment(at: int | datetime | None, zone: str = "UTC") -> str:
    """An instant on the clocks of a zone, which is named; nothing for none."""
    if at is None:
        return ""
    local = in_zone(instant_of(at) if isinstance(at, int) else at, zone)
    return f"{local:%a %Y-%m-%d %H:%M:%S %Z}"


def iso(at: int | None) -> str | None:
    """An instant for machines, spelt as the API does."""
    return None if at is None else msgspec.to_builtins(instant_of(at))


def span(ms: int | None) -> str:
    """A stretch of time in its two largest units; nothing for none."""
    return "" if ms is None else span_text(ms)


def first_line(text: str | None, width: int = 60) -> str:
    """As much of a text as a table has room for."""
    line = (text or "").partition("\n")[0]
    return line if len(line) <= width else f"{line[: width - 1]}…"


def facts(pairs: list[tuple[str, str]]) -> list[str]:
    """Lines of names and what there is to say about them; further lines of a text stand under its first."""
    told = [(name, text) for name, text in pairs if text]
    width = max(len(name) for name, _ in told) + 2
    return [
        visible(f"{'' if place else name:<{width}}{line}")
        for name, text in told
        for place, line in enumerate(text.split("\n"))
    ]
