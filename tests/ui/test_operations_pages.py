"""Pages about operations: the quarantine, backfills, events, announcements, workers, agents and breakers."""

import re

import pytest

from gnomon.core.agents.rules import AgentSpending
from gnomon.ports.tasks import WorkerInfo
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE, executed


async def held_output(dashboard: DashboardFixture) -> str:
    async with dashboard.caller("admin") as admin:
        return await dashboard.hold_back_output(await admin.triggered())


async def looks(dashboard: DashboardFixture) -> int:
    """How many looks at outputs the audit trail records."""
    async with dashboard.caller("admin") as admin:
        return len((await admin.get("/v1/audit?kind=output&action=look")).json()["items"])


# ---- the quarantine ------------------------------------------------------------------------------


@pytest.mark.req("R-05")
async def test_the_list_of_held_outputs_shows_no_content_and_a_look_is_audited(dashboard: DashboardFixture) -> None:
    held = await held_output(dashboard)

    async with dashboard.visitor("admin") as admin:
        listed = await admin.get("/ui/quarantine")
        assert "report / main" in text_of(listed)
        assert '"held"' not in re.sub(r"<[^>]*>", "", listed.text)
        assert await looks(dashboard) == 0

        shown = await admin.send(f"/ui/quarantine/{held}/look")
        assert shown.status_code == 200
        assert '"held"' in text_of(shown)
        assert await looks(dashboard) == 1


async def test_an_admin_releases_a_held_output_with_a_reason(dashboard: DashboardFixture) -> None:
    held = await held_output(dashboard)

    async with dashboard.visitor("admin") as admin:
        assert (await admin.send(f"/ui/quarantine/{held}/release", reason=" ")).status_code == 422
        done = await admin.send(f"/ui/quarantine/{held}/release", reason="an example")
        assert "completed" in text_of(await admin.get(done.headers["location"]))
        listed = text_of(await admin.get("/ui/quarantine?status=released"))

    assert "admin@example.com" in listed
    assert "an example" in listed


async def test_an_admin_discards_a_held_output_once(dashboard: DashboardFixture) -> None:
    held = await held_output(dashboard)

    async with dashboard.visitor("admin") as admin:
        assert (await admin.send(f"/ui/quarantine/{held}/discard")).status_code == 303
        assert "discarded" in text_of(await admin.get("/ui/quarantine?status=all"))
        assert (await admin.send(f"/ui/quarantine/{held}/discard")).status_code == 409


async def test_the_quarantine_is_in_the_menu_of_admins_only(dashboard: DashboardFixture) -> None:
    for role, listed in (("admin", True), ("operator", False), ("viewer", False)):
        async with dashboard.visitor(role) as visitor:
            assert ('href="/ui/quarantine"' in (await visitor.get("/ui/")).text) is listed
            assert ((await visitor.get("/ui/quarantine")).status_code == 200) is listed


# ---- backfills -----------------------------------------------------------------------------------

_RANGE = "from=2026-02-26T00:00&to=2026-03-01T00:00"


async def test_a_backfill_is_previewed_started_once_and_cancelled(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("operator") as api:
        body = {"from": "2026-02-26T00:00:00Z", "to": "2026-03-01T00:00:00Z"}
        wanted = (await api.post("/v1/jobs/report/backfill/preview", body)).json()

    async with dashboard.visitor("operator") as visitor:
        page = await visitor.get(f"/ui/backfills/new?job=report&{_RANGE}")
        assert f"{len(wanted['to_run'])} to run, {wanted['had_a_run']} had a run" in text_of(page)
        for at in wanted["to_run"]:
            assert f'datetime="{at}"' in page.text

        [key] = re.findall(r'name="key" value="([0-9a-f]{32})"', page.text)
        fields = {
            "job": "report",
            "from": "2026-02-26T00:00",
            "to": "2026-03-01T00:00",
            "key": key,
            "max_parallel": "2",
        }
        first = await visitor.send("/ui/backfills/start", **fields)
        second = await visitor.send("/ui/backfills/start", **fields)
        assert first.headers["location"] == second.headers["location"]

        shown = text_of(await visitor.get(first.headers["location"]))
        assert "under way report" in shown
        await visitor.send(f"{first.headers['location']}/cancel")
        assert "cancelled" in text_of(await visitor.get(first.headers["location"]))
        assert "cancelled" in text_of(await visitor.get("/ui/backfills?job=report"))


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("job=nothing&from=2026-02-26T00:00&to=2026-03-01T00:00", 404, "nothing"),
        ("job=report&from=someday&to=2026-03-01T00:00", 422, "from"),
        ("job=report&from=2026-03-01T00:00&to=2026-02-01T00:00", 422, "to"),
    ],
)
async def test_a_range_that_is_none_is_refused_by_name(
    dashboard: DashboardFixture, query: str, status: int, reason: str
) -> None:
    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get(f"/ui/backfills/new?{query}")

    assert page.status_code == status
    assert reason in text_of(page)


