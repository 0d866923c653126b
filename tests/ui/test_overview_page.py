"""The first page: numbers that lead to their rows, and ticks that did not run with the sentence that says why."""

import re
from html import unescape

import pytest
from msgspec.structs import replace

from gnomon.core.model import MINUTE_MS, Result
from gnomon.errors import Unavailable
from gnomon.services.operations.overview import OverviewService
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE

_ROW = re.compile(r"<tr(?! class=\"sub\")[ >]")


@pytest.fixture
async def lived(dashboard: DashboardFixture) -> DashboardFixture:
    """A dashboard of an hour in which ticks ran, did not run, waited and failed."""
    async with dashboard.caller("admin") as admin:
        for name, overlap in (("skips", "skip"), ("queues", "queue")):
            await admin.registered(name=name, schedule="*/10 * * * *", overlap=overlap)
        for _ in range(3):
            dashboard.clock.advance(10 * MINUTE_MS)
            await dashboard.decide()
        for _ in range(2):
            await dashboard.finish_execution(await admin.triggered(), Result.FAILED, error=HOSTILE)
        await dashboard.ask_for_approval(await admin.triggered())
    return dashboard


@pytest.mark.req("H-25")
async def test_every_number_leads_to_as_many_rows(lived: DashboardFixture) -> None:
    async with lived.visitor("viewer") as viewer:
        page = (await viewer.get("/ui/")).text
        numbers = re.findall(r'data-number="\w+" href="(/ui/[^"#]+)"><strong>(\d+)', page)
        groups = re.findall(r'<a href="(/ui/(?:ticks|executions)\?[^"]+)">(\d+) ', page)
        counted = {unescape(href): int(count) for href, count in [*numbers, *groups]}
        rows = {}
        for href in counted:
            shown = await viewer.get(href)
            assert shown.status_code == 200, href
            if href.startswith(("/ui/ticks", "/ui/executions", "/ui/approvals", "/ui/jobs")):
                rows[href] = sum(
                    len(_ROW.findall(body)) for body in re.findall(r"(?s)<tbody>(.*?)</tbody>", shown.text)
                )

    assert rows == {href: counted[href] for href in rows}
    assert len(rows) >= 6
    assert "<script>alert" not in page


@pytest.mark.req("H-25")
async def test_a_tick_that_did_not_run_is_told_in_the_sentence_of_why(lived: DashboardFixture) -> None:
    async with lived.caller("viewer") as api:
        [group] = [one for one in (await api.get("/v1/overview")).json()["not_run"] if one["reason"] == "overlap"]
        [newest] = (await api.get(f"{group['href']}&limit=1")).json()["items"]
        told = (await api.get(f"/v1/jobs/{newest['job']}/why?at={newest['planned_at']}")).json()["explanations"][0]

    async with lived.visitor("viewer") as viewer:
        page = await viewer.get("/ui/")
        assert told["sentence"] in text_of(page)
        links = [unescape(one) for one in re.findall(r'class="told">.*?href="(/ui/why[^"]+)"', page.text)]
        assert any([told["sentence"] in text_of(await viewer.get(link)) for link in links])


async def test_an_installation_without_jobs_says_how_to_get_some(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer/other") as viewer:
        page = await viewer.get("/ui/")

    assert "No jobs yet" in text_of(page)
    assert 'href="/ui/plan"' in page.text


async def test_a_part_that_is_not_known_does_not_take_the_others_with_it(dashboard: DashboardFixture) -> None:
    class Away:
        async def alive(self) -> None:
            raise Unavailable("the store is away")

    services = dashboard.services
    broken = OverviewService(dashboard.store.overview, Away(), services.health, dashboard.clock)  # type: ignore[arg-type]
    dashboard.put(replace(services, overview=broken))

    async with dashboard.visitor("viewer") as viewer:
        shown = text_of(await viewer.get("/ui/"))

    assert "? workers" in shown
    assert "Due next" in shown
