"""The page of a job: its next fire in two zones, what a pause swallowed, its tabs, and its forms."""

import re

import pytest

from gnomon.core.model import DAY_MS
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import paused


async def test_the_next_fire_is_shown_in_the_zone_of_the_job_and_in_that_of_the_reader(
    dashboard: DashboardFixture,
) -> None:
    async with dashboard.caller("admin") as admin:
        await admin.registered(name="tokyo", timezone="Asia/Tokyo")

    async with dashboard.visitor("viewer") as viewer:
        shown = text_of(await viewer.get("/ui/jobs/tokyo"))

    assert "Tue 2026-03-03 09:00:00 JST ( Tue 2026-03-03 00:00:00 UTC )" in shown


@pytest.mark.req("H-25")
async def test_resume_shows_what_the_pause_swallowed_and_asks_what_becomes_of_it(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as api:
        await api.post("/v1/jobs/report/pause")
        dashboard.clock.advance(3 * DAY_MS)
        told = (await api.get("/v1/jobs/report")).json()["swallowed"]
    assert told["count"] == 3

    async with dashboard.visitor("admin") as admin:
        page = await admin.get("/ui/jobs/report")
        assert 'data-swallowed="3"' in page.text
        assert "3 planned times, from Tue 2026-03-03 09:00:00 UTC to Thu 2026-03-05 09:00:00 UTC" in text_of(page)

        assert (await admin.send("/ui/jobs/report/resume", missed="perhaps")).status_code == 422
        assert await paused(dashboard)
        await admin.send("/ui/jobs/report/resume", missed="latest")
        assert not await paused(dashboard)
        ledger = text_of(await admin.get("/ui/jobs/report"))

    assert "skipped paused" in ledger
    assert "2 times" in ledger


@pytest.mark.parametrize("missed", ["skip", "all", "spread"])
async def test_every_choice_of_the_page_resumes_the_job(dashboard: DashboardFixture, missed: str) -> None:
    async with dashboard.visitor("admin") as admin:
        await admin.send("/ui/jobs/report/pause")
        dashboard.clock.advance(DAY_MS)
        offered = re.findall(r'<option value="(\w+)"', (await admin.get("/ui/jobs/report")).text)
        assert missed in offered
        await admin.send("/ui/jobs/report/resume", missed=missed, over="10m")

    assert not await paused(dashboard)


async def test_a_trigger_that_is_sent_twice_starts_one_execution(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as operator:
        [key] = re.findall(r'name="key" value="([0-9a-f]{32})"', (await operator.get("/ui/jobs/report")).text)
        first = await operator.send("/ui/jobs/report/trigger", input="", key=key)
        second = await operator.send("/ui/jobs/report/trigger", input="", key=key)

    assert first.headers["location"] == second.headers["location"]


async def test_the_plan_offers_skip_and_move_for_each_coming_fire_to_admins_only(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin, dashboard.visitor("operator") as operator:
        page = (await admin.get("/ui/jobs/report?tab=plan")).text
        other = (await operator.get("/ui/jobs/report?tab=plan")).text

    coming = re.findall(r'<tr data-at="([^"]+)"', page)
    assert len(coming) == 50
    assert len(re.findall(r'action="/ui/jobs/report/skip"', page)) == 100
    assert re.findall(r'<tr data-at="([^"]+)"', other) == coming
    assert "/ui/jobs/report/skip" not in other


async def test_a_job_that_nothing_plans_says_what_starts_it(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as api:
        await api.post("/v1/jobs", {"name": "by-hand", "function": "f", "description": "starts <b>by hand</b>"})

    async with dashboard.visitor("viewer") as viewer:
        head, plan = await viewer.get("/ui/jobs/by-hand"), await viewer.get("/ui/jobs/by-hand?tab=plan")

    assert "Nothing starts it but a trigger." in text_of(head)
    assert "only a trigger starts it" in text_of(plan)
    assert "<b>" not in head.text
