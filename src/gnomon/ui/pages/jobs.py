"""The list of jobs, by name, tag, state and text, with the last ticks of each and the newest in a sentence."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gnomon.ui.pages.bulk_jobs import ALL
from gnomon.ui.pages.many import match_text
from gnomon.ui.pages.page import DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, segment

_FILTERS = ("q", "tag", "state")
#: How many jobs a page has: each is explained in a sentence.
_ROWS = 25
_STATES = ("", "active", "running", "waiting", "failing", "paused", "done", "missed")


async def _jobs(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "").strip() for name in _FILTERS}
    order = request.query.get("order", "")
    found = await request.get(
        "/v1/jobs", **filters, order=order, include="ticks", cursor=request.query.get("cursor"), limit=_ROWS
    )
    return {
        "jobs": found,
        "told": await _sentences(request, found["items"]),
        "filters": filters | {"order": order},
        "states": [(one, one or "all") for one in _STATES],
        "match": match_text(filters),
        "all_that_match": f"{ALL}{match_text(filters)}",
        "may_pause": request.allows("pause_jobs"),
        "may_trigger": request.allows("trigger_jobs"),
    }


async def _sentences(request: PageRequest, jobs: Sequence[Values]) -> dict[str, Any]:
    """The newest tick of each job in the words of the API."""
    decided = [one["job"] for one in jobs if one["ticks"]]
    answers = await asyncio.gather(*(page_part(request, f"/v1/jobs/{segment(name)}/why", last=1) for name in decided))
    return {
        name: answer["found"]["explanations"][0]
        for name, answer in zip(decided, answers, strict=True)
        if answer["found"] and answer["found"]["explanations"]
    }


PAGES: tuple[DashboardPage, ...] = (DashboardPage(path="/ui/jobs", title="Jobs", template="jobs.html", load=_jobs),)
