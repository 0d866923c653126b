"""The list of jobs."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest


async def _jobs(request: PageRequest) -> Values:
    query = request.query
    return {
        "jobs": await request.get("/v1/jobs", tag=query.get("tag"), cursor=query.get("cursor"), limit=PAGE_ROWS),
        "filters": {"tag": query.get("tag", "")},
    }


PAGES: tuple[DashboardPage, ...] = (DashboardPage(path="/ui/jobs", title="Jobs", template="jobs.html", load=_jobs),)
