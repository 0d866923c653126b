"""Circuit breakers: the list, and the form that closes one."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment


async def _breakers(request: PageRequest) -> Values:
    return {"breakers": await request.get("/v1/breakers", cursor=request.query.get("cursor"), limit=PAGE_ROWS)}


async def _reset(request: PageRequest) -> str:
    await request.send("POST", f"/v1/breakers/{segment(request.names['name'])}/reset")
    return "/ui/breakers"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/breakers", title="Breakers", template="breakers.html", load=_breakers),
)
FORMS: tuple[DashboardForm, ...] = (DashboardForm(path="/ui/breakers/{name}/reset", run=_reset),)