async def test_a_viewer_previews_a_backfill_and_cannot_start_it(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get(f"/ui/backfills/new?job=report&{_RANGE}")

    assert "to run" in text_of(page)
    assert "/ui/backfills/start" not in page.text


# ---- events --------------------------------------------------------------------------------------


async def test_an_event_is_emitted_once_and_shows_what_it_started(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        listener = {"name": "retrain", "function": "ml.retrain", "on": {"event": "data.ready"}}
        assert (await admin.post("/v1/jobs", listener)).status_code == 201

    async with dashboard.visitor("operator") as visitor:
        fields = {"name": "data.ready", "body": '{"rows": 7}', "key": "monday"}
        first = await visitor.send("/ui/events/emit", **fields)
        again = await visitor.send("/ui/events/emit", **fields)
        assert first.headers["location"] == again.headers["location"]

        page = await visitor.get(first.headers["location"])
        assert '"rows": 7' in text_of(page)
        assert re.search(r'href="/ui/executions/run_', page.text)
        assert "retrain" in text_of(await visitor.get("/ui/events?name=data.ready"))
        assert "No event is named" in text_of(await visitor.get("/ui/events?name=other"))


async def test_the_body_of_an_event_stays_text(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("operator") as api:
        event = (await api.post("/v1/events", {"name": "odd", "body": {"text": HOSTILE}})).json()["event_id"]

    async with dashboard.visitor("viewer") as viewer:
        page = (await viewer.get(f"/ui/events/{event}")).text

    assert "<script>alert" not in page
    assert "\u202e" not in page


# ---- announcements, breakers ---------------------------------------------------------------------


async def test_an_announcement_that_was_given_up_is_tried_again(dashboard: DashboardFixture) -> None:
    announcement = await dashboard.given_up_announcement()

    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get(f"/ui/announcements/{announcement}")
        assert "answered 403" in text_of(page)
        assert "retry" not in page.text
    async with dashboard.visitor("operator") as visitor:
        assert "given_up" in text_of(await visitor.get("/ui/announcements?state=given_up"))
        done = await visitor.send(f"/ui/announcements/{announcement}/retry")
        assert "pending" in text_of(await visitor.get(done.headers["location"]))
        assert (await visitor.send(f"/ui/announcements/{announcement}/retry")).status_code == 409


async def test_an_operator_closes_a_breaker(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as visitor:
        assert "No task has used a breaker" in text_of(await visitor.get("/ui/breakers"))
        await dashboard.open_breaker()
        assert "stripe open" in text_of(await visitor.get("/ui/breakers"))
        await visitor.send("/ui/breakers/stripe/reset")
        assert "stripe closed" in text_of(await visitor.get("/ui/breakers"))


# ---- workers, agents -----------------------------------------------------------------------------


async def test_the_page_of_workers_shows_pools_and_the_functions_that_none_has(dashboard: DashboardFixture) -> None:
    now = dashboard.clock.now()
    for name, functions in (("w1", ("f",)), ("w2", ("g",))):
        card = WorkerInfo(
            worker=name, functions=functions, slots=5, started_at=now, labels={"zone": "eu"}, in_hand=2, pool="gpu"
        )
        await dashboard.store.workers.register(card, ttl_ms=1000)

    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get("/ui/workers")

    shown = text_of(page)
    assert "gpu 2 4 10" in shown
    assert "zone=eu" in shown
    assert 'data-missing="reports.make"' in page.text
    assert 'data-missing="f"' not in page.text


async def test_the_page_of_agents_shows_what_they_have_spent(dashboard: DashboardFixture) -> None:
    spent = AgentSpending(requests=3, input_tokens=900, output_tokens=80, cost_micros=1_250_000, model="small")
    await executed(dashboard, usage=spent)
    dashboard.keep_turn()

    async with dashboard.visitor("operator") as visitor:
        shown = text_of(await visitor.get("/ui/agents"))
        assert "1.25 today" in shown
        assert "2026-03-02 small 1 3 900 80" in shown
        assert "report 1 3 900 80 1.25" in shown
        assert "triage" in shown
        assert "run_1" in text_of(await visitor.get("/ui/agents/sessions/triage"))
        await visitor.send("/ui/agents/sessions/triage/clear")
        assert "No session has history" in text_of(await visitor.get("/ui/agents"))
