"""The coming fires."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest


async def _schedule(request: PageRequest) -> Values:
    hours = request.query.get("hours", "24")
    found = await request.get("/v1/schedule", hours=hours, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"fires": found, "filters": {"hours": hours}}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/schedule", title="Coming fires", template="schedule.html", load=_schedule),
)
