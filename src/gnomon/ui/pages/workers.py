"""The live workers."""

from gnomon.ui.pages.page import DashboardPage, Values
from gnomon.ui.requests import PageRequest


async def _workers(request: PageRequest) -> Values:
    return {"workers": await request.get("/v1/workers")}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/workers", title="Workers", template="workers.html", load=_workers),
)
