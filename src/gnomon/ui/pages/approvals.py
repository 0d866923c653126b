"""Approvals: the inbox, one request, the votes, and the end of an approval of commands."""

from collections.abc import Awaitable, Callable

from gnomon.api.route import short_roles
from gnomon.core.approvals.terms import ApprovalTerms, Voter, voter_refusal
from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment


async def _approvals(request: PageRequest) -> Values:
    given = {name: request.query.get(name, "") for name in ("job", "kind")}
    filters = {"status": request.query.get("status", "waiting"), **given}
    wanted = {**filters, "status": "" if filters["status"] == "all" else filters["status"]}
    found = await request.get("/v1/approvals", **wanted, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"approvals": found, "filters": filters}


async def _approval(request: PageRequest) -> Values:
    found = await request.get(f"/v1/approvals/{segment(request.names['id'])}")
    caller = request.session.caller
    return {
        "title": f"Approval of {found['job']}",
        "approval": found,
        "refusal": _refusal(request, found["needs"]),
        "voted": any(vote["voter"] == caller.subject for vote in found["votes"]),
        "may_override": bool(caller.groups) and request.allows("override_approval"),
    }


def _refusal(request: PageRequest, needs: Values) -> str | None:
    """Why the caller may not vote, as far as its name, roles and groups say; the API knows the authors, too."""
    caller = request.session.caller
    terms = ApprovalTerms(
        roles=tuple(needs["roles"]),
        groups=tuple(needs["groups"]),
        voters=tuple(needs["voters"]),
        quorum=needs["quorum"],
        self_approval=needs["self_approval"],
    )
    voter = Voter(name=caller.subject, roles=frozenset(short_roles(caller)), groups=caller.groups)
    return voter_refusal(terms, voter, ())


def _vote(verb: str) -> Callable[[PageRequest], Awaitable[str]]:
    async def vote(request: PageRequest) -> str:
        body = {"digest": request.field("digest"), "reason": request.form.get("reason", "")}
        await request.send("POST", f"/v1/approvals/{segment(request.names['id'])}/{verb}", body)
        return f"/ui/approvals/{segment(request.names['id'])}"

    return vote


async def _revoke(request: PageRequest) -> str:
    await request.send("POST", f"/v1/approvals/{segment(request.names['id'])}/revoke")
    return f"/ui/approvals/{segment(request.names['id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/approvals", title="Approvals", template="approvals.html", load=_approvals),
    DashboardPage(path="/ui/approvals/{id}", title="Approval", template="approval.html", load=_approval, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/approvals/{id}/approve", run=_vote("approve")),
    DashboardForm(path="/ui/approvals/{id}/reject", run=_vote("reject")),
    DashboardForm(path="/ui/approvals/{id}/override", run=_vote("override")),
    DashboardForm(path="/ui/approvals/{id}/revoke", run=_revoke),
)
