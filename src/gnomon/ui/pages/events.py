"""External events: the list, one event with its effects, and the form that emits another."""

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values
from gnomon.ui.requests import PageRequest, read_json_field, segment


async def _events(request: PageRequest) -> Values:
    filters = {"name": request.query.get("name", "")}
    found = await request.get("/v1/events", **filters, cursor=request.query.get("cursor"), limit=PAGE_ROWS)
    return {"events": found, "filters": filters}


async def _event(request: PageRequest) -> Values:
    found = await request.get(f"/v1/events/{segment(request.names['id'])}")
    return {"title": f"Event {found['name']}", "event": found}


async def _emit(request: PageRequest) -> str:
    body = {"name": request.field("name"), "body": read_json_field(request, "body")}
    emitted = await request.send("POST", "/v1/events", body, key=request.field("key"))
    return f"/ui/events/{segment(emitted['event_id'])}"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/events", title="Events", template="events.html", load=_events),
    DashboardPage(path="/ui/events/{id}", title="Event", template="event.html", load=_event, in_menu=False),
)
FORMS: tuple[DashboardForm, ...] = (DashboardForm(path="/ui/events/emit", run=_emit),)
