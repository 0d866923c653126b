"""Approvals: the inbox, one request, and the votes."""

from collections.abc import Awaitable, Callable

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment


async def _approvals(request: PageRequest) -> Values:
    filters = {"status": request.query.get("status", "waiting"), "job": request.query.get("job", "")}
    wanted = {**filters, "status": "" if filters["status"] == "all" else filters["status"]}
    found = await request.get("/v1/approvals", **wanted, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"approvals": found, "filters": filters}


async def _approval(request: PageRequest) -> Values:
    found = await request.get(f"/v1/approvals/{segment(request.names['id'])}")
    return {"title": f"Approval of {found['job']}", "approval": found}


def _vote(verb: str) -> Callable[[PageRequest], Awaitable[str]]:
    async def vote(request: PageRequest) -> str:
        body = {"digest": request.field("digest"), "reason": request.form.get("reason", "")}
        await request.send("POST", f"/v1/approvals/{segment(request.names['id'])}/{verb}", body)
        return f"/ui/approvals/{segment(request.names['id'])}"

    return vote


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/approvals", title="Approvals", template="approvals.html", load=_approvals),
    DashboardPage(path="/ui/approvals/{id}", title="Approval", template="approval.html", load=_approval, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/approvals/{id}/approve", run=_vote("approve")),
    DashboardForm(path="/ui/approvals/{id}/reject", run=_vote("reject")),
)
