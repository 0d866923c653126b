"""One job: its ledger, executions, definition and plan, and the forms that trigger, pause, resume, skip and move."""

import asyncio
from typing import Any

from gnomon.errors import FieldError
from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, address, read_json_field, segment, utc_moment

_TABS = ("ledger", "executions", "definition", "plan")
#: How many coming fires the plan lists.
_COMING = 50
#: How many revisions the definition lists.
_REVISIONS = 20


async def _job(request: PageRequest) -> Values:
    name = request.names["name"]
    tab = request.query.get("tab", _TABS[0])
    if tab not in _TABS:
        raise FieldError("tab", tab, f"is none of {', '.join(_TABS)}")
    path, cursor = f"/v1/jobs/{segment(name)}", request.query.get("cursor")
    job, why = await asyncio.gather(
        request.get(path, coming=_COMING if tab == "plan" else 3), page_part(request, f"{path}/why", last=1)
    )
    values: dict[str, Any] = {"title": name, "job": job, "why": why, "tab": tab, "tabs": _TABS, "rows": None}
    if tab == "ledger":
        values["rows"] = await request.get("/v1/ticks", job=name, cursor=cursor, limit=PAGE_ROWS)
    elif tab == "executions":
        values["rows"] = await request.get("/v1/executions", job=name, cursor=cursor, limit=PAGE_ROWS)
    elif tab == "definition":
        values["rows"] = await request.get(f"{path}/revisions", cursor=cursor, limit=_REVISIONS)
    return values


def _page(request: PageRequest) -> str:
    return f"/ui/jobs/{segment(request.names['name'])}"


def _route(request: PageRequest, verb: str) -> str:
    return f"/v1/jobs/{segment(request.names['name'])}/{verb}"


async def _pause(request: PageRequest) -> str:
    await request.send("POST", _route(request, "pause"), {})
    return _page(request)


async def _resume(request: PageRequest) -> str:
    missed = request.field("missed")
    body = {"missed": missed} | ({"over": request.field("over")} if missed == "spread" else {})
    await request.send("POST", _route(request, "resume"), body)
    return _page(request)


async def _trigger(request: PageRequest) -> str:
    """Start an execution with the input of the form; an empty field is the input of the job."""
    given = request.form.get("input", "").strip()
    body = {"input": read_json_field(request, "input")} if given else {}
    if request.form.get("force") == "yes":
        body["force"] = True
    started = await request.send("POST", _route(request, "trigger"), body, key=request.form.get("key"))
    if started["execution_id"] is None:
        raise FieldError("job", request.names["name"], f"was not started: {started['became']}")
    return f"/ui/executions/{segment(started['execution_id'])}"


async def _skip(request: PageRequest) -> str:
    moved = utc_moment(request.form.get("move_to", "").strip())
    body = {"at": request.field("at")} | ({"move_to": moved} if moved else {})
    await request.send("POST", _route(request, "skip"), body)
    return address(_page(request), tab="plan")


async def _unskip(request: PageRequest) -> str:
    await request.send("POST", _route(request, "unskip"), {"at": request.field("at")})
    return address(_page(request), tab="plan")


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/jobs/{name}", title="Job", template="job.html", load=_job, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/jobs/{name}/pause", run=_pause),
    DashboardForm(path="/ui/jobs/{name}/resume", run=_resume),
    DashboardForm(path="/ui/jobs/{name}/trigger", run=_trigger),
    DashboardForm(path="/ui/jobs/{name}/skip", run=_skip),
    DashboardForm(path="/ui/jobs/{name}/unskip", run=_unskip),
)
