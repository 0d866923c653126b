"""The health of this server, by component."""

from gnomon.ui.pages.page import DashboardPage, Values
from gnomon.ui.requests import PageRequest


async def _health(request: PageRequest) -> Values:
    return {"health": await request.get("/v1/health")}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/health", title="Health", template="health.html", load=_health),
)
