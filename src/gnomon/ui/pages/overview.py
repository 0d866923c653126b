"""The first page: the newest entries of each kind, and the next fires."""

import asyncio

from gnomon.ui.pages.page import FEW_ROWS, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest


async def _overview(request: PageRequest) -> Values:
    """The newest entries of each kind, and the next fires."""
    parts = await asyncio.gather(
        page_part(request, "/v1/health"),
        page_part(request, "/v1/schedule", hours=24, limit=FEW_ROWS),
        page_part(request, "/v1/executions", status="running", limit=FEW_ROWS),
        page_part(request, "/v1/executions", status="failed", limit=FEW_ROWS),
        page_part(request, "/v1/ticks", kind="missed", limit=FEW_ROWS),
        page_part(request, "/v1/dead-letters", limit=FEW_ROWS),
        page_part(request, "/v1/approvals", status="waiting", limit=FEW_ROWS),
        page_part(request, "/v1/workers"),
        page_part(request, "/v1/jobs", limit=1),
    )
    names = ("health", "coming", "running", "failed", "missed", "dead_letters", "approvals", "workers", "jobs")
    return dict(zip(names, parts, strict=True))


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/", title="Overview", template="overview.html", load=_overview),
)
