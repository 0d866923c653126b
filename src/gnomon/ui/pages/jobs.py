"""Jobs: the list, one job, and the forms that pause, resume, trigger and skip."""

import asyncio
from typing import Any

from gnomon.errors import FieldError
from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, read_json_field, segment


async def _jobs(request: PageRequest) -> Values:
    query = request.query
    return {
        "jobs": await request.get("/v1/jobs", tag=query.get("tag"), cursor=query.get("cursor"), limit=PAGE_ROWS),
        "filters": {"tag": query.get("tag", "")},
    }


_TABS = ("ledger", "executions", "definition")


async def _job(request: PageRequest) -> Values:
    name = request.names["name"]
    tab = request.query.get("tab", _TABS[0])
    if tab not in _TABS:
        raise FieldError("tab", tab, f"is none of {', '.join(_TABS)}")
    path, cursor = f"/v1/jobs/{segment(name)}", request.query.get("cursor")
    job, why = await asyncio.gather(request.get(path), page_part(request, f"{path}/why", last=1))
    values: dict[str, Any] = {"title": name, "job": job, "why": why, "tab": tab, "tabs": _TABS, "rows": None}
    if tab == "ledger":
        values["rows"] = await request.get("/v1/ticks", job=name, cursor=cursor, limit=PAGE_ROWS)
    elif tab == "executions":
        values["rows"] = await request.get("/v1/executions", job=name, cursor=cursor, limit=PAGE_ROWS)
    return values


def _job_page(request: PageRequest) -> str:
    return f"/ui/jobs/{segment(request.names['name'])}"


def _job_route(request: PageRequest, verb: str) -> str:
    return f"/v1/jobs/{segment(request.names['name'])}/{verb}"


async def _pause(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "pause"), {})
    return _job_page(request)


async def _resume(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "resume"), {"missed": request.field("missed")})
    return _job_page(request)


async def _trigger(request: PageRequest) -> str:
    body = {"input": read_json_field(request, "input")}
    started = await request.send("POST", _job_route(request, "trigger"), body)
    return f"/ui/executions/{segment(started['execution_id'])}"


async def _skip(request: PageRequest) -> str:
    moved = request.form.get("move_to", "")
    body = {"at": request.field("at")} | ({"move_to": moved} if moved else {})
    await request.send("POST", _job_route(request, "skip"), body)
    return _job_page(request)


async def _unskip(request: PageRequest) -> str:
    await request.send("POST", _job_route(request, "unskip"), {"at": request.field("at")})
    return _job_page(request)


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/jobs", title="Jobs", template="jobs.html", load=_jobs),
    DashboardPage(path="/ui/jobs/{name}", title="Job", template="job.html", load=_job, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/jobs/{name}/pause", run=_pause),
    DashboardForm(path="/ui/jobs/{name}/resume", run=_resume),
    DashboardForm(path="/ui/jobs/{name}/trigger", run=_trigger),
    DashboardForm(path="/ui/jobs/{name}/skip", run=_skip),
    DashboardForm(path="/ui/jobs/{name}/unskip", run=_unskip),
)
