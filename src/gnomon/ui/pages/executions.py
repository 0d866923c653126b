"""Executions: the list, one execution with its steps and log, and the form that cancels it."""

import asyncio

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, segment

#: How many lines of a log a page shows at first.
_LOG_LINES = 200


async def _executions(request: PageRequest) -> Values:
    names = ("job", "status", "trigger", "waiting", "tag", "since", "until")
    filters = {name: request.query.get(name, "") for name in names}
    found = await request.get("/v1/executions", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"executions": found, "filters": filters}


async def _execution(request: PageRequest) -> Values:
    path = f"/v1/executions/{segment(request.names['id'])}"
    execution, log = await asyncio.gather(
        request.get(path), page_part(request, f"{path}/logs", limit=_LOG_LINES, cursor=request.query.get("cursor"))
    )
    why = None
    if execution["tick_key"] is not None:
        why = await page_part(request, f"/v1/jobs/{segment(execution['job'])}/why", at=execution["planned_at"])
    return {"title": execution["execution_id"], "execution": execution, "log": log, "why": why}


async def _cancel(request: PageRequest) -> str:
    route = f"/v1/executions/{segment(request.names['id'])}"
    await request.send("POST", f"{route}/cancel")
    return f"/ui/executions/{segment(request.names['id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/executions", title="Executions", template="executions.html", load=_executions),
    DashboardPage(
        path="/ui/executions/{id}", title="Execution", template="execution.html", load=_execution, in_menu=False
    ),
)
FORMS: tuple[DashboardForm, ...] = (DashboardForm(path="/ui/executions/{id}/cancel", run=_cancel),)
