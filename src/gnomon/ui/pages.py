"""The pages of the dashboard: a row each, with its address, its template and what it asks of the API."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from gnomon.errors import FieldError, GnomonError
from gnomon.ui.requests import PageRequest, segment

Values = Mapping[str, Any]
#: How many rows an overview shows of each kind, and a list on one page.
_FEW, _ROWS = 10, 50
#: How many lines of a log a page shows at first.
_LOG_LINES = 200


class DashboardPage(Struct, frozen=True, kw_only=True):
    """A page that a caller may read."""

    path: str
    #: The name in the menu, and the heading unless the values have another.
    title: str
    template: str
    load: Callable[[PageRequest], Awaitable[Values]]
    #: The route of the API that only those may call who may read the page.
    route: str = "list_jobs"
    in_menu: bool = True


async def _part(request: PageRequest, path: str, **query: str | int | None) -> Values:
    """An answer of the API, or the reason why this part of the page is not known."""
    try:
        return {"found": await request.get(path, **query), "error": None}
    except GnomonError as error:
        return {"found": None, "error": str(error)}


async def _overview(request: PageRequest) -> Values:
    """The newest entries of each kind, and the next fires."""
    parts = await asyncio.gather(
        _part(request, "/v1/health"),
        _part(request, "/v1/schedule", hours=24, limit=_FEW),
        _part(request, "/v1/executions", status="running", limit=_FEW),
        _part(request, "/v1/executions", status="failed", limit=_FEW),
        _part(request, "/v1/ticks", kind="missed", limit=_FEW),
        _part(request, "/v1/dead-letters", limit=_FEW),
        _part(request, "/v1/approvals", status="waiting", limit=_FEW),
        _part(request, "/v1/workers"),
        _part(request, "/v1/jobs", limit=1),
    )
    names = ("health", "coming", "running", "failed", "missed", "dead_letters", "approvals", "workers", "jobs")
    return dict(zip(names, parts, strict=True))


async def _jobs(request: PageRequest) -> Values:
    query = request.query
    return {
        "jobs": await request.get("/v1/jobs", tag=query.get("tag"), cursor=query.get("cursor"), limit=_ROWS),
        "filters": {"tag": query.get("tag", "")},
    }


_TABS = ("ledger", "executions", "definition")


async def _job(request: PageRequest) -> Values:
    name = request.names["name"]
    tab = request.query.get("tab", _TABS[0])
    if tab not in _TABS:
        raise FieldError("tab", tab, f"is none of {', '.join(_TABS)}")
    path, cursor = f"/v1/jobs/{segment(name)}", request.query.get("cursor")
    job, why = await asyncio.gather(request.get(path), _part(request, f"{path}/why", last=1))
    values: dict[str, Any] = {"title": name, "job": job, "why": why, "tab": tab, "tabs": _TABS, "rows": None}
    if tab == "ledger":
        values["rows"] = await request.get("/v1/ticks", job=name, cursor=cursor, limit=_ROWS)
    elif tab == "executions":
        values["rows"] = await request.get("/v1/executions", job=name, cursor=cursor, limit=_ROWS)
    return values


async def _executions(request: PageRequest) -> Values:
    names = ("job", "status", "trigger", "tag", "since", "until")
    filters = {name: request.query.get(name, "") for name in names}
    found = await request.get("/v1/executions", **filters, cursor=request.query.get("cursor"), limit=_ROWS)
    return {"executions": found, "filters": filters}


async def _execution(request: PageRequest) -> Values:
    path = f"/v1/executions/{segment(request.names['id'])}"
    execution, log = await asyncio.gather(
        request.get(path), _part(request, f"{path}/logs", limit=_LOG_LINES, cursor=request.query.get("cursor"))
    )
    why = None
    if execution["tick_key"] is not None:
        why = await _part(request, f"/v1/jobs/{segment(execution['job'])}/why", at=execution["planned_at"])
    return {"title": execution["execution_id"], "execution": execution, "log": log, "why": why}


async def _why(request: PageRequest) -> Values:
    job, at = request.query.get("job", ""), request.query.get("at", "")
    if not job:
        return {"answer": None, "job": "", "at": at}
    answer = await request.get(f"/v1/jobs/{segment(job)}/why", at=at or None, last=None if at else _FEW)
    return {"answer": answer, "job": job, "at": at}


async def _schedule(request: PageRequest) -> Values:
    hours = request.query.get("hours", "24")
    found = await request.get("/v1/schedule", hours=hours, cursor=request.query.get("cursor"), limit=_ROWS)
    return {"fires": found, "filters": {"hours": hours}}


async def _dead_letters(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in ("job", "resolved")}
    found = await request.get("/v1/dead-letters", **filters, cursor=request.query.get("cursor"), limit=_ROWS)
    return {"letters": found, "filters": filters}


async def _approvals(request: PageRequest) -> Values:
    filters = {"status": request.query.get("status", "waiting"), "job": request.query.get("job", "")}
    wanted = {**filters, "status": "" if filters["status"] == "all" else filters["status"]}
    found = await request.get("/v1/approvals", **wanted, cursor=request.query.get("cursor"), limit=_ROWS)
    return {"approvals": found, "filters": filters}


async def _approval(request: PageRequest) -> Values:
    found = await request.get(f"/v1/approvals/{segment(request.names['id'])}")
    return {"title": f"Approval of {found['job']}", "approval": found}


async def _workers(request: PageRequest) -> Values:
    return {"workers": await request.get("/v1/workers")}


async def _health(request: PageRequest) -> Values:
    return {"health": await request.get("/v1/health")}


async def _audit(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in ("actor", "action", "kind", "name")}
    found = await request.get("/v1/audit", **filters, cursor=request.query.get("cursor"), limit=_ROWS)
    return {"entries": found, "filters": filters}


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/", title="Overview", template="overview.html", load=_overview),
    DashboardPage(path="/ui/schedule", title="Coming fires", template="schedule.html", load=_schedule),
    DashboardPage(path="/ui/jobs", title="Jobs", template="jobs.html", load=_jobs),
    DashboardPage(path="/ui/jobs/{name}", title="Job", template="job.html", load=_job, in_menu=False),
    DashboardPage(path="/ui/executions", title="Executions", template="executions.html", load=_executions),
    DashboardPage(
        path="/ui/executions/{id}", title="Execution", template="execution.html", load=_execution, in_menu=False
    ),
    DashboardPage(path="/ui/why", title="Why", template="why.html", load=_why),
    DashboardPage(path="/ui/dead-letters", title="Dead letters", template="dead_letters.html", load=_dead_letters),
    DashboardPage(path="/ui/approvals", title="Approvals", template="approvals.html", load=_approvals),
    DashboardPage(path="/ui/approvals/{id}", title="Approval", template="approval.html", load=_approval, in_menu=False),
    DashboardPage(path="/ui/workers", title="Workers", template="workers.html", load=_workers),
    DashboardPage(path="/ui/health", title="Health", template="health.html", load=_health),
    DashboardPage(path="/ui/audit", title="Audit", template="audit.html", load=_audit, route="list_audit_entries"),
)
