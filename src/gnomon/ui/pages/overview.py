"""The first page: what needs attention, in numbers that lead to their rows, and the newest rows with their reasons."""

import asyncio
from typing import Any

from gnomon.core.instants import instant_of
from gnomon.ui.pages.page import FEW_ROWS, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, segment

#: For how many reasons of ticks that did not run the page shows the newest one in a sentence.
_REASONS = 4


async def _overview(request: PageRequest) -> Values:
    """The numbers, and the rows behind those that ask for somebody."""
    found = await page_part(request, "/v1/overview")
    seen = found["found"] or {}
    names = ("failed_rows", "running_rows", "letter_rows", "approval_rows")
    rows = await asyncio.gather(
        _rows(request, seen.get("failed")),
        _rows(request, seen.get("running")),
        _rows(request, seen.get("dead_letters")),
        _rows(request, seen.get("approvals")),
        *(_newest(request, group) for group in (seen.get("not_run") or ())[:_REASONS]),
    )
    asked_at = instant_of(request.now()).isoformat()
    return {"overview": found, "asked_at": asked_at, **dict(zip(names, rows, strict=False)), "not_run": rows[4:]}


async def _rows(request: PageRequest, count: Values | None) -> Values:
    """The newest of the rows that a number counts."""
    if not count or not count["count"]:
        return {"found": {"items": []}, "error": None}
    return await page_part(request, _limited(count["href"], FEW_ROWS))


async def _newest(request: PageRequest, group: Values) -> dict[str, Any]:
    """The newest tick with a reason, and its explanation."""
    newest = await page_part(request, _limited(group["href"], 1))
    ticks = (newest["found"] or {"items": []})["items"]
    told = None
    if ticks:
        path = f"/v1/jobs/{segment(ticks[0]['job'])}/why"
        told = await page_part(request, path, at=ticks[0]["planned_at"])
    return {**group, "tick": ticks[0] if ticks else None, "told": told}


def _limited(href: str, limit: int) -> str:
    """The address of the first rows of a list."""
    return f"{href}{'&' if '?' in href else '?'}limit={limit}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/", title="Overview", template="overview.html", load=_overview, route="show_overview"),
)
