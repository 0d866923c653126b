"""Backfills: the list, one backfill, a preview of another, and the forms that start and cancel them."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, segment, utc_moment

#: How many planned times a preview lists.
_LISTED = 100


async def _backfills(request: PageRequest) -> Values:
    filters = {"job": request.query.get("job", "")}
    found = await request.get("/v1/backfills", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"backfills": found, "filters": filters}


async def _backfill(request: PageRequest) -> Values:
    found = await request.get(f"/v1/backfills/{segment(request.names['id'])}")
    return {"title": f"Backfill of {found['job']}", "backfill": found}


async def _new_backfill(request: PageRequest) -> Values:
    """The form, and once it is filled in the planned times that would run."""
    names = ("job", "from", "to", "again", "max_parallel")
    asked = {name: request.query.get(name, "").strip() for name in names}
    preview = None
    if asked["job"] and asked["from"] and asked["to"]:
        path = f"/v1/jobs/{segment(asked['job'])}/backfill/preview"
        preview = await request.send("POST", path, _range(asked))
    return {"wanted": asked, "preview": preview, "listed": _LISTED}


def _range(fields: Values) -> Values:
    return {
        "from": utc_moment(fields["from"]),
        "to": utc_moment(fields["to"]),
        "again": fields.get("again", "") == "yes",
    }


async def _start(request: PageRequest) -> str:
    most = request.form.get("max_parallel", "")
    body = {**_range(request.form), "max_parallel": int(most) if most.isdecimal() else most or 1}
    path = f"/v1/jobs/{segment(request.field('job'))}/backfill"
    started = await request.send("POST", path, body, key=request.field("key"))
    return f"/ui/backfills/{segment(started['backfill_id'])}"


async def _cancel(request: PageRequest) -> str:
    await request.send("POST", f"/v1/backfills/{segment(request.names['id'])}/cancel")
    return f"/ui/backfills/{segment(request.names['id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/backfills", title="Backfills", template="backfills.html", load=_backfills),
    DashboardPage(
        path="/ui/backfills/new",
        title="New backfill",
        template="new_backfill.html",
        load=_new_backfill,
        route="preview_backfill",
        in_menu=False,
    ),
    DashboardPage(path="/ui/backfills/{id}", title="Backfill", template="backfill.html", load=_backfill, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (
    DashboardForm(path="/ui/backfills/start", run=_start),
    DashboardForm(path="/ui/backfills/{id}/cancel", run=_cancel),
)
