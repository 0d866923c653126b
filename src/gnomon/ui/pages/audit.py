"""The audit trail."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest


async def _audit(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in ("actor", "action", "kind", "name")}
    found = await request.get("/v1/audit", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"entries": found, "filters": filters}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/audit", title="Audit", template="audit.html", load=_audit, route="list_audit_entries"),
)
