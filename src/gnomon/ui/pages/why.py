"""The reason why a job ran, or did not."""

from gnomon.ui.pages.page import FEW_ROWS, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment


async def _why(request: PageRequest) -> Values:
    job, at = request.query.get("job", ""), request.query.get("at", "")
    if not job:
        return {"answer": None, "job": "", "at": at}
    answer = await request.get(f"/v1/jobs/{segment(job)}/why", at=at or None, last=None if at else FEW_ROWS)
    return {"answer": answer, "job": job, "at": at}


PAGES: tuple[DashboardPage, ...] = (DashboardPage(path="/ui/why", title="Why", template="why.html", load=_why),)
