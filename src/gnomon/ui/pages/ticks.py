"""The ledger of all jobs: every planned time and the decision on it."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest, utc_moment


async def _ticks(request: PageRequest) -> Values:
    names = ("job", "kind", "reason", "status", "since", "until")
    filters = {name: request.query.get(name, "").strip() for name in names}
    asked = {**filters, "since": utc_moment(filters["since"]), "until": utc_moment(filters["until"])}
    found = await request.get("/v1/ticks", **asked, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"ticks": found, "filters": filters}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/ticks", title="Ledger", template="ticks.html", load=_ticks, route="list_ticks"),
)
