"""The list of jobs, by name, tag, state and text, with the last ticks of each and the newest in a sentence."""

from gnomon.ui.pages.bulk_jobs import ALL
from gnomon.ui.pages.many import match_text
from gnomon.ui.pages.page import DashboardPage, Values
from gnomon.ui.requests import PageRequest

_FILTERS = ("q", "tag", "state")
#: How many jobs a page has: each is explained in a sentence.
_ROWS = 25
_STATES = ("", "active", "running", "waiting", "failing", "paused", "done", "missed")


async def _jobs(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "").strip() for name in _FILTERS}
    order = request.query.get("order", "")
    found = await request.get(
        "/v1/jobs", **filters, order=order, include="why", cursor=request.query.get("cursor"), limit=_ROWS
    )
    return {
        "jobs": found,
        "filters": filters | {"order": order},
        "states": [(one, one or "all") for one in _STATES],
        "match": match_text(filters),
        "all_that_match": f"{ALL}{match_text(filters)}",
        "may_pause": request.allows("pause_jobs"),
        "may_trigger": request.allows("trigger_jobs"),
    }


PAGES: tuple[DashboardPage, ...] = (DashboardPage(path="/ui/jobs", title="Jobs", template="jobs.html", load=_jobs),)
