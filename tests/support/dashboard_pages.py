"""An address of every page of the dashboard fixture, and texts that pages must not take for markup."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gnomon.core.model import Result
from gnomon.ui.pages import PAGES
from support.dashboard import DashboardFixture

#: Markup, quotes, control characters, and characters that turn the direction of the text.
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}{% raw %}\x1b[2J\u202egnp.exe\u2066"


class ServedPages(Struct, frozen=True):
    """The dashboard fixture on a socket, and an address of each page. A token is a role."""

    dashboard: DashboardFixture
    address: str
    places: dict[str, str]


async def executed(dashboard: DashboardFixture, result: Result = Result.SUCCEEDED, **reported: Any) -> str:  # noqa: ANN401
    """The id of an execution of the job that has ended."""
    async with dashboard.caller("admin") as admin:
        execution = str((await admin.post("/v1/jobs/report/trigger", {"input": {"n": 1}})).json()["execution_id"])
    await dashboard.finish_execution(execution, result, **reported)
    return execution


async def places(dashboard: DashboardFixture) -> Mapping[str, str]:
    """An address of every page."""
    announcement = await dashboard.given_up_announcement()
    async with dashboard.caller("admin") as admin:
        waiting = (await admin.post("/v1/jobs/report/trigger", {"force": True})).json()["execution_id"]
    asked = await dashboard.ask_for_approval(waiting)
    dashboard.keep_turn()
    async with dashboard.caller("admin") as admin:
        body = {"from": "2026-02-26T00:00:00Z", "to": "2026-03-01T00:00:00Z"}
        backfill = (await admin.post("/v1/jobs/report/backfill", body)).json()["backfill_id"]
        event = (await admin.post("/v1/events", {"name": "data.ready", "body": {}})).json()["event_id"]
    names = {
        "/ui/jobs/{name}": "report",
        "/ui/executions/{id}": waiting,
        "/ui/approvals/{id}": asked.approval_id,
        "/ui/announcements/{id}": announcement,
        "/ui/backfills/{id}": backfill,
        "/ui/events/{id}": event,
        "/ui/agents/sessions/{id}": "triage",
    }
    found = {page.path: re.sub(r"\{\w+\}", names.get(page.path, ""), page.path) for page in PAGES}
    return found | {"/ui/calendar/cell": "/ui/calendar/cell?job=report&at=2026-03-03T09:00Z&until=2026-03-03T10:00Z"}


async def paused(dashboard: DashboardFixture) -> bool:
    async with dashboard.caller("viewer") as api:
        return bool((await api.get("/v1/jobs/report")).json()["paused"])
