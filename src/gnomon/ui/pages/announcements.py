"""Announcements: the list, one announcement, and the form that tries it again."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment


async def _announcements(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in ("job", "state")}
    found = await request.get("/v1/announcements", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"announcements": found, "filters": filters}


async def _announcement(request: PageRequest) -> Values:
    found = await request.get(f"/v1/announcements/{segment(request.names['id'])}")
    return {"title": f"Announcement about {found['job']}", "announcement": found}


async def _retry(request: PageRequest) -> str:
    await request.send("POST", f"/v1/announcements/{segment(request.names['id'])}/retry")
    return f"/ui/announcements/{segment(request.names['id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/announcements", title="Announcements", template="announcements.html", load=_announcements),
    DashboardPage(
        path="/ui/announcements/{id}",
        title="Announcement",
        template="announcement.html",
        load=_announcement,
        in_menu=False,
    ),
)
FORMS: tuple[DashboardForm, ...] = (DashboardForm(path="/ui/announcements/{id}/retry", run=_retry),)
