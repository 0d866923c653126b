"""Agents: what they have spent, their sessions, and the form that clears one."""

import asyncio

from gnomon.ui.pages.page import PAGE_ROWS, DashboardForm, DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, segment


async def _agents(request: PageRequest) -> Values:
    days = request.query.get("days", "7")
    usage, sessions = await asyncio.gather(
        request.get("/v1/agents/usage", days=days), page_part(request, "/v1/sessions", limit=PAGE_ROWS)
    )
    return {"usage": usage, "sessions": sessions, "filters": {"days": days}}


async def _session(request: PageRequest) -> Values:
    name = request.names["id"]
    turns = await request.get(f"/v1/sessions/{segment(name)}", limit=20)
    return {"title": f"Session {name}", "session": name, "turns": turns}


async def _clear(request: PageRequest) -> str:
    await request.send("POST", f"/v1/sessions/{segment(request.names['id'])}/clear")
    return "/ui/agents"


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path="/ui/agents", title="Agents", template="agents.html", load=_agents),
    DashboardPage(
        path="/ui/agents/sessions/{id}", title="Session", template="agent_session.html", load=_session, in_menu=False
    ),
)
FORMS: tuple[DashboardForm, ...] = (DashboardForm(path="/ui/agents/sessions/{id}/clear", run=_clear),)
