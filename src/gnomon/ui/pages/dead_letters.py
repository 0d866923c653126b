"""Dead letters, and the forms that replay and resolve them."""

from gnomon.errors import FieldError
from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, address, segment


async def _dead_letters(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "") for name in ("job", "resolved")}
    found = await request.get("/v1/dead-letters", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"letters": found, "filters": filters}


async def _replay(request: PageRequest) -> str:
    replayed = await request.send("POST", f"/v1/dead-letters/{segment(request.names['id'])}/replay")
    if replayed["execution_id"] is None:
        raise FieldError("dead letter", request.names["id"], replayed["refused"] or "was not replayed")
    return f"/ui/executions/{segment(replayed['execution_id'])}"


async def _resolve(request: PageRequest) -> str:
    await request.send("PATCH", f"/v1/dead-letters/{segment(request.names['id'])}", {"resolved": True})
    return address("/ui/dead-letters", job=request.form.get("job"))


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/dead-letters", title="Dead letters", template="dead_letters.html", load=_dead_letters),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/dead-letters/{id}/replay", run=_replay),
    DashboardForm(path="/ui/dead-letters/{id}/resolve", run=_resolve),
)
