"""The quarantine: outputs that are held back, a look at one, and the forms that release and discard it."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, FormAnswer, Values
from gnomon.ui.requests import PageRequest, segment

_LIST = "/ui/quarantine"


async def _held_outputs(request: PageRequest) -> Values:
    filters = {"status": request.query.get("status", "held")}
    wanted = "" if filters["status"] == "all" else filters["status"]
    found = await request.get("/v1/quarantine", status=wanted, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"outputs": found, "filters": filters}


def _route(request: PageRequest) -> str:
    return f"/v1/quarantine/{segment(request.names['id'])}"


async def _look(request: PageRequest) -> FormAnswer:
    """Show the content. A form asks for it, because the audit trail records each look."""
    found = await request.get(_route(request))
    return FormAnswer(template="held_output.html", values={"title": f"Held output of {found['job']}", "output": found})


async def _release(request: PageRequest) -> str:
    done = await request.send("POST", f"{_route(request)}/release", {"reason": request.field("reason")})
    return f"/ui/executions/{segment(done['execution_id'])}"


async def _discard(request: PageRequest) -> str:
    await request.send("POST", f"{_route(request)}/discard", {"reason": request.form.get("reason", "")})
    return f"{_LIST}?status=discarded"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(
        path=_LIST, title="Quarantine", template="quarantine.html", load=_held_outputs, route="list_held_outputs"
    ),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/quarantine/{id}/look", run=_look),
    DashboardForm(path="/ui/quarantine/{id}/release", run=_release),
    DashboardForm(path="/ui/quarantine/{id}/discard", run=_discard),
)
